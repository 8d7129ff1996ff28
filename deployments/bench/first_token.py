"""When a stream's first text comes, as seen by a client that costs next to nothing itself.

On ``http.client``: what a request costs here is counted as the service's, and that is a tenth of
a millisecond instead of the two that a full-blown client takes. One request at a time.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from deployments.bench import wire
from deployments.bench.client import CHAT_PATH, TIMEOUT_S
from deployments.bench.server_timing import parse_server_timing
from deployments.bench.wire import RequestFailed
from freehold.protocol import CacheMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deployments.bench.target import Target


@dataclass(frozen=True, slots=True)
class FirstToken:
    """When the first text came, and what the service says each stage took until then."""

    ttft_s: float
    stages_s: Mapping[str, float]


class FirstTokens(Protocol):
    def ask(
        self, model: str, messages: Sequence[Mapping[str, str]], *, max_tokens: int
    ) -> FirstToken:
        """Blocks until the stream has ended.

        Raises:
            RequestFailed: the stream was refused, broke off, or had no text.
        """
        ...


def connect(base_url: str) -> http.client.HTTPConnection:
    url = urlsplit(base_url)
    make = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    return make(url.hostname or "", url.port, timeout=TIMEOUT_S)


class StreamClient:
    """One connection, open until ``close``. The clock stops at the first chunk with text."""

    def __init__(
        self,
        target: Target,
        clock: Callable[[], float],
        connection: http.client.HTTPConnection | None = None,
    ) -> None:
        self._path = urlsplit(target.base_url).path + CHAT_PATH
        self._headers = {
            "authorization": f"Bearer {target.api_key.reveal().decode()}",
            "content-type": "application/json",
        }
        self._clock = clock
        self._connection = connection or connect(target.base_url)

    def ask(
        self, model: str, messages: Sequence[Mapping[str, str]], *, max_tokens: int
    ) -> FirstToken:
        prompt = {"messages": messages, "stream": True}
        body = json.dumps(wire.request_body(model, prompt, max_tokens, CacheMode.ON)).encode()
        try:
            started = self._clock()
            self._connection.request("POST", self._path, body, self._headers)
            response = self._connection.getresponse()
            if response.status != http.client.OK:
                reason = f"{response.status} {response.read().decode(errors='replace')[:500]}"
                raise RequestFailed(CHAT_PATH, reason)
            ttft_s = self._read(response) - started
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise RequestFailed(CHAT_PATH, f"{type(error).__name__}: {error}") from error
        return FirstToken(ttft_s, parse_server_timing(response.headers.get("server-timing", "")))

    def close(self) -> None:
        self._connection.close()

    def _read(self, response: http.client.HTTPResponse) -> float:
        """To the end; returns when the first text was there."""
        first_s: float | None = None
        for event in _events(response):
            now_s = self._clock()
            chunk = wire.parse(CHAT_PATH, wire.Chunk, event)
            if chunk.error is not None:
                self._connection.close()
                raise RequestFailed(CHAT_PATH, chunk.error.message)
            if first_s is None and chunk.carries_text:
                first_s = now_s
        if first_s is None:
            raise RequestFailed(CHAT_PATH, "the stream ended without any text")
        return first_s


def _events(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The payload of every server-sent event but the closing ``[DONE]``."""
    for line in response:
        field, _, data = line.strip().partition(b":")
        if field == b"data" and data.strip() != b"[DONE]":
            yield data
