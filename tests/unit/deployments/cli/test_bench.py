from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from deployments.bench.target import NoTarget
from deployments.cli.bench import app

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("command", ["chatbot", "rounds", "gateway"])
def test_without_a_service_nothing_is_measured(command: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [command, "--demo-file", str(tmp_path / "none.json")])

    assert isinstance(result.exception, NoTarget)


def test_the_key_comes_from_the_environment_only() -> None:
    result = CliRunner().invoke(
        app, ["chatbot", "--base-url", "http://h", "--api-key-env", "UNSET"], env={"UNSET": ""}
    )

    assert isinstance(result.exception, NoTarget)
    assert "UNSET" in str(result.exception)


def test_a_round_cannot_grow_by_less_than_its_answer() -> None:
    result = CliRunner().invoke(app, ["rounds", "--growth-tokens", "8"])

    assert result.exit_code == 2
    assert "--growth-tokens" in result.output
