"""What the pages say about the repository must be there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deployments.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for folder in (ROOT, ROOT / "docs", ROOT / "docs/adr", ROOT / "benchmarks", ROOT / "helm")
    for page in folder.glob("*.md")
)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
COMMAND = re.compile(r"freehold ((?:bench|key|serve|status|tenant)(?: [a-z]+)?)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_commands_of_the_readme_exist() -> None:
    commands = set(COMMAND.findall((ROOT / "README.md").read_text(encoding="utf-8")))

    assert {"bench chatbot", "bench rounds", "bench gateway", "tenant create"} <= commands
    for command in commands:
        result = CliRunner().invoke(app, [*command.split(), "--help"])
        assert result.exit_code == 0, command
