from __future__ import annotations

import json

import pytest

from deployments.gateway.errors import to_wire
from deployments.gateway.ports import ReplicaLost
from deployments.gateway.refusals import (
    BodyTooLarge,
    NotAuthenticated,
    QuotaExceeded,
    UnsupportedParameter,
)
from freehold.errors import CapacityExceeded, FreeholdError, InvalidRequest
from tenancy.authentication import AuthFailure


def test_a_body_has_openais_members() -> None:
    error = to_wire(InvalidRequest("top_p", "must be less"))

    assert json.loads(error.body()) == {
        "error": {
            "message": "top_p: must be less",
            "type": "invalid_request_error",
            "param": "top_p",
            "code": "invalid_value",
        }
    }


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UnsupportedParameter("tools", "no"), 400, "unsupported_parameter"),
        (BodyTooLarge(5), 413, "body_too_large"),
        (NotAuthenticated(AuthFailure.UNKNOWN), 401, "invalid_api_key"),
        (NotAuthenticated(AuthFailure.SUSPENDED), 403, "tenant_suspended"),
        (NotAuthenticated(AuthFailure.UNAVAILABLE), 503, "authentication_unavailable"),
        (QuotaExceeded("requests per minute", 2.5), 429, "rate_limit_exceeded"),
        (CapacityExceeded("the queue", 3.0), 503, "capacity_exceeded"),
        (ReplicaLost("it died"), 503, "replica_lost"),
    ],
)
def test_the_table(error: FreeholdError, status: int, code: str) -> None:
    verdict = to_wire(error).verdict

    assert (verdict.status, verdict.code) == (status, code)


def test_who_may_come_back_is_told_when() -> None:
    assert to_wire(CapacityExceeded("the queue", 2.5)).headers == {
        "retry-after": "3",
        "retry-after-ms": "2500",
    }
    assert "retry-after" not in to_wire(QuotaExceeded("too large", None)).headers


def test_a_401_says_how_to_authenticate() -> None:
    assert to_wire(NotAuthenticated(AuthFailure.MISSING)).headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("error", [RuntimeError("prompt: hello"), FreeholdError("secret")])
def test_of_a_bug_nothing_is_told(error: Exception) -> None:
    wire = to_wire(error)

    assert wire.verdict.status == 500
    assert str(error) not in wire.message


def test_unknown_and_malformed_keys_look_the_same() -> None:
    unknown = to_wire(NotAuthenticated(AuthFailure.UNKNOWN))

    assert to_wire(NotAuthenticated(AuthFailure.MALFORMED)) == unknown
