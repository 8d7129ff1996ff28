"""An executor without a model: its logits are a function of the tokens in the slots it reads.

It writes every token into the slot that the step names and computes the next logits from whatever
lies in the slots of all positions before. A wrong slot, a block that was never written or one
that somebody else overwrote changes the output, as it would with a model.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from freehold.engine.batch import StepBatch, StepRow

_NEVER_WRITTEN = -1


class DeviceLost(RuntimeError):
    """What the fake device throws when it is told to fail."""


class FakeExecutor:
    """``fails`` says for each step's number whether it throws after it has written its slots."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        vocab_size: int,
        fails: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._slots = [_NEVER_WRITTEN] * (num_blocks * block_size)
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._fails = fails
        self.batches: list[StepBatch] = []

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    def execute(self, batch: StepBatch) -> torch.Tensor:
        _check_order(batch)
        self.batches.append(batch)
        written: set[int] = set()
        for row in batch.rows:
            for position, token_id in enumerate(row.token_ids, start=row.start):
                slot = self._slot(row, position)
                if slot in written:
                    message = f"two rows of one step write slot {slot}"
                    raise AssertionError(message)
                written.add(slot)
                self._slots[slot] = token_id
        if self._fails(len(self.batches) - 1):
            message = "the prompt was: secret"
            raise DeviceLost(message)
        rows = [logits for row in batch.rows for logits in self._row_logits(row)]
        return torch.stack(rows) if rows else torch.empty(0, self._vocab_size)

    def _row_logits(self, row: StepRow) -> list[torch.Tensor]:
        end = row.start + len(row.token_ids)
        seen = [self._slots[self._slot(row, position)] for position in range(end)]
        first = end - row.num_logits
        return [logits_after(seen[: i + 1], self._vocab_size) for i in range(first, end)]

    def _slot(self, row: StepRow, position: int) -> int:
        block, offset = divmod(position, self._block_size)
        return row.block_ids[block] * self._block_size + offset


def logits_after(token_ids: Sequence[int], vocab_size: int) -> torch.Tensor:
    """float32 ``[vocab_size]``: another vector for any other tokens or order."""
    digest = hashlib.blake2b(np.asarray(token_ids, dtype=np.int64).tobytes(), digest_size=8)
    rng = np.random.default_rng(int.from_bytes(digest.digest(), "little"))
    return torch.tensor(rng.standard_normal(vocab_size, dtype=np.float32))


def greedy_tokens(
    prompt_ids: Sequence[int], vocab_size: int, max_tokens: int, eos_token_ids: Sequence[int] = ()
) -> list[int]:
    """What an engine over this executor must answer, computed without any engine."""
    token_ids = list(prompt_ids)
    for _ in range(max_tokens):
        token_ids.append(int(logits_after(token_ids, vocab_size).argmax()))
        if token_ids[-1] in eos_token_ids:
            break
    return token_ids[len(prompt_ids) :]


def _check_order(batch: StepBatch) -> None:
    if not batch.rows:
        message = "an empty step is none"
        raise AssertionError(message)
    kinds = [row.is_prompt for row in batch.rows]
    if kinds != sorted(kinds):
        message = "decode rows come before prompt rows"
        raise AssertionError(message)
    for row in batch.rows:
        if not row.is_prompt and len(row.token_ids) != row.num_logits:
            message = "a decode row has logits for every token"
            raise AssertionError(message)
