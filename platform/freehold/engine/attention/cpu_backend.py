"""Attention by our own C++ kernel (``native/csrc/attention.cpp``): CPU, float32 and bfloat16.

One kernel for decode and prefill, whose rows never mix: a token's bits depend on its past only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from freehold.engine.native.library import DTYPE_CODES

if TYPE_CHECKING:
    from freehold.engine.attention.protocol import AttentionParams, LayerPool, StepLayout
    from freehold.engine.native.library import NativeLibrary


class CpuAttention:
    """An ``AttentionBackend``."""

    def __init__(self, library: NativeLibrary) -> None:
        self._library = library

    @property
    def name(self) -> str:
        return "cpu"

    def plan(self, layout: StepLayout) -> CpuStep:
        return CpuStep(self._library, layout)


class CpuStep:
    def __init__(self, library: NativeLibrary, layout: StepLayout) -> None:
        self._library = library
        self._layout = layout
        self._num_threads = torch.get_num_threads()
        # The layout's tensors live as long as this step does, and so do these addresses.
        self._pointers = (
            layout.slots.data_ptr(),
            layout.query_starts.data_ptr(),
            layout.context_lens.data_ptr(),
            layout.block_tables.data_ptr(),
        )

    def attend(
        self,
        pool: LayerPool,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        params: AttentionParams,
    ) -> torch.Tensor:
        queries, keys, values = queries.contiguous(), keys.contiguous(), values.contiguous()
        out = torch.empty_like(queries)
        _, num_heads, dim = queries.shape
        num_rows, max_blocks = self._layout.block_tables.shape
        self._library.paged_attention(
            DTYPE_CODES[queries.dtype],
            queries.data_ptr(),
            keys.data_ptr(),
            values.data_ptr(),
            pool.keys.data_ptr(),
            pool.values.data_ptr(),
            out.data_ptr(),
            *self._pointers,
            num_rows,
            max_blocks,
            self._layout.block_size,
            num_heads,
            keys.shape[1],
            dim,
            params.scale,
            params.window or 0,
            params.softcap or 0.0,
            self._num_threads,
        )
        return out
