from __future__ import annotations

import hmac
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tenancy.api_key import ApiKey, digest, new_api_key
from tenancy.authentication import (
    MAX_SNAPSHOT_AGE_S,
    Authenticated,
    AuthenticationFailed,
    AuthFailure,
)
from tenancy.principal import Principal, Scope
from tests.support.tenants import MemoryControlPlane

if TYPE_CHECKING:
    from freehold.secret import Secret
    from tenancy.directory import Tenant


@pytest.fixture
def plane() -> MemoryControlPlane:
    return MemoryControlPlane()


@pytest.fixture
def tenant(plane: MemoryControlPlane) -> Tenant:
    return plane.create_tenant("acme")


def refused(plane: MemoryControlPlane, presented: str | None) -> AuthenticationFailed:
    result = plane.authenticator().authenticate(presented)
    assert isinstance(result, AuthenticationFailed)
    return result


def test_a_good_key_makes_a_principal(plane: MemoryControlPlane, tenant: Tenant) -> None:
    key = plane.issue_key(tenant.tenant_id, scopes=frozenset({Scope.INFERENCE, Scope.ADMIN}))
    assert plane.authenticator().authenticate(key.reveal()) == Authenticated(
        Principal(
            tenant.tenant_id,
            tenant.account_id,
            key.key_id,
            frozenset({Scope.INFERENCE, Scope.ADMIN}),
        )
    )


@pytest.mark.parametrize("presented", [None, ""])
def test_no_key_is_missing(plane: MemoryControlPlane, presented: str | None) -> None:
    assert refused(plane, presented) == AuthenticationFailed(AuthFailure.MISSING)


def test_a_typo_is_malformed_and_leaves_nothing_to_log(
    plane: MemoryControlPlane, tenant: Tenant
) -> None:
    typo = plane.issue_key(tenant.tenant_id).reveal()[:-1] + "!"
    assert refused(plane, typo) == AuthenticationFailed(AuthFailure.MALFORMED)


def test_a_key_nobody_issued_is_unknown(plane: MemoryControlPlane) -> None:
    key = new_api_key()
    assert refused(plane, key.reveal()) == AuthenticationFailed(AuthFailure.UNKNOWN, key.key_id)


def test_the_right_id_with_another_secret_is_unknown(
    plane: MemoryControlPlane, tenant: Tenant
) -> None:
    key = plane.issue_key(tenant.tenant_id)
    forged = ApiKey(key.key_id, new_api_key().secret)
    assert refused(plane, forged.reveal()).reason is AuthFailure.UNKNOWN


def test_a_digest_moved_to_another_keys_row_opens_nothing(
    plane: MemoryControlPlane, tenant: Tenant
) -> None:
    mine = plane.issue_key(tenant.tenant_id)
    theirs = plane.issue_key(plane.create_tenant("other").tenant_id)
    stolen = replace(
        plane.snapshot().keys[theirs.key_id], digest=plane.snapshot().keys[mine.key_id].digest
    )
    plane.set_key(stolen)
    forged = ApiKey(theirs.key_id, mine.secret)
    assert refused(plane, forged.reveal()).reason is AuthFailure.UNKNOWN


def test_a_key_expires_at_its_time_and_not_before(
    plane: MemoryControlPlane, tenant: Tenant
) -> None:
    expires_at = plane.clock.now() + timedelta(seconds=5)
    key = plane.issue_key(tenant.tenant_id, expires_at=expires_at).reveal()
    plane.clock.advance(4.999)
    assert isinstance(plane.authenticator().authenticate(key), Authenticated)
    plane.clock.advance(0.001)
    assert refused(plane, key).reason is AuthFailure.EXPIRED


def test_a_revoked_key_is_refused(plane: MemoryControlPlane, tenant: Tenant) -> None:
    key = plane.issue_key(tenant.tenant_id)
    plane.revoke_key(key.key_id)
    assert refused(plane, key.reveal()).reason is AuthFailure.REVOKED


def test_a_suspended_tenants_keys_are_refused(plane: MemoryControlPlane, tenant: Tenant) -> None:
    key = plane.issue_key(tenant.tenant_id)
    plane.suspend(tenant.tenant_id)
    assert refused(plane, key.reveal()).reason is AuthFailure.SUSPENDED


def test_a_key_whose_tenant_is_gone_is_refused(plane: MemoryControlPlane, tenant: Tenant) -> None:
    key = plane.issue_key(tenant.tenant_id)
    plane.replace_snapshot(replace(plane.snapshot(), tenants={}))
    assert refused(plane, key.reveal()).reason is AuthFailure.SUSPENDED


