"""Positions and block tables become slots."""
# torch does not type what tolist() returns:
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import torch

from freehold.engine.attention.flashinfer_backend import page_tables
from freehold.engine.attention.layout import make_layout, step_positions
from freehold.engine.batch import StepBatch, StepRow

BATCH = StepBatch(
    [
        StepRow([5], 33, [7, 2, 9, 4], is_prompt=False, num_logits=1),
        StepRow([1, 2, 3], 15, [3, 8], is_prompt=True, num_logits=0),
        StepRow([6], 0, [1], is_prompt=True, num_logits=1),
    ]
)


def test_slots_follow_the_block_tables() -> None:
    layout = make_layout(BATCH, 16, torch.device("cpu"))
    assert step_positions(BATCH).tolist() == [33, 15, 16, 17, 0]
    assert layout.slots.tolist() == [9 * 16 + 1, 3 * 16 + 15, 8 * 16, 8 * 16 + 1, 1 * 16]
    assert layout.query_starts.tolist() == [0, 1, 4, 5]
    assert layout.context_lens.tolist() == [34, 18, 1]


def test_tables_are_cut_to_what_the_context_needs() -> None:
    layout = make_layout(BATCH, 16, torch.device("cpu"))
    assert layout.block_tables.tolist() == [[7, 2, 9], [3, 8, 0], [1, 0, 0]]


def test_flashinfer_pages_are_the_tables_one_after_another() -> None:
    starts, pages, last = page_tables(make_layout(BATCH, 16, torch.device("cpu")))
    assert starts.tolist() == [0, 3, 5, 6]
    assert pages.tolist() == [7, 2, 9, 3, 8, 1]
    assert last.tolist() == [2, 2, 1]
