"""Starting and ending the service, as its operator sees it; each test has a service of its own."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.service import (
    RunningService,
    start_service,
    write_config,
)
from tests.support.tiny_models import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

pytestmark = pytest.mark.service

MODEL = "tiny"


@pytest.fixture
def config(tmp_path: Path) -> tuple[Path, int]:
    model = make_tiny_model(tmp_path / "model", max_model_len=4096)
    return write_config(tmp_path, model, name=MODEL, replicas=2, kv_blocks=1024)


@pytest.fixture
def started(config: tuple[Path, int]) -> Generator[RunningService]:
    """Started, not ready yet."""
    service = start_service(*config, MODEL)
    yield service
    service.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_leaves_nothing(
    started: RunningService, number: signal.Signals
) -> None:
    started.wait_ready()
    started.wait_for(lambda: (started.config.parent / "state/service.json").exists(), "announced")

    started.process.send_signal(number)
    started.wait_gone()

    assert started.process.returncode == 0
    assert "Traceback" not in started.output
    left = {path.name for path in (started.config.parent / "state").iterdir()}
    assert "service.json" not in left


def test_a_signal_during_the_start_ends_it_too(started: RunningService) -> None:
    started.wait_for(lambda: "starting the HTTP proxy" in started.output, "the proxy starts")

    started.process.send_signal(signal.SIGINT)
    started.wait_gone()

    assert started.process.returncode == 0
    assert "Traceback" not in started.output
