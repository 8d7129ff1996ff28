from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from deployments.gateway.refusals import NotAuthenticated
from deployments.gateway.request_headers import (
    adopted_request_id,
    client_request_id,
    presented_key,
    refuse_control_headers,
)
from freehold.errors import InvalidRequest
from tenancy.authentication import AuthFailure


def headers(*pairs: tuple[str, str]) -> Headers:
    return Headers(raw=[(name.lower().encode(), value.encode("latin-1")) for name, value in pairs])


@pytest.mark.parametrize(
    "name",
    [
        "X-Request-Disconnect-Disabled",
        "x-request-timeout-seconds",
        "x_request_timeout_seconds",
        "serve_multiplexed_model_id",
        "serve-multiplexed-model-id",
        "x-serve-router-anything",
    ],
)
def test_headers_that_steer_serve_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="not allowed"):
        refuse_control_headers(headers(("accept", "*/*"), (name, "1")))


def test_ordinary_headers_pass() -> None:
    refuse_control_headers(headers(("accept", "*/*"), ("x-stainless-lang", "python")))


@pytest.mark.parametrize(
    ("pairs", "key"),
    [
        ((), None),
        ((("authorization", "Bearer k"),), "k"),
        ((("authorization", "bEaReR  k "),), "k"),
        ((("authorization", "Bearer \xa0k\x85"),), "\xa0k\x85"),  # not a key's characters
        ((("x-api-key", "k"),), "k"),
        ((("x-api-key", "k"), ("authorization", "Bearer k")), "k"),
    ],
)
def test_finds_the_key(pairs: tuple[tuple[str, str], ...], key: str | None) -> None:
    assert presented_key(headers(*pairs)) == key


@pytest.mark.parametrize(
    "pairs",
    [
        (("x-api-key", "k"), ("authorization", "Bearer other")),
        (("authorization", "Bearer a"), ("authorization", "Bearer b")),
        (("x-api-key", "a"), ("x-api-key", "b")),
        (("authorization", "Basic abc"),),
        (("authorization", "Basic abc"), ("x-api-key", "k")),
    ],
)
def test_doubt_authenticates_nobody(pairs: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        presented_key(headers(*pairs))

    assert caught.value.reason is AuthFailure.MALFORMED


@pytest.mark.parametrize("value", ["", "two words", "x" * 129, "é"])
def test_a_clients_own_id_must_be_short_and_visible(value: str) -> None:
    with pytest.raises(InvalidRequest):
        client_request_id(headers(("x-client-request-id", value)))


@pytest.mark.parametrize("value", ["", "a b", 'a"b', "x" * 129])
def test_an_adopted_id_must_survive_a_log_line(value: str) -> None:
    with pytest.raises(InvalidRequest):
        adopted_request_id(headers(("x-request-id", value)))
