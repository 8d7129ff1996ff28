"""What a step computes in terms of sequences, and how that reads as an order to the executor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freehold.engine.batch import StepRow

if TYPE_CHECKING:
    from freehold.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class ScheduledRow:
    """Tokens ``[start, end)`` of a sequence; ``num_logits`` of its last positions are sampled.

    ``is_prompt`` is whatever is not exactly one freshly sampled token: recomputed output too.
    """

    sequence: Sequence
    start: int
    end: int
    is_prompt: bool
    num_logits: int

    @property
    def num_tokens(self) -> int:
        return self.end - self.start

    def to_step_row(self) -> StepRow:
        token_ids = self.sequence.token_ids[self.start : self.end]
        block_ids = self.sequence.table.block_ids
        return StepRow(token_ids, self.start, block_ids, self.is_prompt, self.num_logits)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One step's rows, decodes first. ``unplaceable`` could not start even in an idle engine."""

    rows: list[ScheduledRow] = field(default_factory=list[ScheduledRow])
    unplaceable: list[Sequence] = field(default_factory=list["Sequence"])


def next_row(sequence: Sequence, max_tokens: int) -> ScheduledRow:
    """As many of its next tokens as there are, or as fit."""
    start = sequence.num_computed
    end = min(sequence.num_tokens, start + max_tokens)
    num_logits = 1 if end == sequence.num_tokens else 0
    return ScheduledRow(sequence, start, end, not sequence.is_decoding, num_logits)
