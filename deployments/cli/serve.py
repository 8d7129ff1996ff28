"""``freehold serve``: run the service in the foreground until Ctrl-C.

Prints how the start goes, every open port, and for the demo its keys. Decides only what a person
reads; the order of things is ``deployments.serving.launch``'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deployments.cli.control import DEFAULT_CONFIG, ConfigFile
from deployments.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from deployments.serving.demo import DemoKeys
    from deployments.serving.launch import Running
    from deployments.serving.listeners import Listener
    from deployments.settings import Settings

DEMO_STATE_DIR = Path(".freehold")
READY = "\nReady. Ctrl-C ends the service."


def serve(
    config: ConfigFile = DEFAULT_CONFIG,
    demo: Annotated[
        bool, typer.Option("--demo", help="The bundled model and two tenants instead.")
    ] = False,
) -> None:
    """Run the service in the foreground; Ctrl-C ends it."""
    # Late: the commands on tenants and keys need neither Ray nor a model.
    from deployments.serving.launch import run_service

    progress = _Console()
    if not demo:
        settings = load_settings(config)
        run_service(settings, progress, lambda running: _announced(settings, running))
        return
    settings, keys = _prepare_demo()
    run_service(settings, progress, lambda running: _demo_announced(settings, running, keys))


class _Console:
    """One line a step, with the time since the start."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()

    def step(self, text: str) -> None:
        typer.echo(f"[{time.monotonic() - self._started_s:5.1f} s] {text}")


def _prepare_demo() -> tuple[Settings, DemoKeys]:
    from deployments.demo_model import ensure_demo_model
    from deployments.serving.demo import demo_keys, write_demo_settings

    settings = load_settings(write_demo_settings(DEMO_STATE_DIR, ensure_demo_model()))
    return settings, asyncio.run(demo_keys(settings))


@contextlib.contextmanager
def _announced(settings: Settings, running: Running) -> Generator[None]:
    _print_ready(settings, running)
    typer.echo(READY)
    yield


@contextlib.contextmanager
def _demo_announced(settings: Settings, running: Running, keys: DemoKeys) -> Generator[None]:
    from deployments.serving.demo import keys_file, ready_file, snippets

    _print_ready(settings, running)
    kept = keys_file(settings)
    if keys.reused:
        typer.echo(f"\nThe keys of the last start are still good; they are in {kept}.")
    else:
        typer.echo(f"\nNew keys, shown this once and kept in {kept} (mode 600):")
        for tenant, api_key in keys.api_keys.items():
            typer.echo(f"  {tenant:8} {api_key}")
    for snippet in snippets(settings, running, keys):
        typer.echo(f"\n{snippet}")
    with ready_file(settings, running, keys):
        typer.echo(READY)
        yield


def _print_ready(settings: Settings, running: Running) -> None:
    models = ", ".join(f"{model.name} x {model.replicas}" for model in settings.models)
    typer.echo(f"\n{running.base_url} serves {models}")
    typer.echo("\nOpen ports (docs/operations.md says what each is for):")
    for line in _port_lines(running.listeners):
        typer.echo(f"  {line}")


def _port_lines(listeners: Sequence[Listener]) -> Sequence[str]:
    """One line for each owner and reach: Ray opens some twenty ports."""
    groups: dict[tuple[str, str], list[str]] = {}
    for listener in listeners:
        groups.setdefault((listener.reach, listener.owner), []).append(str(listener.port))
    return [
        f"{reach:15} {owner:28} {', '.join(ports)}"
        for (reach, owner), ports in sorted(groups.items())
    ]
