"""From a checked wire request to engine requests: model, tokens and keys, sampling.

Nothing here waits for anything but the thread that long prompts are tokenized in.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from deployments.gateway.messages import parse_messages
from deployments.gateway.naming import Naming, key_path
from deployments.gateway.ports import RouteHint
from deployments.gateway.prompts import parse_prompts
from deployments.gateway.refusals import ModelNotFound, ModelNotReady
from deployments.gateway.sampling import (
    COMPLETION_MAX_TOKENS,
    chat_logprobs,
    chat_max_tokens,
    completion_logprobs,
    fit_output,
    sampling_params,
)
from freehold.errors import InvalidRequest
from freehold.protocol import GenerateRequest, RequestId
from tenancy.admission import Demand

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deployments.gateway.context import RequestContext
    from deployments.gateway.naming import NamedTokens
    from deployments.gateway.schema import ChatRequest, CompletionRequest, SamplingFields
    from deployments.gateway.services import GatewayLimits, GatewayServices
    from deployments.gateway.tokenizer import PromptTokenizer
    from freehold.protocol import ModelCard, SamplingParams
    from tenancy.principal import Principal

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Job:
    """All that is left to do: admit, generate, answer."""

    card: ModelCard
    requests: tuple[GenerateRequest, ...]
    """One a prompt."""
    hint: RouteHint
    prompt_field: str
    """The wire field that the prompts came from, for what an engine says about their tokens."""
    echoes: tuple[str, ...] = ()
    """The prompts as text, when the client wants them back."""

    @property
    def num_choices(self) -> int:
        return sum(request.sampling.n for request in self.requests)

    @property
    def demand(self) -> Demand:
        return Demand(
            model=self.card.model,
            prompt_tokens=sum(len(request.token_ids) for request in self.requests),
            max_output_tokens=sum(
                request.sampling.n * request.sampling.max_tokens for request in self.requests
            ),
        )


class Preparation:
    """Of one request: ``chat`` or ``completion`` is called once."""

    def __init__(
        self, services: GatewayServices, principal: Principal, context: RequestContext
    ) -> None:
        self._services = services
        self._limits = services.limits
        self._principal = principal
        self._context = context

    async def chat(self, wire: ChatRequest) -> Job:
        """
        Raises:
            InvalidRequest, ModelNotReady
        """
        naming = self._naming(wire)
        self._check_choices(wire.n, num_prompts=1)
        messages = parse_messages(wire.messages)
        logprobs, wanted = chat_logprobs(wire), chat_max_tokens(wire)
        self._context.timer.lap("validate")

        num_chars = sum(len(message["content"]) for message in messages)
        tokens = await self._compute(num_chars, lambda: naming.chat(messages))
        max_tokens = fit_output(
            len(tokens.token_ids), wanted, self._limits.default_max_tokens, naming.card
        )
        sampling = sampling_params(wire, max_tokens=max_tokens, logprobs=logprobs, card=naming.card)
        return self._job(naming.card, wire, "messages", [(tokens, sampling)])

    async def completion(self, wire: CompletionRequest) -> Job:
        """
        Raises:
            InvalidRequest, ModelNotReady
        """
        naming = self._naming(wire)
        prompts = parse_prompts(wire.prompt, max_prompts=self._limits.max_prompts)
        self._check_choices(wire.n, len(prompts))
        logprobs, wanted = completion_logprobs(wire), ("max_tokens", wire.max_tokens)
        self._context.timer.lap("validate")

        num_chars = sum(len(prompt.value) for prompt in prompts)
        named = await self._compute(num_chars, lambda: [naming.prompt(p) for p in prompts])
        rows: list[tuple[NamedTokens, SamplingParams]] = []
        for tokens in named:
            max_tokens = fit_output(
                len(tokens.token_ids), wanted, COMPLETION_MAX_TOKENS, naming.card
            )
            sampling = sampling_params(
                wire, max_tokens=max_tokens, logprobs=logprobs, card=naming.card
            )
            rows.append((tokens, sampling))
        echoes = [naming.text(prompt) for prompt in prompts] if wire.echo else []
        return self._job(naming.card, wire, "prompt", rows, tuple(echoes))

    def _naming(self, wire: SamplingFields) -> Naming:
        card, tokenizer = find_model(self._services, wire.model)
        salt = None if wire.cache_salt is None else wire.cache_salt.get_secret_value()
        path = key_path(self._services.keyring, self._principal.account_id, salt)
        most = max_prompt_tokens(card, self._limits)
        return Naming(card, tokenizer, path, most, self._context.timer)

    def _check_choices(self, n: int, num_prompts: int) -> None:
        if n > self._limits.max_choices:
            raise InvalidRequest(param="n", reason=f"must be at most {self._limits.max_choices}")
        most = max(self._limits.max_choices, self._limits.max_prompts)
        if n * num_prompts > most:
            raise InvalidRequest(param="n", reason=f"times the prompts must be at most {most}")

    async def _compute(self, num_chars: int, work: Callable[[], _T]) -> _T:
        if num_chars <= self._limits.max_inline_chars:
            return work()
        return await asyncio.to_thread(work)

    def _job(
        self,
        card: ModelCard,
        wire: SamplingFields,
        prompt_field: str,
        rows: Sequence[tuple[NamedTokens, SamplingParams]],
        echoes: tuple[str, ...] = (),
    ) -> Job:
        requests = tuple(
            GenerateRequest(
                request_id=self._engine_id(i, len(rows)),
                model=card.model,
                fingerprint=card.fingerprint,
                token_ids=tokens.token_ids,
                block_keys=tokens.chain.block_keys,
                next_parent=tokens.chain.next_parent,
                tail=tokens.chain.tail,
                sampling=sampling,
                regions=tokens.chain.regions,
                cache=wire.cache,
                deadline_s=self._limits.max_stream_s,
            )
            for i, (tokens, sampling) in enumerate(rows)
        )
        return Job(card, requests, RouteHint(wire.prompt_cache_key), prompt_field, echoes)

    def _engine_id(self, index: int, num_requests: int) -> RequestId:
        request_id = self._context.request_id
        return request_id if num_requests == 1 else RequestId(f"{request_id}-{index}")


def find_model(services: GatewayServices, name: str) -> tuple[ModelCard, PromptTokenizer]:
    """
    Raises:
        ModelNotFound: not configured.
        ModelNotReady: configured, but no replica is up.
    """
    tokenizer = services.tokenizers.get(name)
    if tokenizer is None:
        raise ModelNotFound(name)
    for card in services.fleet.cards():
        if card.model == name:
            return card, tokenizer
    raise ModelNotReady(name)


def max_prompt_tokens(card: ModelCard, limits: GatewayLimits) -> int:
    """One position is left for the answer."""
    fits = card.max_model_len - 1
    return fits if limits.max_prompt_tokens is None else min(fits, limits.max_prompt_tokens)
