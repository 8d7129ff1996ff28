"""From the scheduler's order (plain numbers) to the tensors that attention reads.

Decides nothing: arithmetic on positions and block tables. Built with numpy, because a step of 32
decode rows must cost microseconds here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from freehold.engine.attention.protocol import StepLayout

if TYPE_CHECKING:
    from freehold.engine.batch import StepBatch


def make_layout(batch: StepBatch, block_size: int, device: torch.device) -> StepLayout:
    """``batch`` has at least one row, and every row at least one token."""
    rows = batch.rows
    query_lens = [len(row.token_ids) for row in rows]
    context_lens = [row.start + count for row, count in zip(rows, query_lens, strict=True)]
    num_blocks = [-(-length // block_size) for length in context_lens]
    tables = np.zeros((len(rows), max(num_blocks)), dtype=np.int32)
    for i, row in enumerate(rows):
        tables[i, : num_blocks[i]] = row.block_ids[: num_blocks[i]]

    positions = step_positions(batch)
    row_of_token = np.repeat(np.arange(len(rows)), query_lens)
    blocks = tables[row_of_token, positions // block_size].astype(np.int64)
    return StepLayout(
        slots=_tensor(blocks * block_size + positions % block_size, device),
        query_starts=_tensor(np.cumsum([0, *query_lens], dtype=np.int32), device),
        context_lens=_tensor(np.array(context_lens, dtype=np.int32), device),
        block_tables=_tensor(tables, device),
        block_size=block_size,
        query_lens=query_lens,
        context_lens_host=context_lens,
    )


def step_positions(batch: StepBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """int64 ``[T]``: the position of every token in its own sequence."""
    ranges = [np.arange(row.start, row.start + len(row.token_ids)) for row in batch.rows]
    return np.concatenate(ranges)


def _tensor(
    array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], device: torch.device
) -> torch.Tensor:
    return torch.as_tensor(array, device=device)
