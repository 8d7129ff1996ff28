"""Tenants, keys and epochs through the control plane, on a real database."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from freehold.errors import InvalidRequest
from tenancy.api_key import digest
from tenancy.authentication import Authenticated, AuthenticationFailed, AuthFailure
from tenancy.directory import TenantStatus
from tenancy.peppers import Peppers
from tenancy.principal import Scope

if TYPE_CHECKING:
    from deployments.stores.control_plane import ControlPlane
    from tenancy.sealing import MasterKey
    from tests.support.tenants import FakeClock


async def test_tenants_are_listed_by_name(plane: ControlPlane) -> None:
    b = await plane.tenants.create("b")
    a = await plane.tenants.create("a")
    assert await plane.tenants.list() == [a, b]
    assert await plane.tenants.get("b") == b
    assert a.account_id != b.account_id


async def test_a_taken_name_is_refused_and_the_first_tenant_untouched(plane: ControlPlane) -> None:
    tenant = await plane.tenants.create("acme")
    version = await version_of(plane)
    with pytest.raises(InvalidRequest, match="tenant: 'acme' already exists"):
        await plane.tenants.create("acme")
    assert await plane.tenants.list() == [tenant]
    assert await version_of(plane) == version
    assert set(plane.directory.snapshot().epochs) == {tenant.account_id}


async def test_times_come_back_in_utc(plane: ControlPlane, clock: FakeClock) -> None:
    await plane.tenants.create("acme")
    (tenant,) = await plane.tenants.list()
    assert tenant.created_at == clock.now()
    assert tenant.created_at.utcoffset() == timedelta(0)
    elsewhere = clock.now().astimezone(timezone(timedelta(hours=9))) + timedelta(days=1)
    await plane.keys.issue("acme", expires_at=elsewhere)
    (key,) = await plane.keys.list()
    assert key.expires_at is not None
    assert key.expires_at == elsewhere
    assert key.expires_at.utcoffset() == timedelta(0)


@pytest.mark.parametrize("name", ["", "A", "a/b", "x" * 64])
async def test_bad_names_are_refused_everywhere(plane: ControlPlane, name: str) -> None:
    for attempt in (
        plane.tenants.create(name),
        plane.tenants.get(name),
        plane.tenants.set_status(name, TenantStatus.SUSPENDED),
        plane.keys.issue(name),
        plane.keys.list(name),
        plane.epochs.purge(name),
    ):
        with pytest.raises(InvalidRequest, match="tenant: expected"):
            await attempt


async def test_unknown_tenants_are_named(plane: ControlPlane) -> None:
    for attempt in (
        plane.tenants.get("ghost"),
        plane.tenants.set_status("ghost", TenantStatus.SUSPENDED),
        plane.keys.issue("ghost"),
        plane.keys.list("ghost"),
        plane.epochs.purge("ghost"),
    ):
        with pytest.raises(InvalidRequest, match="tenant: 'ghost' does not exist"):
            await attempt


async def test_an_issued_key_opens_the_door(plane: ControlPlane, clock: FakeClock) -> None:
    tenant = await plane.tenants.create("acme")
    issued = await plane.keys.issue("acme", label="ci", scopes=[Scope.ADMIN, Scope.INFERENCE])
    assert issued.record.label == "ci"
    assert issued.record.created_at == clock.now()
    assert await plane.keys.list("acme") == [issued.record]
    result = await authenticate(plane, issued.key.reveal())
    assert isinstance(result, Authenticated)
    assert result.principal.account_id == tenant.account_id
    assert result.principal.scopes == {Scope.ADMIN, Scope.INFERENCE}


async def test_keys_are_inference_keys_by_default(plane: ControlPlane) -> None:
    await plane.tenants.create("acme")
    assert (await plane.keys.issue("acme")).record.scopes == {Scope.INFERENCE}


async def test_only_a_peppered_digest_is_stored(plane: ControlPlane, master_key: MasterKey) -> None:
    await plane.tenants.create("acme")
    issued = await plane.keys.issue("acme")
    await plane.directory.refresh()
    pepper = Peppers(plane.directory, master_key).get(issued.record.pepper_id)
    assert pepper is not None
    assert issued.record.digest == digest(issued.key, pepper)


async def test_keys_are_listed_by_tenant_and_age(plane: ControlPlane, clock: FakeClock) -> None:
    for name in ("b", "a"):
        await plane.tenants.create(name)
    issued: list[str] = []
    for name in ("b", "a", "a"):
        clock.advance(1)
        issued.append((await plane.keys.issue(name)).record.key_id)
    assert [key.key_id for key in await plane.keys.list()] == [issued[1], issued[2], issued[0]]
    assert [key.key_id for key in await plane.keys.list("b")] == [issued[0]]


async def test_a_revoked_key_stays_revoked_at_its_first_time(
    plane: ControlPlane, clock: FakeClock
) -> None:
    await plane.tenants.create("acme")
    issued = await plane.keys.issue("acme")
    first = await plane.keys.revoke(issued.key.key_id)
    assert first.revoked_at == clock.now()
    clock.advance(60)
    assert await plane.keys.revoke(issued.key.key_id) == first
    assert await authenticate(plane, issued.key.reveal()) == AuthenticationFailed(
        AuthFailure.REVOKED, issued.key.key_id
    )


async def test_a_leaked_key_can_be_revoked_by_itself(plane: ControlPlane) -> None:
    await plane.tenants.create("acme")
    issued = await plane.keys.issue("acme")
    assert (await plane.keys.revoke(issued.key.reveal())).key_id == issued.key.key_id


async def test_revoking_what_is_not_there_is_an_error_without_the_secret(
    plane: ControlPlane,
) -> None:
    await plane.tenants.create("acme")
    issued = await plane.keys.issue("acme")
    text = issued.key.reveal()
    with pytest.raises(InvalidRequest, match="key_id: 'zzzzzzzzzzzz' does not exist"):
        await plane.keys.revoke("zzzzzzzzzzzz")
    with pytest.raises(InvalidRequest) as caught:
        await plane.keys.revoke(text[:-1])
    assert issued.key.secret.reveal().decode() not in str(caught.value)


async def test_bad_key_options_are_refused_by_name(plane: ControlPlane, clock: FakeClock) -> None:
    await plane.tenants.create("acme")
    cases = [
        ("label", plane.keys.issue("acme", label="x" * 101)),
        ("label", plane.keys.issue("acme", label="two\nlines")),
        ("scopes", plane.keys.issue("acme", scopes=[])),
        ("expires_at", plane.keys.issue("acme", expires_at=clock.now())),
    ]
    for param, attempt in cases:
        with pytest.raises(InvalidRequest) as caught:
            await attempt
        assert caught.value.param == param
    assert await plane.keys.list() == []


async def test_an_expiry_without_a_time_zone_is_a_bug(plane: ControlPlane) -> None:
    await plane.tenants.create("acme")
    with pytest.raises(TypeError):
        await plane.keys.issue("acme", expires_at=datetime(2040, 1, 1))  # noqa: DTZ001 - the point


async def test_a_suspended_tenant_is_refused_until_it_is_resumed(plane: ControlPlane) -> None:
    await plane.tenants.create("acme")
    key = (await plane.keys.issue("acme")).key.reveal()
    await plane.tenants.set_status("acme", TenantStatus.SUSPENDED)
    result = await authenticate(plane, key)
    assert isinstance(result, AuthenticationFailed)
    assert result.reason is AuthFailure.SUSPENDED
    await plane.tenants.set_status("acme", TenantStatus.ACTIVE)
    assert isinstance(await authenticate(plane, key), Authenticated)


async def test_a_purge_begins_an_epoch_for_that_tenant_alone(plane: ControlPlane) -> None:
    a, b = [await plane.tenants.create(name) for name in ("a", "b")]
    await plane.directory.refresh()
    before = {t: plane.keyring.tenant_domain(t.account_id) for t in (a, b)}
    epoch_id = await plane.epochs.purge("a")
    await plane.directory.refresh()
    after = {t: plane.keyring.tenant_domain(t.account_id) for t in (a, b)}
    assert after[a].owner.epoch_id == epoch_id
    assert after[a].salt != before[a].salt
    assert after[b] == before[b]


async def test_pepper_rotation_keeps_old_keys_good(plane: ControlPlane) -> None:
    await plane.tenants.create("acme")
    old = await plane.keys.issue("acme")
    pepper_id = await plane.keys.rotate_pepper()
    new = await plane.keys.issue("acme")
    assert new.record.pepper_id == pepper_id != old.record.pepper_id
    for issued in (old, new):
        result = await authenticate(plane, issued.key.reveal())
        assert isinstance(result, Authenticated)


async def authenticate(plane: ControlPlane, key: str) -> Authenticated | AuthenticationFailed:
    await plane.directory.refresh()
    return plane.authenticator.authenticate(key)


async def version_of(plane: ControlPlane) -> int:
    await plane.directory.refresh()
    return plane.directory.snapshot().version
