"""``freehold tenant``: make and list tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from deployments.cli.control import (
    DEFAULT_CONFIG,
    AsJson,
    ConfigFile,
    print_json,
    with_control_plane,
)

if TYPE_CHECKING:
    from tenancy.directory import Tenant

app = typer.Typer(help="Make and list tenants.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and hyphens.")],
    config: ConfigFile = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Make a tenant with an account and a cache epoch of its own."""
    tenant = with_control_plane(config, lambda plane: plane.tenants.create(name))
    if as_json:
        print_json(_as_dict(tenant))
    else:
        typer.echo(f"created tenant {tenant.tenant_id} (account {tenant.account_id})")


@app.command(name="list")
def list_(config: ConfigFile = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """List all tenants."""
    tenants = with_control_plane(config, lambda plane: plane.tenants.list())
    if as_json:
        print_json([_as_dict(tenant) for tenant in tenants])
        return
    table = Table("tenant", "account", "status", "created")
    for tenant in tenants:
        created = f"{tenant.created_at:%Y-%m-%d %H:%M} UTC"
        table.add_row(tenant.tenant_id, tenant.account_id, tenant.status.value, created)
    Console().print(table)


def _as_dict(tenant: Tenant) -> dict[str, str]:
    return {
        "tenant": tenant.tenant_id,
        "account_id": tenant.account_id,
        "status": tenant.status.value,
        "created_at": tenant.created_at.isoformat(),
    }
