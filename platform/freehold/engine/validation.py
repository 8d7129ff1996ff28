"""Whether a request can ever run here, decided before it is queued.

The gateway has checked ranges and types; this checks what only the engine knows: its model, its
vocabulary, its pool. Whether there is room *now* is the scheduler's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freehold.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freehold.engine.config import EngineConfig
    from freehold.kv.cache import KVCache
    from freehold.protocol import GenerateRequest, ModelCard


def validate(request: GenerateRequest, card: ModelCard, config: EngineConfig, kv: KVCache) -> None:
    """Raises InvalidRequest, ``param`` naming the request's field."""
    if request.model != card.model:
        raise InvalidRequest(param="model", reason=f"this engine serves {card.model!r}")
    if request.fingerprint != card.fingerprint:
        raise InvalidRequest(
            param="fingerprint", reason="the keys were made for another version of the model"
        )
    _check_tokens(request, card)
    _check_keys(request, card.block_size)
    _check_sampling(request, card, config)
    _check_room(request, card, kv)


def _check_tokens(request: GenerateRequest, card: ModelCard) -> None:
    num_prompt = len(request.token_ids)
    if num_prompt == 0:
        raise InvalidRequest(param="token_ids", reason="must not be empty")
    if num_prompt >= card.max_model_len:
        reason = f"{num_prompt} tokens leave no room: prompt and output fit {card.max_model_len}"
        raise InvalidRequest(param="token_ids", reason=reason)
    _check_ids("token_ids", request.token_ids, card.vocab_size)


def _check_keys(request: GenerateRequest, block_size: int) -> None:
    num_full = len(request.token_ids) // block_size
    if len(request.block_keys) != num_full:
        reason = f"expected one key for each of {num_full} full blocks of {block_size} tokens"
        raise InvalidRequest(param="block_keys", reason=f"{reason}, got {len(request.block_keys)}")
    ends = [0, *(region.end_block for region in request.regions), num_full]
    if ends != sorted(ends):
        raise InvalidRequest(
            param="regions", reason=f"must be sorted and end within {num_full} blocks"
        )


def _check_sampling(request: GenerateRequest, card: ModelCard, config: EngineConfig) -> None:
    sampling = request.sampling
    if not 1 <= sampling.n <= config.max_num_seqs:
        raise InvalidRequest(param="n", reason=f"must be between 1 and {config.max_num_seqs}")
    if sampling.max_tokens < 1:
        raise InvalidRequest(param="max_tokens", reason="must be at least 1")
    _check_ids("stop_token_ids", sampling.stop_token_ids, card.vocab_size)
    _check_ids("logit_bias", sampling.logit_bias, card.vocab_size)


def _check_room(request: GenerateRequest, card: ModelCard, kv: KVCache) -> None:
    """The last token is never computed, so it needs no slot."""
    num_prompt = len(request.token_ids)
    if not kv.fits(request, num_prompt):
        reason = f"{num_prompt} tokens exceed what the KV cache can hold for this account"
        raise InvalidRequest(param="token_ids", reason=reason)
    max_output = min(request.sampling.max_tokens, card.max_model_len - num_prompt)
    if not kv.fits(request, num_prompt + max_output - 1):
        reason = f"{num_prompt} + {max_output} tokens exceed what the KV cache can hold"
        raise InvalidRequest(param="max_tokens", reason=f"{reason} for this account")


def _check_ids(param: str, token_ids: Iterable[int], vocab_size: int) -> None:
    if any(not 0 <= token_id < vocab_size for token_id in token_ids):
        raise InvalidRequest(param, f"token ids must be between 0 and {vocab_size - 1}")
