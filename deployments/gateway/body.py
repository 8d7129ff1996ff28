"""A request's body: bounded, in time too; strict JSON; an object; shallow.

Decides nothing about fields. Refuses what parsers disagree on (duplicate keys, NaN, infinities,
broken UTF-8), because a proxy and a server that read one body differently are a hole.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, NoReturn, cast

from deployments.gateway.refusals import BODY, BodyTooLarge, BodyTooSlow
from freehold.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_DEPTH = 16


async def read_body(
    chunks: AsyncIterator[bytes], declared: str | None, *, max_bytes: int, timeout_s: float
) -> bytes:
    """``declared`` is the Content-Length header: an honest client is refused before it sends.

    Raises:
        BodyTooLarge, BodyTooSlow
    """
    if declared is not None and _exceeds(declared, max_bytes):
        raise BodyTooLarge(max_bytes)
    try:
        async with asyncio.timeout(timeout_s):
            return await _collect(chunks, max_bytes)
    except TimeoutError:
        raise BodyTooSlow(timeout_s) from None


def _exceeds(declared: str, max_bytes: int) -> bool:
    if not (declared.isascii() and declared.isdigit()):
        return False  # the server's business; the bytes are counted anyway
    return len(declared) > 18 or int(declared) > max_bytes  # int() refuses thousands of digits


async def _collect(chunks: AsyncIterator[bytes], max_bytes: int) -> bytes:
    received = bytearray()
    async for chunk in chunks:
        received += chunk
        if len(received) > max_bytes:
            raise BodyTooLarge(max_bytes)
    return bytes(received)


def parse_object(body: bytes) -> dict[str, object]:
    """
    Raises:
        InvalidRequest: with ``param`` "body"; nothing of the body appears in it.
    """
    try:
        value = _DECODER.decode(body.decode())
    except UnicodeDecodeError as error:
        _refuse(f"is not valid UTF-8 (byte {error.start})")
    except json.JSONDecodeError as error:
        _refuse(f"is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})")
    except RecursionError:
        _refuse(f"must be nested at most {MAX_DEPTH} deep")
    except ValueError:  # the limit on digits of an integer
        _refuse("holds a number that is too long")
    if not isinstance(value, dict):
        _refuse("must be a JSON object")
    members = cast("dict[str, object]", value)
    _check_depth(members)
    return members


def _check_depth(value: object) -> None:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            for child in _children(container)
            if isinstance(child, list | dict)
        ]
        if not level:
            return
    _refuse(f"must be nested at most {MAX_DEPTH} deep")


def _children(container: object) -> list[object]:
    if isinstance(container, dict):
        return list(cast("dict[str, object]", container).values())
    return cast("list[object]", container)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        _refuse("has an object with two members of one name")
    return members


def _no_constant(name: str) -> NoReturn:
    _refuse(f"holds {name}, which is not JSON")


def _refuse(reason: str) -> NoReturn:
    raise InvalidRequest(BODY, reason)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