def test_why_a_key_is_refused_is_told_only_to_its_holder(
    plane: MemoryControlPlane, tenant: Tenant
) -> None:
    key = plane.issue_key(tenant.tenant_id)
    plane.revoke_key(key.key_id)
    guess = ApiKey(key.key_id, new_api_key().secret)
    assert refused(plane, guess.reveal()).reason is AuthFailure.UNKNOWN


def test_a_stale_snapshot_lets_nobody_in(plane: MemoryControlPlane, tenant: Tenant) -> None:
    key = plane.issue_key(tenant.tenant_id)
    plane.clock.advance(MAX_SNAPSHOT_AGE_S)
    assert isinstance(plane.authenticator().authenticate(key.reveal()), Authenticated)
    plane.clock.advance(0.1)
    assert refused(plane, key.reveal()).reason is AuthFailure.UNAVAILABLE
    assert refused(plane, new_api_key().reveal()).reason is AuthFailure.UNAVAILABLE
    plane.confirm()
    assert isinstance(plane.authenticator().authenticate(key.reveal()), Authenticated)


def test_staleness_does_not_follow_the_wall_clock(
    plane: MemoryControlPlane, tenant: Tenant
) -> None:
    key = plane.issue_key(tenant.tenant_id)
    plane.clock.mono_s += MAX_SNAPSHOT_AGE_S + 1
    plane.clock.wall -= timedelta(hours=1)
    assert refused(plane, key.reveal()).reason is AuthFailure.UNAVAILABLE


def test_an_old_key_stays_good_after_its_pepper_was_replaced(
    plane: MemoryControlPlane, tenant: Tenant
) -> None:
    old = plane.issue_key(tenant.tenant_id)
    plane.rotate_pepper()
    new = plane.issue_key(tenant.tenant_id)
    for key in (old, new):
        assert isinstance(plane.authenticator().authenticate(key.reveal()), Authenticated)


def test_a_key_whose_pepper_is_gone_is_refused(plane: MemoryControlPlane, tenant: Tenant) -> None:
    key = plane.issue_key(tenant.tenant_id)
    authenticator = plane.authenticator()
    assert isinstance(authenticator.authenticate(key.reveal()), Authenticated)
    plane.replace_snapshot(replace(plane.snapshot(), peppers={}))
    assert authenticator.authenticate(key.reveal()) == AuthenticationFailed(
        AuthFailure.UNKNOWN, key.key_id
    )


def test_a_damaged_pepper_is_our_fault_not_the_callers(
    plane: MemoryControlPlane, tenant: Tenant
) -> None:
    key = plane.issue_key(tenant.tenant_id)
    sealed = plane.snapshot().peppers[plane.pepper_id]
    damaged = {plane.pepper_id: replace(sealed, box=sealed.box[:-1] + b"?")}
    plane.replace_snapshot(replace(plane.snapshot(), peppers=damaged))
    assert refused(plane, key.reveal()).reason is AuthFailure.UNAVAILABLE


def test_an_unknown_id_costs_what_a_wrong_secret_costs(
    plane: MemoryControlPlane, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same operations on the same sizes, each exactly once: nothing to time."""
    known = plane.issue_key(tenant.tenant_id)
    real_digest, real_compare = digest, hmac.compare_digest
    work: list[tuple[str, int, int]] = []

    def counted_digest(key: ApiKey, pepper: Secret) -> bytes:
        work.append(("digest", len(key.secret.reveal()), len(pepper.reveal())))
        return real_digest(key, pepper)

    def counted_compare(a: bytes, b: bytes) -> bool:
        work.append(("compare", len(a), len(b)))
        return real_compare(a, b)

    authenticator = plane.authenticator()
    monkeypatch.setattr("tenancy.authentication.digest", counted_digest)
    monkeypatch.setattr("tenancy.authentication.hmac.compare_digest", counted_compare)

    def work_of(key: ApiKey) -> list[tuple[str, int, int]]:
        work.clear()
        authenticator.authenticate(key.reveal())
        return list(work)

    unknown = work_of(new_api_key())
    wrong = work_of(ApiKey(known.key_id, new_api_key().secret))
    assert unknown == wrong == work_of(known)
    assert [name for name, *_ in unknown].count("digest") == 1


def test_no_result_shows_the_secret(plane: MemoryControlPlane, tenant: Tenant) -> None:
    good = plane.issue_key(tenant.tenant_id)
    revoked = plane.issue_key(tenant.tenant_id)
    plane.revoke_key(revoked.key_id)
    for key in (good, revoked, new_api_key(), ApiKey(good.key_id, new_api_key().secret)):
        result = plane.authenticator().authenticate(key.reveal())
        assert key.secret.reveal().decode() not in f"{result} {result!r}"
