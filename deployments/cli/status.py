"""``freehold status``: what the running service says of its replicas, pools and accounts.

Reads the address and the operator's token from the service's state folder; an API key is never
involved. The service must run on this machine, as this user.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path  # noqa: TC003  # typer resolves annotations at run time
from typing import TYPE_CHECKING, Annotated

import httpx
import typer
from pydantic import TypeAdapter, ValidationError
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from deployments.cli.control import DEFAULT_CONFIG, AsJson
from deployments.cli.serve import DEMO_STATE_DIR
from deployments.serving.state import StateFolder, read_json, read_token
from deployments.serving.status import STATUS_PATH, ModelStatus
from deployments.settings import load_settings
from freehold.errors import FreeholdError

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S = 5.0


class NotRunning(FreeholdError):
    """No service answers for this state folder."""

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(folder, reason)
        self.folder = folder
        self.reason = reason

    def __str__(self) -> str:
        return f"no service is running with its state in {self.folder}: {self.reason}"


def status(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help=f"The service's settings file; by default {DEFAULT_CONFIG}, else the demo's.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show replicas, their pools by account, hit rates and tokens of the running service."""
    models = _ask(_state_folder(config))
    if as_json:
        typer.echo(json.dumps({"models": [asdict(model) for model in models]}, indent=2))
        return
    console = Console()
    for model in models:
        console.print(_replica_table(model))
        console.print(_account_table(model))


def _state_folder(config: Path | None) -> StateFolder:
    if config is None and not DEFAULT_CONFIG.exists():
        return StateFolder(DEMO_STATE_DIR)
    return StateFolder(load_settings(config or DEFAULT_CONFIG).service.state_dir)


def _ask(state: StateFolder) -> Sequence[ModelStatus]:
    """
    Raises:
        NotRunning: nobody answers, or not as a service of this folder does.
    """
    folder = str(state.path)
    base_url = (read_json(state.service_file) or {}).get("base_url")
    if not isinstance(base_url, str):
        raise NotRunning(folder, f"there is no {state.service_file.name}")
    url = base_url.removesuffix("/v1") + STATUS_PATH
    try:
        token = read_token(state.operator_token).reveal().decode()
        headers = {"authorization": f"Bearer {token}"}
        answer = httpx.get(url, headers=headers, timeout=TIMEOUT_S, trust_env=False)
        answer.raise_for_status()
        return TypeAdapter(list[ModelStatus]).validate_python(answer.json()["models"])
    except (OSError, httpx.HTTPError) as error:
        raise NotRunning(folder, f"{url} gives no answer ({type(error).__name__})") from None
    except (ValueError, KeyError, TypeError, ValidationError):
        raise NotRunning(folder, f"{url} is not this version's service") from None


def _replica_table(model: ModelStatus) -> Table:
    rate = "no prompt yet" if model.hit_rate is None else f"hit rate {model.hit_rate:.1%}"
    table = _table(f"{model.model}: {len(model.replicas)} of {model.num_expected} replicas, {rate}")
    for name in ("replica", "state"):
        table.add_column(name)
    for name in ("run", "wait", "active", "cached", "free", "prompt", "hits", "output"):
        table.add_column(name, justify="right")
    table.caption = "active, cached, free: blocks; prompt, hits, output: tokens since the start"
    for replica in model.replicas:
        numbers = (
            replica.num_running,
            replica.num_waiting,
            replica.active_blocks,
            replica.cached_blocks,
            replica.free_blocks,
            replica.prompt_tokens,
            replica.cached_tokens,
            replica.output_tokens,
        )
        state = "healthy" if replica.healthy else "unhealthy"
        table.add_row(replica.replica_id, state, *(f"{number:,}" for number in numbers))
    return table


def _account_table(model: ModelStatus) -> Table:
    table = _table("pool by account, in blocks")
    for name in ("replica", "tenant", "account"):
        table.add_column(name)
    for name in ("active", "cached"):
        table.add_column(name, justify="right")
    for replica in model.replicas:
        for account in replica.accounts:
            blocks = (f"{account.active_blocks:,}", f"{account.cached_blocks:,}")
            tenant = account.tenant or "-"
            table.add_row(replica.replica_id, tenant, account.account_id, *blocks)
    return table


def _table(title: str) -> Table:
    """Narrow: ten columns in eighty characters."""
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
