from __future__ import annotations

import http.client

import httpx
import pytest

from deployments.bench.first_token import StreamClient, connect
from deployments.bench.target import Target
from deployments.bench.wire import RequestFailed
from freehold.secret import Secret
from tests.support.fake_openai import TEMPLATE_TOKENS, FakeOpenAI

KEY = "fh_secret"
TARGET = Target("http://fake/v1", Secret(KEY.encode()), "fake")
HELLO = [{"role": "user", "content": "x" * 160}]


def client_of(fake: FakeOpenAI) -> StreamClient:
    return StreamClient(TARGET, fake.clock, fake.connection())


def test_the_first_token_is_the_first_text_and_comes_with_the_stages() -> None:
    fake = FakeOpenAI(server_timing="hash;dur=1, engine;dur=4")
    client = client_of(fake)

    cold = client.ask("fake", HELLO, max_tokens=2)
    warm = client.ask("fake", HELLO, max_tokens=2)

    assert cold.ttft_s == pytest.approx((TEMPLATE_TOKENS + 40 + 2) / 1000)
    assert warm.ttft_s == pytest.approx(3 / 1000)
    assert cold.stages_s == pytest.approx({"hash": 0.001, "engine": 0.004})
    assert fake.authorizations == [f"Bearer {KEY}"] * 2
    assert fake.bodies[0]["stream"] is True
    assert fake.bodies[0]["max_tokens"] == 2


def test_a_stream_that_breaks_off_is_no_sample() -> None:
    fake = FakeOpenAI()
    fake.break_stream = True

    with pytest.raises(RequestFailed, match="the replica was lost"):
        client_of(fake).ask("fake", HELLO, max_tokens=2)


def test_a_refusal_is_told_without_the_key() -> None:
    fake = FakeOpenAI()
    fake.refuse_with = httpx.Response(503, text="too many")

    with pytest.raises(RequestFailed, match="503 too many") as caught:
        client_of(fake).ask("fake", HELLO, max_tokens=2)

    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("base_url", "kind", "port"),
    [
        ("http://h:81/v1", http.client.HTTPConnection, 81),
        ("https://h/v1", http.client.HTTPSConnection, 443),
    ],
)
def test_a_connection_goes_where_the_url_says(
    base_url: str, kind: type[http.client.HTTPConnection], port: int
) -> None:
    connection = connect(base_url)

    assert type(connection) is kind
    assert (connection.host, connection.port) == ("h", port)
