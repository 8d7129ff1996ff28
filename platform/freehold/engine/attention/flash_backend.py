"""Attention by FlashAttention 3 (Hopper) or 4 through torch's ``varlen_attn``: CUDA, no softcap.

The paged pool's layout is the one it takes, so nothing is copied. Split-KV is off: with it a
sequence's numbers would depend on the longest one in the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.attention import activate_flash_attention_impl, list_flash_attention_impls
from torch.nn.attention.varlen import varlen_attn

from freehold.engine.attention.torch_backend import write_slots

if TYPE_CHECKING:
    from freehold.engine.attention.protocol import AttentionParams, LayerPool, StepLayout


def activate(device: torch.device) -> str | None:
    """Switch torch to the FlashAttention installed for ``device``; its name, None if there is none.

    Version 3 has kernels for Hopper only; 4 for Hopper and Blackwell.
    """
    major, _ = torch.cuda.get_device_capability(device)
    wanted = {9: ("FA3", "FA4"), 10: ("FA4",)}.get(major, ())
    for name in wanted:
        if name not in list_flash_attention_impls():
            continue
        try:
            activate_flash_attention_impl(name)
        except (ImportError, RuntimeError):  # the package is not installed, or has no kernels
            continue
        return name
    return None


class FlashAttention:
    """An ``AttentionBackend``; ``activate`` was called and found ``implementation``."""

    def __init__(self, implementation: str) -> None:
        self._implementation = implementation

    @property
    def name(self) -> str:
        return f"flash ({self._implementation})"

    def plan(self, layout: StepLayout) -> FlashStep:
        return FlashStep(layout)


class FlashStep:
    def __init__(self, layout: StepLayout) -> None:
        self._layout = layout
        self._max_query_len = max(layout.query_lens)
        self._max_context_len = max(layout.context_lens_host)

    def attend(
        self,
        pool: LayerPool,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        params: AttentionParams,
    ) -> torch.Tensor:
        layout = self._layout
        write_slots(pool, layout.slots, keys, values)
        # FlashAttention counts the keys to the left of the query, without itself.
        left = -1 if params.window is None else params.window - 1
        out = varlen_attn(
            queries.contiguous(),
            pool.keys,
            pool.values,
            layout.query_starts,
            None,
            self._max_query_len,
            self._max_context_len,
            scale=params.scale,
            window_size=(left, 0),
            enable_gqa=True,
            seqused_k=layout.context_lens,
            block_table=layout.block_tables,
            num_splits=1,
        )
        # A pair comes back only when the log-sum-exp is asked for.
        return out if isinstance(out, torch.Tensor) else out[0]
