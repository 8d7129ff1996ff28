from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import httpx
import pytest
import typer
from typer.testing import CliRunner

from deployments.cli import status
from deployments.cli.status import NotRunning
from deployments.serving.state import StateFolder, new_token, read_token, write_private_json
from deployments.serving.status import STATUS_PATH, AccountStatus, ModelStatus, ReplicaStatus

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

REPLICA = ReplicaStatus(
    replica_id="abcdefgh",
    healthy=True,
    incarnation="i",
    attention_backend="cpu",
    dtype="bfloat16",
    num_blocks=2048,
    block_size=16,
    free_blocks=1000,
    active_blocks=48,
    cached_blocks=1000,
    num_running=3,
    num_waiting=4,
    prefill_tokens_per_s=1.0,
    prompt_tokens=123_456,
    cached_tokens=100_000,
    computed_prefill_tokens=23_456,
    output_tokens=7_890,
    num_preemptions=0,
    accounts=(AccountStatus("tn_328ccbc20764ba5cb5976a7bef845275", "acme", 48, 1000),),
)
MODEL = ModelStatus("smollm2", 2, 0.81, (REPLICA,))

app = typer.Typer()
app.command()(status.status)


class FakeGateway:
    """Answers as the gateway does to whoever has the token; stands in for ``httpx.get``."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.answer: object = {"models": [asdict(MODEL)]}
        self.urls: list[str] = []

    def get(self, url: str, headers: Mapping[str, str], **_: object) -> httpx.Response:
        self.urls.append(url)
        known = headers["authorization"] == f"Bearer {self._token}"
        request = httpx.Request("GET", url)
        return httpx.Response(200 if known else 404, json=self.answer, request=request)


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    """A running service whose state is the demo's folder in the current one."""
    monkeypatch.chdir(tmp_path)
    state = StateFolder(tmp_path / ".freehold")
    state.create()
    new_token(state.operator_token)
    write_private_json(state.service_file, {"base_url": "http://127.0.0.1:81/v1", "pid": 1})
    fake = FakeGateway(read_token(state.operator_token).reveal().decode())
    monkeypatch.setattr(httpx, "get", fake.get)
    return fake


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.output


def test_json_is_what_the_gateway_says(gateway: FakeGateway) -> None:
    shown = json.loads(run("--json"))

    assert shown == json.loads(json.dumps({"models": [asdict(MODEL)]}))
    assert gateway.urls == ["http://127.0.0.1:81" + STATUS_PATH]


def test_the_tables_fit_a_terminal_with_nothing_cut(gateway: FakeGateway) -> None:
    shown = run()

    for text in ("smollm2: 1 of 2 replicas, hit rate 81.0%", "abcdefgh", "123,456", "acme"):
        assert text in shown
    assert "tn_328ccbc20764ba5cb5976a7bef845275" in shown
    assert "…" not in shown


def test_no_running_service_is_said_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(NotRunning, match=r"no service\.json"):
        run()


def test_a_stale_token_is_no_traceback(gateway: FakeGateway, tmp_path: Path) -> None:
    new_token(StateFolder(tmp_path / ".freehold").operator_token)

    with pytest.raises(NotRunning, match="gives no answer"):
        run()


@pytest.mark.parametrize("answer", [[], {}, {"models": [{"model": 1}]}])
def test_another_versions_answer_is_no_traceback(gateway: FakeGateway, answer: object) -> None:
    gateway.answer = answer

    with pytest.raises(NotRunning, match="not this version's service"):
        run()


def test_the_settings_file_in_the_folder_is_asked_first(
    gateway: FakeGateway, tmp_path: Path
) -> None:
    config = {"service": {"state_dir": "other"}, "models": [{"name": "a", "path": "a"}]}
    (tmp_path / "freehold.yaml").write_text(json.dumps(config))

    with pytest.raises(NotRunning, match="other"):
        run()
