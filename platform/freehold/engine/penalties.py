"""What a request changes about its logits before a token is drawn: bias, bans, penalties, masks.

Order: token mask, logit bias, minimum length, then repetition, frequency and presence penalties
(OpenAI's and vLLM's definitions). Rows that ask for nothing cost nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from freehold.protocol import SamplingParams

_GREEDY_BELOW = 1e-5
"""A temperature under this is greedy: dividing by it would only overflow."""


@dataclass(slots=True, eq=False)
class SamplingState:
    """One choice as the sampler sees it; ``output_counts`` grows with ``observe``."""

    params: SamplingParams
    prompt_ids: tuple[int, ...]
    banned_until_min: tuple[int, ...]
    """Tokens that would end the choice: impossible before ``min_tokens``."""
    random: random.Random
    """The choice's own stream: one number a token, so its result does not depend on the batch."""
    output_counts: Counter[int] = field(default_factory=Counter[int])
    num_output: int = 0
    allowed: torch.Tensor | None = None
    """Bool ``[vocab_size]``: tokens a grammar permits next. None permits all."""

    def observe(self, token_id: int) -> None:
        self.num_output += 1
        if self.has_penalties:
            self.output_counts[token_id] += 1

    @property
    def is_greedy(self) -> bool:
        return self.params.temperature < _GREEDY_BELOW

    @property
    def has_penalties(self) -> bool:
        p = self.params
        return bool(p.presence_penalty or p.frequency_penalty or p.repetition_penalty != 1.0)

    @property
    def must_go_on(self) -> bool:
        return self.num_output < self.params.min_tokens and bool(self.banned_until_min)

    @property
    def changes_logits(self) -> bool:
        return (
            self.has_penalties
            or self.must_go_on
            or bool(self.params.logit_bias)
            or self.allowed is not None
        )

    @property
    def takes_argmax(self) -> bool:
        """The next token is the best raw logit, and nobody asks for numbers."""
        return self.is_greedy and self.params.logprobs is None and not self.changes_logits


def adjust_(row: torch.Tensor, state: SamplingState) -> None:
    """Apply one choice's wishes to its float32 logits ``[vocab_size]``, in place."""
    params = state.params
    if state.allowed is not None:
        row.masked_fill_(~state.allowed, float("-inf"))
    if params.logit_bias:
        ids = _ids(params.logit_bias, row)
        row[ids] += torch.tensor(list(params.logit_bias.values()), device=row.device)
    if state.must_go_on:
        row[_ids(state.banned_until_min, row)] = float("-inf")
    if params.repetition_penalty != 1.0:
        ids = _ids({*state.prompt_ids, *state.output_counts}, row)
        seen = row[ids]
        penalty = params.repetition_penalty
        row[ids] = torch.where(seen > 0, seen / penalty, seen * penalty)
    if state.output_counts and (params.frequency_penalty or params.presence_penalty):
        counts = torch.tensor(list(state.output_counts.values()), device=row.device)
        penalties = params.frequency_penalty * counts + params.presence_penalty
        row[_ids(state.output_counts, row)] -= penalties.to(row.dtype)


def _ids(token_ids: Iterable[int], row: torch.Tensor) -> torch.Tensor:
    return torch.tensor(list(token_ids), dtype=torch.long, device=row.device)
