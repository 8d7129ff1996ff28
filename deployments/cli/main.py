"""``freehold``: the commands, and how an error ends one.

Imports no heavy library: each command imports what it needs when it runs.
"""

from __future__ import annotations

import sys

import typer

from deployments.cli import bench, keys, serve, status, tenants
from freehold.errors import FreeholdError

EXIT_ERROR = 2

app = typer.Typer(
    help="Multi-tenant LLM serving on Ray.", no_args_is_help=True, pretty_exceptions_enable=False
)
app.command()(serve.serve)
app.command()(status.status)
app.add_typer(tenants.app, name="tenant")
app.add_typer(keys.app, name="key")
app.add_typer(bench.app, name="bench")


def main() -> None:
    """What was foreseen ends in one line a problem and status 2, without a traceback."""
    try:
        app()
    except FreeholdError as error:
        for line in str(error).splitlines():
            typer.echo(f"error: {line}", err=True)
        sys.exit(EXIT_ERROR)
