"""From wire fields to ``SamplingParams``: what a field means here, and what two of them forbid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deployments.gateway.refusals import ContextLengthExceeded
from freehold.errors import InvalidRequest
from freehold.protocol import SamplingParams

if TYPE_CHECKING:
    from deployments.gateway.schema import ChatRequest, CompletionRequest, SamplingFields
    from freehold.protocol import ModelCard

COMPLETION_MAX_TOKENS = 16
"""OpenAI's own default for the older endpoint."""
_SEED_BITS = 62  # choice i uses seed + i, which must still fit 63 bits


def chat_logprobs(request: ChatRequest) -> int | None:
    """
    Raises:
        InvalidRequest: alternatives without logprobs.
    """
    if request.logprobs:
        return request.top_logprobs or 0
    if request.top_logprobs is not None:
        raise InvalidRequest(param="top_logprobs", reason="is only allowed with logprobs: true")
    return None


def completion_logprobs(request: CompletionRequest) -> int | None:
    """
    Raises:
        InvalidRequest: with echo, which would need the prompt's own logprobs.
    """
    if request.echo and request.logprobs is not None:
        raise InvalidRequest(param="logprobs", reason="is not supported together with echo")
    return request.logprobs


def chat_max_tokens(request: ChatRequest) -> tuple[str, int | None]:
    """The field that says how long the answer may be, and what it says.

    Raises:
        InvalidRequest: the old field and the new one contradict each other.
    """
    new, old = request.max_completion_tokens, request.max_tokens
    if new is None:
        return "max_tokens", old
    if old not in (None, new):
        raise InvalidRequest(param="max_completion_tokens", reason="contradicts max_tokens")
    return "max_completion_tokens", new


def fit_output(
    prompt_tokens: int, wanted: tuple[str, int | None], default: int | None, card: ModelCard
) -> int:
    """How many tokens a choice may have. ``default`` None: all that the context leaves.

    Raises:
        ContextLengthExceeded: with the prompt, more than the model's context. (The prompt alone
            has been checked to leave room for one token.)
    """
    field, wanted_tokens = wanted
    room = card.max_model_len - prompt_tokens
    if wanted_tokens is None:
        return room if default is None else min(room, default)
    if wanted_tokens > room:
        raise ContextLengthExceeded(
            field,
            f"the model's context is {card.max_model_len} tokens: {prompt_tokens} of the prompt "
            f"and {wanted_tokens} of output do not fit",
        )
    return wanted_tokens


def sampling_params(
    fields: SamplingFields, *, max_tokens: int, logprobs: int | None, card: ModelCard
) -> SamplingParams:
    """
    Raises:
        InvalidRequest: a token id that the model has not, or more tokens demanded than allowed.
    """
    if fields.min_tokens > max_tokens:
        raise InvalidRequest(
            param="min_tokens", reason=f"must be at most {max_tokens}, the output's limit"
        )
    logit_bias = {int(token_id): bias for token_id, bias in fields.logit_bias.items()}
    for field, token_ids in (("logit_bias", logit_bias), ("stop_token_ids", fields.stop_token_ids)):
        if any(token_id >= card.vocab_size for token_id in token_ids):
            raise InvalidRequest(field, f"token ids must be below {card.vocab_size}")
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=fields.min_tokens,
        n=fields.n,
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=max(fields.top_k, 0),
        min_p=fields.min_p,
        repetition_penalty=fields.repetition_penalty,
        presence_penalty=fields.presence_penalty,
        frequency_penalty=fields.frequency_penalty,
        logit_bias=logit_bias,
        seed=None if fields.seed is None else fields.seed % 2**_SEED_BITS,
        logprobs=logprobs,
        stop=tuple(fields.stop),
        stop_token_ids=tuple(fields.stop_token_ids),
        include_stop_in_output=fields.include_stop_str_in_output,
        ignore_eos=fields.ignore_eos,
        skip_special_tokens=fields.skip_special_tokens,
    )
