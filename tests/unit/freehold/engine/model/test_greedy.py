"""The greedy token is torch's argmax."""

from __future__ import annotations

import pytest
import torch

from freehold.engine.model import greedy
from freehold.engine.model.greedy import greedy_argmax


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 15), (2, 16), (5, 1000), (1, 49152), (0, 7)], ids=str
)
def test_equals_torch(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    assert torch.equal(greedy_argmax(logits), logits.argmax(dim=-1))
    assert torch.equal(greedy_argmax(-logits.abs()), (-logits.abs()).argmax(dim=-1))


@pytest.mark.parametrize("at", [(0, 39), (17, 18), (38, 39)], ids=str)
def test_of_equals_the_first_wins(at: tuple[int, int]) -> None:
    logits = torch.zeros(1, 40, dtype=torch.bfloat16)
    logits[0, list(at)] = 3.0
    assert greedy_argmax(logits).tolist() == [at[0]]  # pyright: ignore[reportUnknownMemberType]


def test_masked_and_broken_logits_give_an_index_in_range() -> None:
    rows = torch.full((3, 33), float("-inf"))
    rows[1, 20] = -5.0
    rows[2] = float("nan")
    assert greedy_argmax(rows).tolist() == [0, 20, 0]  # pyright: ignore[reportUnknownMemberType]


def test_strides_do_not_matter() -> None:
    logits = torch.randn(64, 50, generator=torch.Generator().manual_seed(3)).t()
    assert torch.equal(greedy_argmax(logits), logits.argmax(dim=-1))


def test_without_a_compiler_it_is_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "native_library", lambda: None)
    logits = torch.tensor([[1.0, 3.0, 2.0]])
    assert greedy_argmax(logits).tolist() == [1]  # pyright: ignore[reportUnknownMemberType]
