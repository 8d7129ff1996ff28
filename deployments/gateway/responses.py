"""Small JSON answers: errors, models, health."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from deployments.gateway.errors import WireError

NO_STORE = {"cache-control": "no-store"}
"""No answer of this service may be kept by a cache between tenants."""
JSON = "application/json"


def json_response(value: object, status: int = 200) -> Response:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, headers=NO_STORE, media_type=JSON)


def error_response(error: WireError) -> Response:
    headers = {**NO_STORE, **error.headers}
    return Response(error.body(), error.verdict.status, headers=headers, media_type=JSON)
