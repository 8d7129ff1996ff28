"""Leads the attention of unmodified Hugging Face models into the paged pool.

Registers one attention function under a name of ours; a model set to it calls it in every layer.
The step's plan and pools travel as a keyword argument of the model's call, so there is no global
state. No mask function is registered on purpose: transformers then makes no mask at all, and the
kernels know causality and windows themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformers import AttentionInterface

from freehold.engine.attention.protocol import AttentionParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from freehold.engine.attention.protocol import LayerPool, PlannedStep

IMPLEMENTATION = "freehold_paged"


@dataclass(frozen=True, slots=True, eq=False)
class PagedStep:
    """What every layer's attention needs; the keyword argument ``paged_step``."""

    planned: PlannedStep
    pools: Sequence[LayerPool]


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    paged_step: PagedStep,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """The signature is transformers': query ``[1, H, T, D]``, key and value ``[1, G, T, D]``.

    Returns ``[1, T, H, D]`` and no attention weights.
    """
    layer: int = module.layer_idx  # type: ignore[assignment]  # torch types attributes as tensors
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = paged_step.planned.attend(
        paged_step.pools[layer],
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        AttentionParams(scale, sliding_window, softcap),
    )
    return out.unsqueeze(0), None


def install(model: torch.nn.Module) -> None:
    """Set ``model`` (a ``PreTrainedModel``) to the paged attention."""
    AttentionInterface.register(IMPLEMENTATION, paged_attention)  # pyright: ignore[reportUnknownMemberType]  # transformers types its value as a bare Callable
    model.set_attn_implementation(IMPLEMENTATION)  # type: ignore[operator]  # torch's __getattr__
