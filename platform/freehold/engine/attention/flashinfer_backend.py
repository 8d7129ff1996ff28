"""Attention by FlashInfer's paged kernels: CUDA from Ampere on, with windows and softcap.

The prefill wrapper does decode rows too (a query of length one), so that a token's numbers do not
depend on which of the two computed it. Layers that ask for the same share one plan a step.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from freehold.engine.attention.torch_backend import write_slots

if TYPE_CHECKING:
    from freehold.engine.attention.protocol import AttentionParams, LayerPool, StepLayout

WORKSPACE_BYTES = 128 << 20
"""What FlashInfer recommends for its intermediate results."""


def is_installed() -> bool:
    return find_spec("flashinfer") is not None


class FlashInferAttention:
    """An ``AttentionBackend``. Keeps one wrapper for each kind of layer; steps reuse them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._wrappers: dict[AttentionParams, Any] = {}

    @property
    def name(self) -> str:
        return "flashinfer"

    def plan(self, layout: StepLayout) -> FlashInferStep:
        return FlashInferStep(self, layout)

    def wrapper(self, params: AttentionParams) -> Any:  # FlashInfer is untyped
        if params not in self._wrappers:
            flashinfer = importlib.import_module("flashinfer")
            workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=self._device)
            self._wrappers[params] = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
                workspace, "NHD"
            )
        return self._wrappers[params]


class FlashInferStep:
    def __init__(self, backend: FlashInferAttention, layout: StepLayout) -> None:
        self._backend = backend
        self._layout = layout
        self._planned: dict[AttentionParams, Any] = {}

    def attend(
        self,
        pool: LayerPool,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        params: AttentionParams,
    ) -> torch.Tensor:
        write_slots(pool, self._layout.slots, keys, values)
        if params not in self._planned:
            self._planned[params] = self._plan(queries, keys.shape[1], params)
        out: torch.Tensor = self._planned[params].run(
            queries.contiguous(), (pool.keys, pool.values)
        )
        return out

    def _plan(
        self, queries: torch.Tensor, num_kv_heads: int, params: AttentionParams
    ) -> Any:  # FlashInfer is untyped
        layout = self._layout
        _, num_heads, dim = queries.shape
        wrapper = self._backend.wrapper(params)
        wrapper.plan(
            layout.query_starts,
            *page_tables(layout),
            num_heads,
            num_kv_heads,
            dim,
            layout.block_size,
            causal=True,
            sm_scale=params.scale,
            window_left=-1 if params.window is None else params.window - 1,
            logits_soft_cap=params.softcap,
            q_data_type=queries.dtype,
            kv_data_type=queries.dtype,
            disable_split_kv=True,
        )
        return wrapper


def page_tables(layout: StepLayout) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The block tables as FlashInfer wants them: row starts, pages one after another, last lengths.

    int32 ``[R + 1]``, ``[sum of pages]`` and ``[R]`` (1 … block size).
    """
    lens = np.asarray(layout.context_lens_host, dtype=np.int64)
    num_pages = -(-lens // layout.block_size)
    device = layout.block_tables.device
    columns = torch.arange(layout.block_tables.shape[1], device=device)
    used = columns[None, :] < torch.as_tensor(num_pages, device=device)[:, None]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(num_pages)])
    last = lens - (num_pages - 1) * layout.block_size
    return (
        torch.as_tensor(starts.astype(np.int32), device=device),
        layout.block_tables[used],
        torch.as_tensor(last.astype(np.int32), device=device),
    )
