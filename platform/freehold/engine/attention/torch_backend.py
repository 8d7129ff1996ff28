"""Attention in plain torch operations: any device, any dtype, no compiler. The reference.

Row by row, scores in float32; queries go in tiles so that a long prompt's score matrix stays small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from freehold.engine.attention.protocol import AttentionParams, LayerPool, StepLayout

QUERY_TILE = 256


class TorchAttention:
    """An ``AttentionBackend``."""

    @property
    def name(self) -> str:
        return "torch"

    def plan(self, layout: StepLayout) -> TorchStep:
        return TorchStep(layout)


class TorchStep:
    def __init__(self, layout: StepLayout) -> None:
        self._layout = layout

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
        out = torch.empty_like(queries)
        first = 0
        for row, count in enumerate(layout.query_lens):
            context = layout.context_lens_host[row]
            table = layout.block_tables[row, : -(-context // layout.block_size)].long()
            row_keys = pool.keys[table].flatten(0, 1)[:context]
            row_values = pool.values[table].flatten(0, 1)[:context]
            for start in range(0, count, QUERY_TILE):
                end = min(start + QUERY_TILE, count)
                out[first + start : first + end] = attend_dense(
                    queries[first + start : first + end],
                    row_keys,
                    row_values,
                    context - count + start,
                    params,
                )
            first += count
        return out


def write_slots(
    pool: LayerPool, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> None:
    pool.keys.flatten(0, 1).index_copy_(0, slots, keys)
    pool.values.flatten(0, 1).index_copy_(0, slots, values)


def attend_dense(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    start: int,
    params: AttentionParams,
) -> torch.Tensor:
    """Queries ``[t, H, D]`` at positions ``start …`` over keys ``[n, G, D]`` at positions 0 …"""
    t, num_heads, dim = queries.shape
    n, num_kv_heads, _ = keys.shape
    grouped = queries.view(t, num_kv_heads, num_heads // num_kv_heads, dim)
    # [G, group, t, n]
    scores = torch.einsum("tgrd,ngd->grtn", grouped.float(), keys.float()) * params.scale
    if params.softcap is not None:
        scores = params.softcap * torch.tanh(scores / params.softcap)
    position = torch.arange(start, start + t, device=queries.device)[:, None]
    key = torch.arange(n, device=queries.device)[None, :]
    hidden = key > position
    if params.window is not None:
        hidden = hidden | (key <= position - params.window)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    mixed = torch.einsum("grtn,ngd->tgrd", weights, values.float())
    return mixed.reshape(t, num_heads, dim).to(queries.dtype)
