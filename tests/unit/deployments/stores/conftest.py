from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from deployments.stores.control_plane import ControlPlane
from freehold.secret import Secret
from tenancy.sealing import MasterKey
from tests.support.tenants import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


@pytest.fixture
def master_key() -> MasterKey:
    return MasterKey(Secret(secrets.token_bytes(32)))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state' / 'control.db'}"


@pytest.fixture
async def plane(url: str, master_key: MasterKey, clock: FakeClock) -> AsyncGenerator[ControlPlane]:
    """Follows nothing by itself: tests say when it refreshes."""
    async with await ControlPlane.open(url, master_key, clock=clock, follow=False) as plane:
        yield plane
