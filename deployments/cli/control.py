"""What the commands on tenants and keys share: the control plane that the settings name."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from deployments.stores.control_plane import ControlPlane

_Result = TypeVar("_Result")

DEFAULT_CONFIG = Path("freehold.yaml")
ConfigFile = Annotated[Path, typer.Option("--config", help="The service's settings file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def with_control_plane(config: Path, work: Callable[[ControlPlane], Awaitable[_Result]]) -> _Result:
    """Run ``work`` on the control plane of the service that ``config`` describes.

    The service may be running or not: its gateways follow changes within two seconds.
    """
    # Here, not above: no other command waits for SQLAlchemy and Alembic.
    from deployments.settings import load_settings
    from deployments.stores.control_plane import ControlPlane
    from deployments.stores.master_key import load_master_key

    settings = load_settings(config)
    master_key = load_master_key(settings.master_key_file)

    async def run() -> _Result:
        plane = await ControlPlane.open(settings.database_url, master_key, follow=False)
        async with plane:
            return await work(plane)

    return asyncio.run(run())


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))
