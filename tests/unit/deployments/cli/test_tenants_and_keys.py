"""``freehold tenant`` and ``freehold key`` against a database in a temporary folder."""

from __future__ import annotations

import base64
import json
import os
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from deployments.cli import keys, tenants
from deployments.stores.master_key import MASTER_KEY_VARIABLE, MasterKeyUnusable
from freehold.errors import InvalidRequest
from tenancy.api_key import parse_api_key

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

app = typer.Typer()
app.add_typer(tenants.app, name="tenant")
app.add_typer(keys.app, name="key")


class Cli:
    """The commands as a shell would call them, on one settings file."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self.shown = ""

    def run(self, *arguments: str) -> Result:
        result = CliRunner().invoke(app, [*arguments, "--config", str(self._config)])
        self.shown += result.output
        return result

    def ok(self, *arguments: str) -> str:
        """Standard output of a command that succeeds."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--json"))

    def refusal(self, *arguments: str) -> BaseException:
        result = self.run(*arguments)
        assert result.exit_code != 0
        assert result.exception is not None
        return result.exception


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "freehold.yaml"
    file.write_text("models:\n  - {name: m, path: m}\n")
    return file


@pytest.fixture
def cli(config: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    monkeypatch.setenv(MASTER_KEY_VARIABLE, key)
    monkeypatch.setenv("COLUMNS", "200")
    return Cli(config)


def test_creates_and_lists_tenants(cli: Cli) -> None:
    assert "created tenant acme (account tn_" in cli.ok("tenant", "create", "acme")
    made = cli.json("tenant", "create", "other")
    assert made["tenant"] == "other"
    assert made["status"] == "active"
    listed = cli.json("tenant", "list")
    assert [tenant["tenant"] for tenant in listed] == ["acme", "other"]
    assert listed[1] == made
    table = cli.ok("tenant", "list")
    assert made["account_id"] in table


def test_refuses_a_taken_and_a_bad_name(cli: Cli) -> None:
    cli.ok("tenant", "create", "acme")
    assert str(cli.refusal("tenant", "create", "acme")) == "tenant: 'acme' already exists"
    assert isinstance(cli.refusal("tenant", "create", "A/B"), InvalidRequest)


def test_prints_a_new_key_alone_on_standard_output_and_never_again(cli: Cli) -> None:
    cli.ok("tenant", "create", "acme")
    text = cli.ok("key", "issue", "acme", "--label", "ci").strip()
    key = parse_api_key(text)
    assert key is not None
    cli.ok("key", "list")
    cli.ok("key", "list", "acme", "--json")
    cli.ok("key", "revoke", key.key_id)
    cli.ok("tenant", "list")
    assert cli.shown.count(text) == 1
    assert cli.shown.count(key.secret.reveal().decode()) == 1


def test_issues_keys_with_options(cli: Cli) -> None:
    cli.ok("tenant", "create", "acme")
    issued = cli.json(
        "key", "issue", "acme", "--label", "bot", "--expires-in", "30d",
        "--scope", "admin", "--scope", "inference",
    )  # fmt: skip
    key = parse_api_key(issued.pop("api_key"))
    assert key is not None
    assert key.key_id == issued["key_id"]
    assert issued["scopes"] == ["admin", "inference"]
    assert issued["label"] == "bot"
    assert issued["expires_at"] > issued["created_at"]
    assert cli.json("key", "list") == [issued]


def test_a_revoked_key_is_listed_as_such(cli: Cli) -> None:
    cli.ok("tenant", "create", "acme")
    issued = cli.json("key", "issue", "acme")
    assert cli.json("key", "revoke", issued["key_id"])["status"] == "revoked"
    (listed,) = cli.json("key", "list", "acme")
    assert listed["status"] == "revoked"
    assert listed["revoked_at"] is not None


def test_tables_show_labels_as_they_are_and_whole_key_ids(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.ok("tenant", "create", "acme")
    issued = cli.json("key", "issue", "acme", "--label", "[red]")
    assert "[red]" in cli.ok("key", "list")
    monkeypatch.setenv("COLUMNS", "80")
    assert issued["key_id"] in cli.ok("key", "list")


def test_refusals_name_the_argument(cli: Cli) -> None:
    cli.ok("tenant", "create", "acme")
    assert str(cli.refusal("key", "issue", "ghost")) == "tenant: 'ghost' does not exist"
    assert str(cli.refusal("key", "list", "ghost")) == "tenant: 'ghost' does not exist"
    assert str(cli.refusal("key", "revoke", "z" * 12)) == f"key_id: {'z' * 12!r} does not exist"
    assert cli.run("key", "issue", "acme", "--expires-in", "soon").exit_code == 2
    assert cli.run("key", "issue", "acme", "--scope", "root").exit_code == 2


def test_a_damaged_key_given_to_revoke_is_not_repeated(cli: Cli) -> None:
    cli.ok("tenant", "create", "acme")
    issued = cli.json("key", "issue", "acme")
    secret = issued["api_key"].split("_")[2]
    cli.shown = ""
    error = cli.refusal("key", "revoke", issued["api_key"][:-1])
    assert secret[:-1] not in cli.shown + str(error) + repr(error)


def test_without_a_master_key_nothing_is_made(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(MASTER_KEY_VARIABLE, raising=False)
    error = Cli(config).refusal("tenant", "create", "acme")
    assert isinstance(error, MasterKeyUnusable)
    assert os.listdir(config.parent) == ["freehold.yaml"]


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("90s", timedelta(seconds=90)),
        ("45m", timedelta(minutes=45)),
        ("12h", timedelta(hours=12)),
        ("30d", timedelta(days=30)),
    ],
)
def test_durations(text: str, duration: timedelta) -> None:
    assert keys.parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "0d", "-1d", "1", "d", "1w", "1.5h", " 1d", "1d\n", "٣d"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        keys.parse_duration(text)
