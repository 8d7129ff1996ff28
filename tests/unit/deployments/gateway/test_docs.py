"""docs/api.md promises to list every field and every error code."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.gateway import errors
from deployments.gateway.messages import MESSAGE_FIELDS, PART_FIELDS
from deployments.gateway.schema import CHAT_FIELDS, COMPLETION_FIELDS, STREAM_OPTIONS_FIELDS

PAGE = (Path(__file__).parents[4] / "docs" / "api.md").read_text(encoding="utf-8")
TABLES = [CHAT_FIELDS, COMPLETION_FIELDS, STREAM_OPTIONS_FIELDS, MESSAGE_FIELDS, PART_FIELDS]
NAMES = {name for table in TABLES for name in [*table.known, *table.refused]}
CODES = {verdict.code for verdict in errors.verdicts()}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_field_is_described(name: str) -> None:
    assert f"`{name}`" in PAGE or f'"{name}"' in PAGE or f"`{name}:" in PAGE


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_error_code_is_described(code: str) -> None:
    assert f"`{code}`" in PAGE
