"""What attention is to the rest of the engine: a backend plans a step, then runs it layer by layer.

Shapes: T tokens of all rows flattened, decode rows first; H heads; G key-value heads; D head size.
Tensors of a step are contiguous and on the model's device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


@dataclass(frozen=True, slots=True)
class AttentionParams:
    """What a layer asks for; layers of one model may differ (gemma's windows)."""

    scale: float
    window: int | None = None
    """A query sees its last ``window`` keys, itself included; None for all."""
    softcap: float | None = None
    """Scores become ``softcap * tanh(scores / softcap)``; None for no cap."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerPool:
    """One layer's keys and values, each ``[num_blocks, block_size, G, D]``."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class StepLayout:
    """Where a step's tokens belong. R rows; row r has tokens ``[query_starts[r], …[r + 1])``."""

    slots: torch.Tensor
    """int64 ``[T]``: block_id * block_size + offset of each token."""
    query_starts: torch.Tensor
    """int32 ``[R + 1]``."""
    context_lens: torch.Tensor
    """int32 ``[R]``: keys of the row, this step's included."""
    block_tables: torch.Tensor
    """int32 ``[R, longest table]``, padded with 0; entries behind a row's context are not read."""
    block_size: int
    query_lens: Sequence[int]
    """The same facts as numbers on the host: for planning, and for loops over rows."""
    context_lens_host: Sequence[int]


class PlannedStep(Protocol):
    """One step's attention; lives for that step."""

    def attend(
        self,
        pool: LayerPool,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        params: AttentionParams,
    ) -> torch.Tensor:
        """Write ``keys`` and ``values`` ``[T, G, D]`` into their slots, then attend.

        ``queries`` are ``[T, H, D]``; returns the same shape. The token at position p of a row
        sees that row's positions ``[max(0, p - window + 1), p]``.
        """
        ...


class AttentionBackend(Protocol):
    """A way to compute attention over the paged pool; stateless between steps."""

    @property
    def name(self) -> str: ...

    def plan(self, layout: StepLayout) -> PlannedStep: ...
