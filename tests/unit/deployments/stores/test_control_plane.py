from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

import pytest

from deployments.stores.control_plane import ControlPlane
from freehold.secret import Secret
from tenancy.authentication import Authenticated
from tenancy.sealing import MasterKey, UnsealFailed
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.tenants import FakeClock


async def test_what_was_written_is_there_after_a_restart(
    url: str, master_key: MasterKey, clock: FakeClock
) -> None:
    async with await ControlPlane.open(url, master_key, clock=clock) as plane:
        tenant = await plane.tenants.create("acme")
        key = (await plane.keys.issue("acme")).key
        await plane.directory.refresh()
        salt = plane.keyring.tenant_domain(tenant.account_id).salt
    async with await ControlPlane.open(url, master_key, clock=clock) as plane:
        assert isinstance(plane.authenticator.authenticate(key.reveal()), Authenticated)
        assert plane.keyring.tenant_domain(tenant.account_id).salt == salt


async def test_another_master_key_is_refused_and_changes_nothing(
    url: str, master_key: MasterKey
) -> None:
    async with await ControlPlane.open(url, master_key):
        pass
    other = MasterKey(Secret(secrets.token_bytes(32)))
    with pytest.raises(UnsealFailed, match=other.master_key_id):
        await ControlPlane.open(url, other)
    async with await ControlPlane.open(url, master_key) as plane:
        assert len(plane.directory.snapshot().peppers) == 1


async def test_many_may_open_at_once(url: str, master_key: MasterKey) -> None:
    planes = await asyncio.gather(*(ControlPlane.open(url, master_key) for _ in range(6)))
    try:
        await asyncio.gather(*(plane.tenants.create(f"t{i}") for i, plane in enumerate(planes)))
        for plane in planes:
            await plane.directory.refresh()
            assert len(plane.directory.snapshot().tenants) == 6
            assert len(plane.directory.snapshot().peppers) == 1
    finally:
        for plane in planes:
            await plane.close()


async def test_follows_what_another_process_writes(url: str, master_key: MasterKey) -> None:
    gateway = await ControlPlane.open(url, master_key, poll_interval_s=0.001)
    operator = await ControlPlane.open(url, master_key, follow=False)
    async with gateway, operator:
        await operator.tenants.create("acme")
        key = (await operator.keys.issue("acme")).key.reveal()

        def is_good() -> bool:
            return isinstance(gateway.authenticator.authenticate(key), Authenticated)

        await eventually(is_good)
        await operator.keys.revoke(key)
        await eventually(lambda: not is_good())
