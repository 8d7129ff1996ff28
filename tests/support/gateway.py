"""A gateway with real keys, salts and a tokenizer in front of a fleet that a test scripts."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Self

import httpx
import uvicorn

from deployments.gateway.app import create_app
from deployments.gateway.ports import Readiness, RouteInfo
from deployments.gateway.services import GatewayLimits, GatewayServices
from deployments.gateway.tokenizer import PromptTokenizer
from freehold.protocol import (
    DEVICE,
    Delta,
    EngineTiming,
    FinishReason,
    ModelCard,
    PositionLogprobs,
    TokenLogprob,
    Usage,
)
from tenancy.admission import Admitted, Demand, OpenAdmission, Rejected
from tests.support.tenants import MemoryControlPlane
from tests.support.tiny_models import make_tokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from fastapi import FastAPI
    from starlette.types import Scope

    from deployments.gateway.ports import Fleet, RouteHint
    from freehold.protocol import GenerateRequest, RequestId
    from tenancy.admission import Lease
    from tenancy.principal import Principal
    from tenancy.usage import Outcome

MODEL = "tiny"


@cache
def tiny_tokenizer() -> PromptTokenizer:
    return PromptTokenizer(make_tokenizer())


def refusing_tokenizer(word: str) -> PromptTokenizer:
    """Of a model whose template raises an error for messages that hold ``word``."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = (
        "{% for message in messages %}"
        f"{{% if '{word}' in message['content'] %}}"
        "{{ raise_exception('I will not have that') }}"
        "{% endif %}{{ message['content'] }}{% endfor %}"
    )
    return PromptTokenizer(tokenizer)


def make_card(model: str = MODEL, **changes: int) -> ModelCard:
    return ModelCard(
        model=model,
        fingerprint="f" * 64,
        architecture="TinyForCausalLM",
        dtype="float32",
        block_size=changes.get("block_size", 16),
        num_blocks=changes.get("num_blocks", 64),
        max_model_len=changes.get("max_model_len", 512),
        vocab_size=changes.get("vocab_size", 323),
        eos_token_ids=(2,),
        attention_backend="fake",
    )


def says(
    *texts: str, cached: int = 0, finish_reason: FinishReason = FinishReason.STOP
) -> Callable[[GenerateRequest], AsyncGenerator[Delta]]:
    """A script: every choice gets one delta a text, then ends."""

    async def script(request: GenerateRequest) -> AsyncGenerator[Delta]:
        output = 0
        for position, text in enumerate(texts):
            for index in range(request.sampling.n):
                output += 1
                last = position == len(texts) - 1
                yield Delta(
                    index=index,
                    token_ids=(7,),
                    text=text,
                    usage=Usage(len(request.token_ids), {DEVICE: cached}, output),
                    logprobs=_logprobs(request, text),
                    finish_reason=finish_reason if last else None,
                    timing=EngineTiming(0.001, 0.002) if output == 1 else None,
                )

    return script


def _logprobs(request: GenerateRequest, text: str) -> tuple[PositionLogprobs, ...]:
    if request.sampling.logprobs is None:
        return ()
    chosen = TokenLogprob(7, text, text.encode(), -0.5)
    unlikely = TokenLogprob(8, "~", b"~", float("-inf"))
    return (PositionLogprobs(chosen, (chosen, unlikely)[: request.sampling.logprobs]),)


class ScriptedStream:
    def __init__(self, fleet: ScriptedFleet, request: GenerateRequest) -> None:
        self.route = RouteInfo("replica-1", 16, 0.05, "prefix")
        self._fleet = fleet
        self._request = request
        self._deltas = fleet.script(request)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        return await anext(self._deltas)

    async def aclose(self) -> None:
        await self._deltas.aclose()
        self._fleet.closed.append(self._request.request_id)


