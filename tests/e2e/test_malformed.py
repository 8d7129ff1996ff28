"""Bytes that no SDK would send: each gets a 4xx of OpenAI's shape, and the service goes on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.malformed import MALFORMED

if TYPE_CHECKING:
    from collections.abc import Generator

    from openai import OpenAI

    from tests.support.malformed import Malformed
    from tests.support.service import RunningService

pytestmark = pytest.mark.service

CHAT, COMPLETIONS = "/chat/completions", "/completions"
FINE_HERE = {
    "too large",
    "refused by the template",
    "prompt longer than the context",
    "the second is too long",
    "prompt and output too long",
}
"""Refused only by the smaller limits and the other template of the table's own service."""


@pytest.fixture
def http(service: RunningService) -> Generator[httpx.Client]:
    with httpx.Client(
        base_url=service.base_url,
        headers={
            "authorization": f"Bearer {service.tenants[0].api_key}",
            "content-type": "application/json",
        },
        timeout=60,
    ) as client:
        yield client


@pytest.fixture(autouse=True)
def still_answers(acme: OpenAI, service: RunningService) -> Generator[None]:
    yield
    assert acme.completions.create(model=service.model, prompt="ok", max_tokens=1).choices


def error_of(response: httpx.Response) -> dict[str, Any]:
    assert 400 <= response.status_code < 500, response.text
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert isinstance(error["code"], str)
    return error


@pytest.mark.parametrize(
    "case", [c for c in MALFORMED if c.name not in FINE_HERE], ids=lambda case: case.name
)
def test_a_request_of_the_table(http: httpx.Client, case: Malformed) -> None:
    response = http.post(case.path.removeprefix("/v1"), content=case.body)

    error = error_of(response)
    assert (response.status_code, error["param"]) == (case.status, case.param)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"12",
        b'{"model": NaN}',
        b'{"model": "a", "model": "b"}',
        b'{"model": "\xff\xfe"}',
        b'{"model": "\\ud800"}',
        b"\x00\x01\x02",
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"9" * 100_000,
    ],
    ids=lambda body: repr(body[:16]),
)
def test_a_body_that_is_no_request(http: httpx.Client, path: str, body: bytes) -> None:
    error = error_of(http.post(path, content=body))

    assert error["param"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_an_oversize_body_is_cut_off(http: httpx.Client, path: str) -> None:
    response = http.post(path, content=b'{"model":"' + b"x" * (8 << 20) + b'"}')

    assert response.status_code == 413
    assert error_of(response)["param"] == "body"


def test_a_body_without_a_length_is_counted_too(http: httpx.Client) -> None:
    response = http.post(CHAT, content=(b"x" * (1 << 20) for _ in range(8)))

    assert response.status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", CHAT, 405),
        ("PUT", COMPLETIONS, 405),
        ("POST", "/models", 405),
        ("POST", "/embeddings", 404),
        ("GET", "/../admin", 404),
        ("GET", "/models/none", 404),
    ],
)
def test_a_route_that_is_not_there(http: httpx.Client, method: str, path: str, status: int) -> None:
    response = http.request(method, path)

    assert response.status_code == status
    error_of(response)


@pytest.mark.parametrize(
    "header",
    [
        "x-request-disconnect-disabled",
        "x-request-timeout-seconds",
        "serve_multiplexed_model_id",
        "x-serve-router-anything",
    ],
)
def test_the_servers_own_control_headers_are_refused(
    http: httpx.Client, service: RunningService, header: str
) -> None:
    body = json.dumps({"model": service.model, "prompt": "x", "max_tokens": 1})

    error_of(http.post(COMPLETIONS, content=body, headers={header: "1"}))


@pytest.mark.parametrize("authorization", ["", "Bearer", "Basic eDp5", "bearer x y"])
def test_credentials_of_no_shape(service: RunningService, authorization: str) -> None:
    response = httpx.get(f"{service.base_url}/models", headers={"authorization": authorization})

    assert response.status_code == 401
    error_of(response)


def test_a_template_that_refuses_its_messages(http: httpx.Client, service: RunningService) -> None:
    """The chat template is the model's own program; what it raises is the caller's fault."""
    messages = [{"role": "tool", "content": "x"}]
    body = json.dumps({"model": service.model, "messages": messages})

    assert str(error_of(http.post(CHAT, content=body))["param"]).startswith("messages")
