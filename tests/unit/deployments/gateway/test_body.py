from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from deployments.gateway.body import MAX_DEPTH, parse_object, read_body
from deployments.gateway.refusals import BodyTooLarge, BodyTooSlow
from freehold.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


async def chunks(*parts: bytes) -> AsyncGenerator[bytes]:
    for part in parts:
        yield part


async def read(*parts: bytes, declared: str | None = None, max_bytes: int = 10) -> bytes:
    return await read_body(chunks(*parts), declared, max_bytes=max_bytes, timeout_s=60)


async def test_joins_what_comes_in_pieces() -> None:
    assert await read(b"hel", b"", b"lo") == b"hello"


async def test_exactly_the_limit_fits() -> None:
    assert await read(b"12345", b"67890", declared="10") == b"1234567890"


@pytest.mark.parametrize("declared", ["11", "9" * 5000])
async def test_a_body_declared_too_large_is_not_read(declared: str) -> None:
    with pytest.raises(BodyTooLarge):
        await read(b"x", declared=declared)


@pytest.mark.parametrize("declared", [None, "1", "-1", "ten", "²"])
async def test_a_body_that_grows_too_large_is_cut_off(declared: str | None) -> None:
    with pytest.raises(BodyTooLarge):
        await read(b"123456", b"7890!", declared=declared)


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def never() -> AsyncGenerator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    with pytest.raises(BodyTooSlow):
        await read_body(never(), None, max_bytes=10, timeout_s=0.01)


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def test_depth_is_bounded() -> None:
    assert parse_object(nested(MAX_DEPTH))

    with pytest.raises(InvalidRequest, match="nested"):
        parse_object(nested(MAX_DEPTH + 1))


def test_brackets_in_strings_do_not_count() -> None:
    assert parse_object(b'{"a": "' + b"[" * 1000 + b'"}') == {"a": "[" * 1000}


def test_a_refusal_does_not_repeat_the_body() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_object(b'{"password": "hunter2" oops}')

    assert "hunter2" not in str(caught.value)
