"""``freehold key``: issue, revoke and list API keys. A raw key is printed once, by ``issue``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from deployments.cli.control import (
    DEFAULT_CONFIG,
    AsJson,
    ConfigFile,
    print_json,
    with_control_plane,
)
from tenancy.principal import Scope

if TYPE_CHECKING:
    from tenancy.directory import KeyRecord

app = typer.Typer(help="Issue, revoke and list API keys.", no_args_is_help=True)

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_duration(text: str) -> timedelta:
    """``90s``, ``45m``, ``12h`` or ``30d``."""
    match = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text)
    if match is None:
        message = "expected a number and s, m, h or d, for example 30d"
        raise typer.BadParameter(message)
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


@app.command()
def issue(
    tenant: str,
    label: Annotated[str, typer.Option(help="What the key is for.")] = "",
    expires_in: Annotated[
        timedelta | None,
        typer.Option(parser=parse_duration, metavar="DURATION", help="For example 12h or 30d."),
    ] = None,
    scope: Annotated[
        list[Scope] | None, typer.Option(help="May be repeated; by default inference.")
    ] = None,
    config: ConfigFile = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Issue a key and print it. It is not stored: it cannot be shown again."""
    expires_at = None if expires_in is None else datetime.now(UTC) + expires_in
    issued = with_control_plane(
        config,
        lambda plane: plane.keys.issue(
            tenant, label=label, scopes=scope or [Scope.INFERENCE], expires_at=expires_at
        ),
    )
    if as_json:
        print_json({**_as_dict(issued.record), "api_key": issued.key.reveal()})
        return
    typer.echo(
        f"key {issued.record.key_id} for tenant {issued.record.tenant_id}; shown only once:",
        err=True,
    )
    typer.echo(issued.key.reveal())  # alone on standard output: KEY=$(freehold key issue …)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The characters between 'fh_' and the next '_'.")],
    config: ConfigFile = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Refuse a key from now on; every gateway follows within two seconds."""
    record = with_control_plane(config, lambda plane: plane.keys.revoke(key_id))
    if as_json:
        print_json(_as_dict(record))
    else:
        typer.echo(f"revoked key {record.key_id} of tenant {record.tenant_id}")


@app.command(name="list")
def list_(
    tenant: Annotated[str | None, typer.Argument(help="By default of all tenants.")] = None,
    config: ConfigFile = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """List keys by their public ids."""
    records = with_control_plane(config, lambda plane: plane.keys.list(tenant))
    if as_json:
        print_json([_as_dict(record) for record in records])
        return
    whole = Column("key id", no_wrap=True, min_width=12)  # cut, it could not be revoked
    created, expires = Column("created", no_wrap=True), Column("expires", no_wrap=True)
    table = Table(whole, "tenant", "label", "scopes", "status", created, expires)
    for record in records:
        table.add_row(
            record.key_id,
            record.tenant_id,
            escape(record.label),
            "\n".join(sorted(record.scopes)),
            _status(record),
            f"{record.created_at:%Y-%m-%d}",
            f"{record.expires_at:%Y-%m-%d %H:%M}" if record.expires_at else "never",
        )
    Console().print(table)


def _as_dict(record: KeyRecord) -> dict[str, object]:
    return {
        "key_id": record.key_id,
        "tenant": record.tenant_id,
        "label": record.label,
        "scopes": sorted(record.scopes),
        "status": _status(record),
        "created_at": record.created_at.isoformat(),
        "expires_at": record.expires_at and record.expires_at.isoformat(),
        "revoked_at": record.revoked_at and record.revoked_at.isoformat(),
    }


def _status(record: KeyRecord) -> str:
    if record.revoked_at is not None:
        return "revoked"
    if record.expires_at is not None and record.expires_at <= datetime.now(UTC):
        return "expired"
    return "active"
