"""Log-probabilities as OpenAI reports them: of the model's own distribution.

Taken from the raw logits, before bias, penalties and temperature (vLLM's default too), so that
they say what the model thought and not what the request asked for.
"""

# pyright: reportUnknownMemberType=false
# Tensor.tolist has no element type.

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from freehold.protocol import PositionLogprobs, TokenLogprob

if TYPE_CHECKING:
    import torch

    from freehold.engine.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class RawLogprobs:
    """Natural logarithms at one position; ``top`` is (token id, logprob), best first."""

    chosen: float
    top: tuple[tuple[int, float], ...]


def raw_logprobs(logits: torch.Tensor, chosen: list[int], num_top: list[int]) -> list[RawLogprobs]:
    """``logits`` is float32 ``[rows, vocab_size]``; both lists have one entry a row."""
    logprobs = logits.log_softmax(dim=-1)
    width = min(max(num_top), logits.shape[-1])
    values, ids = logprobs.topk(width, dim=-1)
    top_values = cast("list[list[float]]", values.tolist())
    top_ids = cast("list[list[int]]", ids.tolist())
    return [
        RawLogprobs(
            chosen=float(logprobs[i, token]),
            top=tuple(zip(top_ids[i][:n], top_values[i][:n], strict=True)),
        )
        for i, (token, n) in enumerate(zip(chosen, num_top, strict=True))
    ]


def spelled(token_id: int, raw: RawLogprobs, vocabulary: Vocabulary) -> PositionLogprobs:
    """The same with the tokens' bytes; a token that is part of a character reads as U+FFFD."""
    return PositionLogprobs(
        chosen=_token(token_id, raw.chosen, vocabulary),
        top=tuple(_token(top_id, logprob, vocabulary) for top_id, logprob in raw.top),
    )


def _token(token_id: int, logprob: float, vocabulary: Vocabulary) -> TokenLogprob:
    data = vocabulary.token_bytes(token_id)
    return TokenLogprob(token_id, data.decode("utf-8", "replace"), data, logprob)
