"""The running service as a client sees it: the official OpenAI SDK, one client a tenant.

The service (``tests.support.service``) starts once a session. Prompts are new in every test, so
that no test finds in the cache what another one left.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from openai import AsyncOpenAI, OpenAI

from deployments.demo_model import NAME as SMOLLM2
from deployments.demo_model import ensure_demo_model
from tests.support.service import running_service
from tests.support.tiny_models import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from tests.support.service import RunningService


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningService]:
    """Two replicas of a tiny model. Idle between tests; no test may change it for the others."""
    folder = tmp_path_factory.mktemp("service")
    model = make_tiny_model(folder / "model")
    with running_service(folder, model, name="tiny", replicas=2, kv_blocks=1024) as running:
        yield running


@pytest.fixture(scope="session")
def smollm2_service(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningService]:
    """Two replicas of the demo model."""
    folder = tmp_path_factory.mktemp("smollm2")
    with running_service(
        folder, ensure_demo_model(), name=SMOLLM2, replicas=2, kv_blocks=512
    ) as running:
        yield running


@pytest.fixture
def acme(service: RunningService) -> Generator[OpenAI]:
    """The first tenant."""
    with OpenAI(
        base_url=service.base_url, api_key=service.tenants[0].api_key, max_retries=0
    ) as client:
        yield client


@pytest.fixture
def globex(service: RunningService) -> Generator[OpenAI]:
    """Another tenant, who must never see what the first one does."""
    with OpenAI(
        base_url=service.base_url, api_key=service.tenants[1].api_key, max_retries=0
    ) as client:
        yield client


@pytest.fixture
async def async_acme(service: RunningService) -> AsyncGenerator[AsyncOpenAI]:
    async with AsyncOpenAI(
        base_url=service.base_url, api_key=service.tenants[0].api_key, max_retries=0
    ) as client:
        yield client


@pytest.fixture
def new_text() -> str:
    """Some blocks long, and never seen before from its first words on."""
    return " ".join(secrets.token_hex(4) for _ in range(12))
