"""Logits to tokens, for a whole step at once.

A batch that only wants the best token takes an argmax and nothing else. Otherwise: logprobs from
the raw logits, then the rows' wishes, then temperature, top-k, top-p (of what top-k left) and
min-p, then one draw a row by inverting the distribution function with the row's own number. So a
seeded choice draws the same tokens in any batch.
"""

# pyright: reportUnknownMemberType=false
# Tensor.tolist has no element type.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch

from freehold.engine.logprobs import RawLogprobs, raw_logprobs
from freehold.engine.penalties import adjust_

if TYPE_CHECKING:
    from freehold.engine.penalties import SamplingState

Argmax = Callable[[torch.Tensor], torch.Tensor]
"""``[rows, vocab_size]`` of any float type → int ``[rows]``, the first of equals."""

_FIRST_CANDIDATES = 1024
"""A nucleus is nearly always smaller; sorting a whole vocabulary costs many times more."""


@dataclass(frozen=True, slots=True)
class Sampled:
    token_id: int
    logprobs: RawLogprobs | None = None


def argmax(logits: torch.Tensor) -> torch.Tensor:
    return logits.argmax(dim=-1)


class Sampler:
    """Stateless but for the argmax it was given: a row's state comes with the row."""

    def __init__(self, best_token: Argmax = argmax) -> None:
        self._argmax = best_token

    def sample(self, logits: torch.Tensor, states: Sequence[SamplingState]) -> list[Sampled]:
        """One token a row of ``logits`` ``[rows, vocab_size]``; advances the rows' random streams.

        The states' counts are not touched: a token is observed once it is accepted.
        """
        if all(state.takes_argmax for state in states):
            return [Sampled(token) for token in _ints(self._argmax(logits))]
        raw = logits.float()
        scores = raw
        if any(state.changes_logits for state in states):
            scores = raw.clone()
            for row, state in zip(scores, states, strict=True):
                if state.changes_logits:
                    adjust_(row, state)
        tokens = self._draw(scores, states)
        wanted = [i for i, state in enumerate(states) if state.params.logprobs is not None]
        found: dict[int, RawLogprobs] = {}
        if wanted:
            num_top = [states[i].params.logprobs or 0 for i in wanted]
            rows = raw_logprobs(raw[wanted], [tokens[i] for i in wanted], num_top)
            found = dict(zip(wanted, rows, strict=True))
        return [Sampled(token, found.get(i)) for i, token in enumerate(tokens)]

    def _draw(self, scores: torch.Tensor, states: Sequence[SamplingState]) -> list[int]:
        tokens = _ints(self._argmax(scores))
        for rows, draw in (
            ([i for i, s in enumerate(states) if _is_plain(s)], _draw_plain),
            ([i for i, s in enumerate(states) if _is_truncated(s)], _draw_truncated),
        ):
            if rows:
                chosen = [states[i] for i in rows]
                for i, token in zip(
                    rows, draw(_probabilities(scores[rows], chosen), chosen), strict=True
                ):
                    tokens[i] = token
        return tokens


def _is_truncated(state: SamplingState) -> bool:
    p = state.params
    return not state.is_greedy and (p.top_k > 0 or p.top_p < 1 or p.min_p > 0)


def _is_plain(state: SamplingState) -> bool:
    return not state.is_greedy and not _is_truncated(state)


def _probabilities(scores: torch.Tensor, states: Sequence[SamplingState]) -> torch.Tensor:
    temperatures = scores.new_tensor([s.params.temperature for s in states]).unsqueeze(1)
    return (scores / temperatures).softmax(dim=-1)


def _draw_plain(probabilities: torch.Tensor, states: Sequence[SamplingState]) -> list[int]:
    return _ints(_invert(probabilities, _numbers(states)))


def _draw_truncated(probabilities: torch.Tensor, states: Sequence[SamplingState]) -> list[int]:
    width = min(_FIRST_CANDIDATES, probabilities.shape[-1])
    numbers = _numbers(states)
    weights, ids, is_complete = _nucleus(probabilities, states, width)
    tokens = _ints(ids.gather(1, _invert(weights, numbers).unsqueeze(1)).squeeze(1))
    for i in (row for row, complete in enumerate(is_complete) if not complete):
        weights, ids, _ = _nucleus(probabilities[i : i + 1], [states[i]], probabilities.shape[-1])
        tokens[i] = int(ids[0, _invert(weights, [numbers[i]])])
    return tokens


def _nucleus(
    probabilities: torch.Tensor, states: Sequence[SamplingState], width: int
) -> tuple[torch.Tensor, torch.Tensor, list[bool]]:
    """The best ``width`` tokens a row, best first, those cut off by top-k, top-p, min-p at 0.

    The last value says of each row whether everything that is kept lies within ``width``.
    """
    vocab_size = probabilities.shape[-1]
    top_k = _column([s.params.top_k or vocab_size for s in states], probabilities)
    top_p = _column([s.params.top_p for s in states], probabilities)
    min_p = _column([s.params.min_p for s in states], probabilities)

    values, ids = probabilities.topk(width, dim=-1)
    values = values * (torch.arange(width, device=probabilities.device) < top_k)
    mass = values.cumsum(dim=-1)
    is_top_k_within = top_k <= width
    total = torch.where(is_top_k_within, mass[:, -1:], probabilities.sum(dim=-1, keepdim=True))
    keep = (mass - values < top_p * total) & (values >= min_p * values[:, :1])
    keep[:, 0] = True

    is_cut_within = (mass[:, -1:] >= top_p * total) | ~keep[:, -1:]
    is_complete = is_top_k_within | (is_cut_within & (top_k >= vocab_size))
    return values * keep, ids, [bool(row) for row in is_complete]


def _column(values: list[int] | list[float], like: torch.Tensor) -> torch.Tensor:
    return like.new_tensor(values).unsqueeze(1)


def _numbers(states: Sequence[SamplingState]) -> list[float]:
    return [state.random.random() for state in states]


def _invert(weights: torch.Tensor, numbers: list[float]) -> torch.Tensor:
    """Columns ``[rows]`` drawn in proportion to ``weights``, by one number in [0, 1) a row.

    In float64: over a vocabulary float32 sums would move the odds of rare tokens.
    """
    distribution = weights.double().cumsum(dim=-1)
    targets = distribution.new_tensor(numbers).unsqueeze(1) * distribution[:, -1:]
    picks = torch.searchsorted(distribution, targets, right=True)
    picks = picks.clamp_max(weights.shape[-1] - 1)
    # A number just under 1 can round up to the total, behind the last token with any weight.
    is_possible = weights.gather(1, picks) > 0
    return torch.where(is_possible, picks, weights.argmax(dim=-1, keepdim=True)).squeeze(1)


def _ints(column: torch.Tensor) -> list[int]:
    return cast("list[int]", column.tolist())
