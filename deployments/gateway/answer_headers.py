"""The headers of a generated answer: what it is, where its time went, and its route for admins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deployments.gateway.responses import NO_STORE
from tenancy.principal import Scope

if TYPE_CHECKING:
    from deployments.gateway.context import RequestContext
    from deployments.gateway.ports import RouteInfo
    from tenancy.principal import Principal

ROUTE = "x-freehold-route"


def answer_headers(
    content_type: str, context: RequestContext, principal: Principal, route: RouteInfo | None
) -> dict[str, str]:
    headers = {
        **NO_STORE,
        "content-type": content_type,
        "server-timing": context.timer.header(),
    }
    if route is not None and Scope.ADMIN in principal.scopes:
        headers[ROUTE] = _explained(route)
    return headers


def _explained(route: RouteInfo) -> str:
    predicted_ms = route.predicted_ttft_s * 1000
    return (
        f"replica={route.replica_id}; hit_tokens={route.hit_tokens}; "
        f"predicted_ms={predicted_ms:.1f}; reason={route.reason}"
    )
