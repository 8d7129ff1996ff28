"""Every backend against plain dense attention, and the compiled one against itself."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

from freehold.engine.attention.cpu_backend import CpuAttention
from freehold.engine.attention.layout import make_layout
from freehold.engine.attention.protocol import AttentionParams, LayerPool
from freehold.engine.attention.torch_backend import TorchAttention, attend_dense
from freehold.engine.batch import StepBatch, StepRow
from freehold.engine.native.library import native_library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freehold.engine.attention.protocol import AttentionBackend

CPU = torch.device("cpu")
LENGTHS = (1, 17, 64, 150)
"""Of the sequences: shorter than a block, across blocks, a whole tile, across tiles and queries."""


def cpu_backend() -> AttentionBackend:
    library = native_library()
    assert library is not None, "the tests need a C++ compiler"
    return CpuAttention(library)


BACKENDS = {"cpu": cpu_backend, "torch": TorchAttention}


@dataclass(frozen=True)
class Shape:
    num_heads: int
    num_kv_heads: int
    dim: int
    block_size: int = 16


SHAPES = [
    Shape(4, 2, 16),
    Shape(9, 3, 64, 32),
    Shape(8, 1, 64, 64),
    Shape(4, 4, 80),
    Shape(4, 2, 128),
    Shape(2, 1, 256),
    Shape(2, 2, 20),
]
PARAMS = [
    AttentionParams(0.3),
    AttentionParams(0.2, window=24),
    AttentionParams(0.2, window=1),
    AttentionParams(0.4, softcap=3.0),
    AttentionParams(0.4, window=100, softcap=2.0),
]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


class World:
    """Sequences with random queries, keys and values, and a pool full of garbage."""

    def __init__(self, shape: Shape, dtype: torch.dtype, lengths: Sequence[int] = LENGTHS) -> None:
        generator = torch.Generator().manual_seed(7)

        def random(tokens: int, heads: int) -> torch.Tensor:
            return torch.randn(tokens, heads, shape.dim, generator=generator).to(dtype)

        self.shape = shape
        self.queries = [random(n, shape.num_heads) for n in lengths]
        self.keys = [random(n, shape.num_kv_heads) for n in lengths]
        self.values = [random(n, shape.num_kv_heads) for n in lengths]
        num_blocks = [-(-n // shape.block_size) for n in lengths]
        pool_blocks = sum(num_blocks) + 3
        order = Random(7).sample(range(pool_blocks), pool_blocks)
        self.tables = [order[a:b] for a, b in pairwise(accumulate(num_blocks, initial=0))]
        pool = (pool_blocks, shape.block_size, shape.num_kv_heads, shape.dim)
        # Whatever lies in slots that nobody wrote must not reach a result.
        self.pool = LayerPool(
            torch.full(pool, float("nan"), dtype=dtype), torch.full(pool, float("inf"), dtype=dtype)
        )

    def expected(self, i: int, params: AttentionParams) -> torch.Tensor:
        args = (self.queries[i].float(), self.keys[i].float(), self.values[i].float())
        return attend_dense(*args, 0, params)

    def run(
        self,
        backend: AttentionBackend,
        params: AttentionParams,
        spans: Sequence[tuple[int, int, int]],
    ) -> list[torch.Tensor]:
        """One step; ``spans`` are (sequence, start, end), one row each."""
        rows = [
            StepRow([0] * (end - start), start, self.tables[i], end - start > 1, 1)
            for i, start, end in spans
        ]
        layout = make_layout(StepBatch(rows), self.shape.block_size, CPU)

        def flat(tensors: list[torch.Tensor]) -> torch.Tensor:
            return torch.cat([tensors[i][start:end] for i, start, end in spans])

        out = backend.plan(layout).attend(
            self.pool, flat(self.queries), flat(self.keys), flat(self.values), params
        )
        starts = accumulate((end - start for _, start, end in spans), initial=0)
        return [out[a:b] for a, b in pairwise(starts)]


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("params", PARAMS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prefill_and_decode_equal_dense_attention(
    name: str, dtype: torch.dtype, params: AttentionParams, shape: Shape
) -> None:
    world = World(shape, dtype)
    backend = BACKENDS[name]()
    # All but the last token in one step, then that token of every sequence as a decode step.
    heads = [(i, 0, n - 1) for i, n in enumerate(LENGTHS) if n > 1]
    outs = dict(zip([i for i, *_ in heads], world.run(backend, params, heads), strict=True))
    lasts = world.run(backend, params, [(i, n - 1, n) for i, n in enumerate(LENGTHS)])
    for i, last in enumerate(lasts):
        got = torch.cat([outs[i], last]) if i in outs else last
        torch.testing.assert_close(
            got.float(), world.expected(i, params), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype]
        )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("params", PARAMS, ids=str)
def test_the_compiled_kernel_gives_the_same_bits_however_the_work_is_cut(
    dtype: torch.dtype, params: AttentionParams
) -> None:
    shape, backend = SHAPES[1], cpu_backend()
    whole = World(shape, dtype).run(backend, params, [(3, 0, 150)])[0]

    world = World(shape, dtype)
    parts: list[torch.Tensor] = []
    starts = [0, 1, 8, 40, 41, 42, 73, 149, 150]
    for step, (start, end) in enumerate(pairwise(starts)):
        others = [(1, 0, 17)] if step % 2 else []  # company in the batch changes nothing
        parts.append(world.run(backend, params, [*others, (3, start, end)])[-1])
    assert torch.equal(torch.cat(parts), whole)


def test_the_number_of_threads_changes_no_bit() -> None:
    shape, backend = SHAPES[1], cpu_backend()
    before = torch.get_num_threads()
    outs: list[torch.Tensor] = []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        outs.append(World(shape, torch.float32).run(backend, PARAMS[0], [(3, 0, 150)])[0])
    torch.set_num_threads(before)
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2])


def test_softmax_of_large_scores_neither_overflows_nor_vanishes() -> None:
    world = World(Shape(2, 1, 16), torch.float32)
    params = AttentionParams(300.0)
    out = world.run(cpu_backend(), params, [(3, 0, 150)])[0]
    torch.testing.assert_close(out, world.expected(3, params), atol=1e-3, rtol=1e-3)
