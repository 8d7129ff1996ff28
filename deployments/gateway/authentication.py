"""Whose request is this? Dependencies, so that an endpoint's signature states its authority."""

from typing import Annotated, cast

from fastapi import Depends, Request

from deployments.gateway.context import RequestContext, context_of
from deployments.gateway.refusals import NotAuthenticated, ScopeMissing
from deployments.gateway.request_headers import presented_key
from deployments.gateway.services import GatewayServices
from tenancy.authentication import Authenticated
from tenancy.principal import Principal, Scope

# FastAPI evaluates these signatures, so annotations here are no strings. The dependencies are
# coroutines because FastAPI runs plain functions in a thread: 100 µs for nothing.


async def _services(request: Request) -> GatewayServices:  # see above
    return cast("GatewayServices", request.app.state.services)


async def _context(request: Request) -> RequestContext:  # see above
    return context_of(request.scope)


Services = Annotated[GatewayServices, Depends(_services)]
Context = Annotated[RequestContext, Depends(_context)]


async def _authenticated(  # see above
    request: Request, services: Services, context: Context
) -> Principal:
    """
    Raises:
        NotAuthenticated: for any doubt.
    """
    context.timer.skip()
    answer = services.authenticator.authenticate(presented_key(request.headers))
    context.timer.lap("authenticate")
    if not isinstance(answer, Authenticated):
        context.facts["auth_failure"] = answer.reason.value
        raise NotAuthenticated(answer.reason)
    principal = answer.principal
    context.facts["tenant_id"] = principal.tenant_id
    context.facts["key_id"] = principal.key_id
    return principal


AnyPrincipal = Annotated[Principal, Depends(_authenticated)]


async def _may_infer(principal: AnyPrincipal) -> Principal:  # see above
    """
    Raises:
        ScopeMissing
    """
    if Scope.INFERENCE not in principal.scopes:
        raise ScopeMissing(Scope.INFERENCE)
    return principal


InferencePrincipal = Annotated[Principal, Depends(_may_infer)]
