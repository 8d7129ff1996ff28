"""Which request headers mean something here, and which are refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deployments.gateway.refusals import BODY, NotAuthenticated
from freehold.errors import InvalidRequest
from tenancy.authentication import AuthFailure

if TYPE_CHECKING:
    from starlette.datastructures import Headers

REQUEST_ID = "x-request-id"
CLIENT_REQUEST_ID = "x-client-request-id"
API_KEY = "x-api-key"

_CONTROL = frozenset(
    {"x-request-disconnect-disabled", "x-request-timeout-seconds", "serve_multiplexed_model_id"}
)
_CONTROL_PREFIX = "x-serve-router-"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_VISIBLE = re.compile(r"[\x21-\x7e]{1,128}")


def refuse_control_headers(headers: Headers) -> None:
    """Headers that Ray Serve obeys before our code runs: a client has no business with them.

    With ``_`` for ``-`` too: some servers in front turn one into the other.

    Raises:
        InvalidRequest
    """
    for name in headers:
        dashed = name.replace("_", "-")
        if (
            dashed in _CONTROL
            or name in _CONTROL
            or dashed == "serve-multiplexed-model-id"
            or dashed.startswith(_CONTROL_PREFIX)
        ):
            raise InvalidRequest(BODY, f"the header {name[:64]!r} is not allowed")


def adopted_request_id(headers: Headers) -> str | None:
    """The id that a server in front gave the request, None when there is none.

    Raises:
        InvalidRequest: it would not survive a log line or a header.
    """
    request_id = headers.get(REQUEST_ID)
    if request_id is not None and _REQUEST_ID.fullmatch(request_id) is None:
        raise InvalidRequest(BODY, f"the header {REQUEST_ID!r} must match {_REQUEST_ID.pattern}")
    return request_id


def client_request_id(headers: Headers) -> str | None:
    """A client's own name for its request: echoed and logged, nothing else.

    Raises:
        InvalidRequest: not 1 to 128 visible ASCII characters.
    """
    client_id = headers.get(CLIENT_REQUEST_ID)
    if client_id is not None and _VISIBLE.fullmatch(client_id) is None:
        raise InvalidRequest(
            BODY, f"the header {CLIENT_REQUEST_ID!r} must be 1 to 128 visible ASCII characters"
        )
    return client_id


def presented_key(headers: Headers) -> str | None:
    """The API key of ``Authorization: Bearer`` or ``x-api-key``.

    Raises:
        NotAuthenticated: more than one, and they differ: which one counts would depend on who
            reads (a proxy's log, a quota, we).
    """
    keys = {
        *(_bearer(value) for value in headers.getlist("authorization")),
        *headers.getlist(API_KEY),
    }
    if len(keys) > 1:
        raise NotAuthenticated(AuthFailure.MALFORMED)
    return keys.pop() if keys else None


def _bearer(value: str) -> str:
    scheme, _, credentials = value.partition(" ")
    if scheme.lower() != "bearer":
        raise NotAuthenticated(AuthFailure.MALFORMED)
    return credentials.strip(" \t")  # HTTP's white space, not Unicode's
