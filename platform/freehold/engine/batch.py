"""What one step computes: the scheduler's order to the executor, in plain numbers.

The scheduler fills it, the executor turns it into tensors; neither knows the other's insides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


@dataclass(frozen=True, slots=True)
class StepRow:
    """Tokens ``[start, start + len(token_ids))`` of one sequence.

    ``block_ids`` cover at least these positions; slot of position p is
    ``block_ids[p // block_size] * block_size + p % block_size``. ``is_prompt`` rows always run on
    the prefill kernel, whatever their length, so that a token's numbers do not depend on how the
    prompt was cut. ``num_logits`` is how many of the row's last positions need logits: 0 for a
    prompt chunk that is not the last, 1 normally, k + 1 when k speculated tokens are verified.
    """

    token_ids: Sequence[int]
    start: int
    block_ids: Sequence[int]
    is_prompt: bool
    num_logits: int


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Decode rows first, then prompt chunks."""

    rows: Sequence[StepRow]

    @property
    def num_tokens(self) -> int:
        return sum(len(row.token_ids) for row in self.rows)


class Executor(Protocol):
    """Owns the device(s), the weights and the pool's tensors."""

    @property
    def vocab_size(self) -> int: ...

    def execute(self, batch: StepBatch) -> torch.Tensor:
        """Write K and V of every token into its slot; logits of the rows that asked.

        Returns float ``[sum of num_logits, vocab_size]`` in row order (dtype of the model or
        float32; the sampler converts what it needs).
        """
        ...
