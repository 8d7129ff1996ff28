"""The ``prompt`` of a completions request: text, token ids, or a list of either, told apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from deployments.gateway.messages import valid_text
from freehold.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXPECTED = "must be a string, a list of token ids, or a list of either"


@dataclass(frozen=True, slots=True)
class Prompt:
    """``field`` is where it came from: ``prompt``, ``prompt[3]``."""

    field: str
    value: str | tuple[int, ...]


def parse_prompts(wire: object, *, max_prompts: int) -> tuple[Prompt, ...]:
    """At least one, none empty. Token ids are not negative; the vocabulary is checked later.

    Raises:
        InvalidRequest
    """
    if isinstance(wire, str):
        return (_text(wire, "prompt"),)
    if not isinstance(wire, list):
        raise InvalidRequest(param="prompt", reason=_EXPECTED)
    members = cast("list[object]", wire)
    if not members:
        raise InvalidRequest(param="prompt", reason="must not be empty")
    if isinstance(members[0], int):
        return (_token_ids(members, "prompt"),)
    if len(members) > max_prompts:
        raise InvalidRequest(param="prompt", reason=f"must have at most {max_prompts} prompts")
    return tuple(_one(member, f"prompt[{i}]") for i, member in enumerate(members))


def _one(member: object, field: str) -> Prompt:
    if isinstance(member, str):
        return _text(member, field)
    if isinstance(member, list):
        return _token_ids(cast("list[object]", member), field)
    raise InvalidRequest(field, "must be a string or a list of token ids")


def _text(text: str, field: str) -> Prompt:
    if not text:
        raise InvalidRequest(field, "must not be empty")
    return Prompt(field, valid_text(text, field))


def _token_ids(members: Sequence[object], field: str) -> Prompt:
    if not members:
        raise InvalidRequest(field, "must not be empty")
    if not all(type(member) is int for member in members):  # bool is an int, but no token
        raise InvalidRequest(field, "must be token ids only: integers")
    token_ids = cast("tuple[int, ...]", tuple(members))
    if min(token_ids) < 0:
        raise InvalidRequest(field, "must not hold a negative token id")
    return Prompt(field, token_ids)
