"""The one table from errors to HTTP: status, OpenAI's ``type`` and ``code``, headers.

An error that is not in it is a bug of ours: 500, and nothing of it is told to the client.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deployments.gateway.ports import ReplicaLost
from deployments.gateway.refusals import (
    BODY,
    BodyTooLarge,
    BodyTooSlow,
    ContextLengthExceeded,
    GenerationAborted,
    MethodNotAllowed,
    ModelNotFound,
    ModelNotReady,
    NotAuthenticated,
    PathNotFound,
    QuotaExceeded,
    ScopeMissing,
    TimeLimitExceeded,
    UnknownParameter,
    UnsupportedParameter,
)
from freehold.errors import (
    CapacityExceeded,
    EngineDead,
    FreeholdError,
    InvalidRequest,
    StepFailed,
)
from tenancy.authentication import AuthFailure
from tenancy.keyring import UnknownAccount

if TYPE_CHECKING:
    from collections.abc import Mapping

INVALID = "invalid_request_error"
SERVER = "server_error"
RETRY_SOON_S = 1.0
"""For a replica that is being replaced, or an authority that is refreshing its snapshot."""


@dataclass(frozen=True, slots=True)
class Verdict:
    status: int
    type: str
    code: str


@dataclass(frozen=True, slots=True)
class WireError:
    """An error as a client sees it."""

    verdict: Verdict
    message: str
    param: str | None
    headers: Mapping[str, str]

    def body(self) -> bytes:
        error = {
            "message": self.message,
            "type": self.verdict.type,
            "param": self.param,
            "code": self.verdict.code,
        }
        return json.dumps({"error": error}, ensure_ascii=False, separators=(",", ":")).encode()


INTERNAL = Verdict(500, SERVER, "internal_error")
_TABLE: Mapping[type[FreeholdError], Verdict] = {
    InvalidRequest: Verdict(400, INVALID, "invalid_value"),
    UnsupportedParameter: Verdict(400, INVALID, "unsupported_parameter"),
    UnknownParameter: Verdict(400, INVALID, "unknown_parameter"),
    ContextLengthExceeded: Verdict(400, INVALID, "context_length_exceeded"),
    ModelNotFound: Verdict(404, INVALID, "model_not_found"),
    ModelNotReady: Verdict(503, SERVER, "model_not_ready"),
    BodyTooLarge: Verdict(413, INVALID, "body_too_large"),
    BodyTooSlow: Verdict(408, INVALID, "body_too_slow"),
    NotAuthenticated: Verdict(401, INVALID, "invalid_api_key"),
    ScopeMissing: Verdict(403, INVALID, "insufficient_scope"),
    QuotaExceeded: Verdict(429, "rate_limit_error", "rate_limit_exceeded"),
    PathNotFound: Verdict(404, INVALID, "unknown_url"),
    MethodNotAllowed: Verdict(405, INVALID, "method_not_allowed"),
    TimeLimitExceeded: Verdict(504, SERVER, "timeout"),
    GenerationAborted: Verdict(503, SERVER, "generation_aborted"),
    CapacityExceeded: Verdict(503, SERVER, "capacity_exceeded"),
    ReplicaLost: Verdict(503, SERVER, "replica_lost"),
    EngineDead: Verdict(503, SERVER, "engine_dead"),
    StepFailed: Verdict(500, SERVER, "step_failed"),
    UnknownAccount: Verdict(503, SERVER, "tenant_unavailable"),
}
_SUSPENDED = Verdict(403, INVALID, "tenant_suspended")
_NO_AUTHORITY = Verdict(503, SERVER, "authentication_unavailable")

_AUTHENTICATION_MESSAGES: Mapping[AuthFailure, str] = {
    AuthFailure.MISSING: "no API key was sent; use the header 'Authorization: Bearer KEY'",
    AuthFailure.EXPIRED: "this API key has expired",
    AuthFailure.REVOKED: "this API key was revoked",
    AuthFailure.SUSPENDED: "the tenant of this API key is suspended",
    AuthFailure.UNAVAILABLE: "API keys cannot be checked at the moment",
}
_INCORRECT_KEY = "incorrect API key"


def verdicts() -> tuple[Verdict, ...]:
    """All that a client may see, for the documentation's test."""
    return (*_TABLE.values(), _SUSPENDED, _NO_AUTHORITY, INTERNAL)


def to_wire(error: Exception) -> WireError:
    verdict = _verdict(error)
    if verdict is INTERNAL:
        return WireError(INTERNAL, "the service failed; please report the request id", None, {})
    return WireError(verdict, _message(error), _param(error), _headers(error, verdict))


def _verdict(error: Exception) -> Verdict:
    if isinstance(error, NotAuthenticated):
        if error.reason is AuthFailure.SUSPENDED:
            return _SUSPENDED
        if error.reason is AuthFailure.UNAVAILABLE:
            return _NO_AUTHORITY
    for base in type(error).__mro__:
        if issubclass(base, FreeholdError) and base in _TABLE:
            return _TABLE[base]
    return INTERNAL


def _message(error: Exception) -> str:
    if isinstance(error, NotAuthenticated):
        return _AUTHENTICATION_MESSAGES.get(error.reason, _INCORRECT_KEY)
    return str(error)


def _param(error: Exception) -> str | None:
    if isinstance(error, InvalidRequest):
        return error.param
    return BODY if isinstance(error, BodyTooLarge | BodyTooSlow) else None


def _headers(error: Exception, verdict: Verdict) -> dict[str, str]:
    headers: dict[str, str] = {}
    if verdict.status == 401:
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, MethodNotAllowed):
        headers["allow"] = error.allowed
    retry_after_s = _retry_after_s(error, verdict)
    if retry_after_s is not None:
        headers["retry-after"] = str(math.ceil(retry_after_s))
        headers["retry-after-ms"] = str(math.ceil(retry_after_s * 1000))
    return headers


def _retry_after_s(error: Exception, verdict: Verdict) -> float | None:
    if isinstance(error, CapacityExceeded | QuotaExceeded):
        return error.retry_after_s
    return RETRY_SOON_S if verdict.status == 503 else None
