"""The gateway's application: routes, edge, and nothing that FastAPI would add by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from deployments.gateway.edge import Edge
from deployments.gateway.errors import INVALID, Verdict, WireError
from deployments.gateway.responses import error_response
from deployments.gateway.routes import router

if TYPE_CHECKING:
    from fastapi import Request
    from starlette.responses import Response

    from deployments.gateway.services import GatewayServices


def create_app(services: GatewayServices) -> FastAPI:
    """No documentation endpoints: they would tell the surface to anyone."""
    app = FastAPI(
        title="Freehold",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    app.include_router(router)
    app.add_exception_handler(HTTPException, _framework_refusal)
    app.add_middleware(Edge, clock=services.clock, adopt_request_id=services.adopt_request_id)
    return app


async def _framework_refusal(request: Request, error: Exception) -> Response:  # its type
    """Unknown paths and methods outside /v1, in OpenAI's shape."""
    refusal = cast("HTTPException", error)
    code = "method_not_allowed" if refusal.status_code == 405 else "unknown_url"
    verdict = Verdict(refusal.status_code, INVALID, code)
    return error_response(WireError(verdict, refusal.detail, None, refusal.headers or {}))
