"""Drives an executor without a scheduler: greedy decoding by the most obvious loops.

Shares no code with the scheduler or the cache, so that a parity test of the model runner says
something about the runner alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freehold.engine.batch import StepBatch, StepRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from freehold.engine.batch import Executor


@dataclass(slots=True)
class Run:
    """One sequence: its prompt, its blocks, how many positions are computed, its answer."""

    prompt: Sequence[int]
    block_ids: list[int]
    num_computed: int = 0
    answer: list[int] = field(default_factory=list[int])
    logits: list[torch.Tensor] = field(default_factory=list["torch.Tensor"])
    """Of each token of the answer, ``[vocabulary]``."""


class NaiveDriver:
    """Hands out blocks in a scattered order (neighbours are never neighbours in the pool)."""

    def __init__(self, executor: Executor, num_blocks: int, block_size: int) -> None:
        self._executor = executor
        self._block_size = block_size
        self._free: Iterator[int] = iter([*range(1, num_blocks, 2), *range(0, num_blocks, 2)])

    def open(self, prompt: Sequence[int], num_new: int, shared: Run | None = None) -> Run:
        """A sequence with room for its answer; whole blocks of a common prefix are ``shared``'s."""
        run = Run(prompt, [])
        if shared is not None:
            run.num_computed = self._common_tokens(prompt, shared)
            run.block_ids += shared.block_ids[: run.num_computed // self._block_size]
        while len(run.block_ids) * self._block_size < len(prompt) + num_new:
            run.block_ids.append(next(self._free))
        return run

    def prefill(self, runs: Sequence[Run], chunk: int | None = None) -> None:
        """Compute the prompts, all of them in each step, ``chunk`` tokens at a time."""
        while pending := [run for run in runs if run.num_computed < len(run.prompt)]:
            rows = [self._prompt_row(run, chunk) for run in pending]
            self._step(pending, rows)

    def decode(self, runs: Sequence[Run], num_new: int) -> None:
        while len(runs[0].answer) < num_new:
            rows = [
                StepRow([run.answer[-1]], run.num_computed, run.block_ids, False, 1) for run in runs
            ]
            self._step(runs, rows)

    def _prompt_row(self, run: Run, chunk: int | None) -> StepRow:
        start = run.num_computed
        token_ids = run.prompt[start : start + (chunk or len(run.prompt))]
        is_last = start + len(token_ids) == len(run.prompt)
        return StepRow(token_ids, start, run.block_ids, True, int(is_last))

    def _step(self, runs: Sequence[Run], rows: Sequence[StepRow]) -> None:
        logits = self._executor.execute(StepBatch(rows))
        row_of_logits = 0
        for run, row in zip(runs, rows, strict=True):
            run.num_computed += len(row.token_ids)
            for _ in range(row.num_logits):
                run.logits.append(logits[row_of_logits])
                run.answer.append(int(logits[row_of_logits].argmax()))
                row_of_logits += 1
        assert row_of_logits == len(logits)

    def _common_tokens(self, prompt: Sequence[int], shared: Run) -> int:
        """Whole blocks only, and at least one token is left to compute."""
        limit = min(len(prompt) - 1, shared.num_computed)
        known = [*shared.prompt, *shared.answer]
        common = 0
        while common < limit and prompt[common] == known[common]:
            common += 1
        return common // self._block_size * self._block_size
