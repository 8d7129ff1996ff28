from datetime import UTC, datetime

from deployments.stores.rows import from_scopes, to_key, to_tenant
from deployments.stores.schema import ApiKeyRow, TenantRow
from tenancy.directory import TenantStatus
from tenancy.principal import Scope

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def key_row(scopes: str) -> ApiKeyRow:
    return ApiKeyRow(
        key_id="k", tenant_id="t", pepper_id="p", digest=b"d", scopes=scopes, label="",
        created_at=NOW, expires_at=None, revoked_at=None,
    )  # fmt: skip


def test_scopes_survive_the_store() -> None:
    for scopes in ({Scope.ADMIN}, {Scope.INFERENCE}, {Scope.ADMIN, Scope.INFERENCE}):
        assert to_key(key_row(from_scopes(scopes))).scopes == scopes


def test_a_scope_of_a_newer_version_grants_nothing() -> None:
    assert to_key(key_row("inference billing")).scopes == {Scope.INFERENCE}


def test_a_status_of_a_newer_version_lets_nobody_in() -> None:
    row = TenantRow(tenant_id="t", account_id="tn_1", status="archived", created_at=NOW)
    assert to_tenant(row).status is TenantStatus.SUSPENDED
