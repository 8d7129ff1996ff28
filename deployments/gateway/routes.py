"""The paths. An endpoint's signature states whose authority it needs; its body is four steps."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match

from deployments.gateway.answer import Answer
from deployments.gateway.authentication import AnyPrincipal, Context, InferencePrincipal, Services
from deployments.gateway.body import parse_object, read_body
from deployments.gateway.chat_wire import ChatWire
from deployments.gateway.completion_wire import CompletionWire
from deployments.gateway.context import RequestContext
from deployments.gateway.disconnect import ClientGone
from deployments.gateway.prepare import Preparation, find_model
from deployments.gateway.refusals import MethodNotAllowed, PathNotFound
from deployments.gateway.responses import json_response
from deployments.gateway.schema import SamplingFields, parse_chat, parse_completion
from deployments.gateway.services import GatewayServices
from deployments.gateway.wire import AnswerHead
from freehold.protocol import ModelCard

router = APIRouter(redirect_slashes=False)
_ANY_METHOD = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"]


async def _json_body(
    request: Request, principal: InferencePrincipal, services: Services, context: Context
) -> dict[str, object]:
    """Read only after the caller is known: nobody else may make us read."""
    limits = services.limits
    context.timer.skip()
    try:
        body = await read_body(
            request.stream(),
            request.headers.get("content-length"),
            max_bytes=limits.max_body_bytes,
            timeout_s=limits.body_timeout_s,
        )
    except ClientDisconnect:
        raise ClientGone from None
    context.timer.lap("read")
    return parse_object(body)


JsonBody = Annotated[dict[str, object], Depends(_json_body)]


@router.post("/v1/chat/completions")
async def chat_completions(
    body: JsonBody, principal: InferencePrincipal, services: Services, context: Context
) -> Response:
    wire = parse_chat(body)
    _note(wire, context)
    job = await Preparation(services, principal, context).chat(wire)
    answer = ChatWire(
        _head("chatcmpl", job.card, services, context),
        logprobs=wire.logprobs,
        include_usage=_include_usage(wire),
    )
    return Answer(services, principal, context, job, answer, stream=wire.stream)


@router.post("/v1/completions")
async def completions(
    body: JsonBody, principal: InferencePrincipal, services: Services, context: Context
) -> Response:
    wire = parse_completion(body)
    _note(wire, context)
    job = await Preparation(services, principal, context).completion(wire)
    answer = CompletionWire(
        _head("cmpl", job.card, services, context),
        n=wire.n,
        logprobs=wire.logprobs is not None,
        include_usage=_include_usage(wire),
        echoes=job.echoes,
    )
    return Answer(services, principal, context, job, answer, stream=wire.stream)


@router.get("/v1/models")
async def list_models(principal: InferencePrincipal, services: Services) -> Response:
    models = [_model(card) for card in services.fleet.cards() if card.model in services.tokenizers]
    return json_response({"object": "list", "data": models})


@router.get("/v1/models/{model:path}")
async def retrieve_model(model: str, principal: InferencePrincipal, services: Services) -> Response:
    card, _ = find_model(services, model)
    return json_response(_model(card))


@router.api_route("/v1", methods=_ANY_METHOD)
@router.api_route("/v1/{path:path}", methods=_ANY_METHOD)
async def no_such_path(request: Request, principal: AnyPrincipal) -> Response:
    """What exists is told to those with a key only."""
    for route in router.routes:
        if isinstance(route, APIRoute) and route.matches(request.scope)[0] is Match.PARTIAL:
            raise MethodNotAllowed(request.method, ", ".join(sorted(route.methods or ())))
    raise PathNotFound(request.method, request.url.path[:128])


@router.get("/health")
async def health() -> Response:
    """The process lives."""
    return json_response({"status": "live"})


@router.get("/ready")
async def ready(services: Services) -> Response:
    """A model is loaded and every pool's invariant holds."""
    readiness = services.fleet.ready()
    if readiness.ready:
        return json_response({"status": "ready"})
    return json_response({"status": "not ready", "reasons": list(readiness.reasons)}, 503)


def _note(wire: SamplingFields, context: RequestContext) -> None:
    context.facts.update(model=wire.model, stream=wire.stream, cache=wire.cache.value)


def _include_usage(wire: SamplingFields) -> bool:
    return wire.stream_options is not None and wire.stream_options.include_usage


def _head(
    kind: str, card: ModelCard, services: GatewayServices, context: RequestContext
) -> AnswerHead:
    created_s = int(services.clock.now().timestamp())
    return AnswerHead(f"{kind}-{context.request_id}", created_s, card.model, card.fingerprint)


def _model(card: ModelCard) -> dict[str, object]:
    """``created`` is when the model was made, which nobody knows; clients want a number."""
    return {"id": card.model, "object": "model", "created": 0, "owned_by": "freehold"}
