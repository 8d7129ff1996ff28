"""The benchmarks run against the real service; how fast it was is nobody's business here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from deployments.cli.bench import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.service import RunningService

pytestmark = pytest.mark.service

Bench = "Callable[..., dict[str, Any]]"


@pytest.fixture
def bench(service: RunningService, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def run(command: str, *options: str) -> dict[str, Any]:
        figures = tmp_path / f"{command}.json"
        arguments = [command, "--base-url", service.base_url, "--api-key-env", "TEST_API_KEY"]
        result = CliRunner().invoke(
            app,
            [*arguments, "--json", str(figures), *options],
            env={"TEST_API_KEY": service.tenants[0].api_key},
            catch_exceptions=False,
        )
        assert result.exit_code == 0, result.output
        assert service.tenants[0].api_key not in result.output
        read: dict[str, Any] = json.loads(figures.read_text())
        assert read["model"] == service.model
        return read

    return run


def test_chatbot(bench: Callable[..., dict[str, Any]]) -> None:
    options = ["--system-tokens", "400", "--requests", "8", "--rounds", "1"]
    figures = bench("chatbot", *options, "--concurrency", "4", "--output-tokens", "4")

    assert figures["no_reuse"]["cached_tokens"] == 0
    assert figures["hit_rate"] > 0.5
    assert figures["throughput_ratio"] > 0
    assert {"p50_s", "p99_s"} <= set(figures["reuse"]["latency"])


def test_rounds(bench: Callable[..., dict[str, Any]]) -> None:
    options = ["--rounds", "4", "--start-tokens", "320", "--growth-tokens", "64"]
    figures = bench("rounds", *options, "--output-tokens", "8", "--sessions", "1")

    assert figures["prefill_tokens_without"] == 320 + 384 + 448 + 512
    # Each later round computes what is new and at most the block that was not full before.
    assert 320 + 3 * 64 - 3 * 16 <= figures["prefill_tokens_with"] <= 320 + 3 * (64 + 16)


def test_gateway(bench: Callable[..., dict[str, Any]]) -> None:
    figures = bench("gateway", "--requests", "5", "--warmup", "1")

    stages = figures["stages"]
    assert {"authenticate", "template", "tokenize", "hash", "admit", "route"} <= set(stages)
    assert all(ms >= 0 for ms in stages.values())
