"""What the operator's own commands ask of a running service, on a path that no tenant can use.

The token is a file that only the operator's account reads (``StateFolder.operator_token``). An
API key is no such token, whatever its scopes, and the path answers 404 to everybody else: it says
not even that it exists. Fails closed.
"""

from __future__ import annotations

import hmac
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Header, HTTPException
from fastapi.responses import JSONResponse

from deployments.serving.status import STATUS_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deployments.serving.status import ModelStatus
    from freehold.secret import Secret

_ANY_METHOD = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"]
"""A 405 for some of them would say that the path exists."""


def operator_router(token: Secret, status: Callable[[], Sequence[ModelStatus]]) -> APIRouter:
    expected = b"Bearer " + token.reveal()

    def operator(authorization: Annotated[str, Header()] = "") -> None:
        if not hmac.compare_digest(authorization.encode(), expected):
            raise HTTPException(404)

    router = APIRouter(include_in_schema=False)

    @router.api_route(STATUS_PATH, methods=_ANY_METHOD, dependencies=[Depends(operator)])
    async def show() -> JSONResponse:
        return JSONResponse({"models": [asdict(model) for model in status()]})

    return router