@dataclass
class ScriptedFleet:
    """Answers every request by ``script``, or refuses to open with ``refusal``."""

    script: Callable[[GenerateRequest], AsyncGenerator[Delta]] = field(
        default_factory=lambda: says("Hello", " world")
    )
    models: list[ModelCard] = field(default_factory=lambda: [make_card()])
    refusal: Exception | None = None
    readiness: Readiness = field(default_factory=lambda: Readiness(ready=True))
    opened: list[GenerateRequest] = field(default_factory=list["GenerateRequest"])
    hints: list[RouteHint] = field(default_factory=list["RouteHint"])
    closed: list[RequestId] = field(default_factory=list["RequestId"])

    def cards(self) -> Sequence[ModelCard]:
        return self.models

    def ready(self) -> Readiness:
        return self.readiness

    async def open(self, request: GenerateRequest, hint: RouteHint) -> ScriptedStream:
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise self.refusal
        self.opened.append(request)
        self.hints.append(hint)
        return ScriptedStream(self, request)


@dataclass
class RecordingAdmission:
    """Admits, unless told otherwise; remembers what was asked and how it was settled."""

    rejection: Rejected | None = None
    demands: list[Demand] = field(default_factory=list["Demand"])
    settled: list[tuple[Usage, Outcome]] = field(default_factory=list["tuple[Usage, Outcome]"])
    open: OpenAdmission = field(default_factory=OpenAdmission)

    async def admit(
        self, principal: Principal, request_id: RequestId, demand: Demand
    ) -> Admitted | Rejected:
        self.demands.append(demand)
        if self.rejection is not None:
            return self.rejection
        answer = await self.open.admit(principal, request_id, demand)
        assert isinstance(answer, Admitted)
        return Admitted(_RecordingLease(self, answer.lease))


class _RecordingLease:
    def __init__(self, admission: RecordingAdmission, lease: Lease) -> None:
        self._admission = admission
        self._lease = lease

    async def settle(self, usage: Usage, outcome: Outcome) -> None:
        await self._lease.settle(usage, outcome)
        self._admission.settled.append((usage, outcome))


class GatewayWorld:
    """Two tenants with a key each, a scripted fleet, and the application in front of it."""

    def __init__(
        self,
        limits: GatewayLimits | None = None,
        *,
        adopt_request_id: bool = False,
        tokenizer: PromptTokenizer | None = None,
        fleet: Fleet | None = None,
    ) -> None:
        self.plane = MemoryControlPlane()
        self.alice = self.plane.create_tenant("alice")
        self.bob = self.plane.create_tenant("bob")
        self.alice_key = self.plane.issue_key(self.alice.tenant_id).reveal()
        self.bob_key = self.plane.issue_key(self.bob.tenant_id).reveal()
        self.fleet = ScriptedFleet()
        self.admission = RecordingAdmission()
        self.services = GatewayServices(
            authenticator=self.plane.authenticator(),
            keyring=self.plane.keyring(),
            admission=self.admission,
            fleet=fleet or self.fleet,
            tokenizers={MODEL: tokenizer or tiny_tokenizer()},
            limits=limits or GatewayLimits(),
            clock=self.plane.clock,
            adopt_request_id=adopt_request_id,
        )
        self.app: FastAPI = create_app(self.services)

    def client(self, key: str | None = None, **headers: str) -> httpx.AsyncClient:
        """Straight into the application, without a socket; ``key`` is Alice's by default."""
        bearer = {"authorization": f"Bearer {self.alice_key if key is None else key}"}
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app),
            base_url="http://gateway",
            headers=({} if key == "" else bearer) | headers,
        )


def chat_scope(key: str, **headers: str) -> Scope:
    """Of a chat request that a test hands to the application itself."""
    path = "/v1/chat/completions"
    pairs = {"authorization": f"Bearer {key}", **headers}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in pairs.items()],
        "scheme": "http",
        "server": ("gateway", 80),
        "client": ("client", 1),
    }


@asynccontextmanager
async def listening(app: FastAPI) -> AsyncGenerator[str]:
    """Serve ``app`` on a free port of the loopback interface; yields the base URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task
