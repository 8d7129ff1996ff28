"""Rotates a model's queries and keys in one pass each, at load.

Attention modules look ``apply_rotary_pos_emb`` up among their module's globals. Each one gets its
own forward over globals in which that name is ours; other models of the process are untouched.
Decided by trial, like ``fused``: a family whose function computes something else keeps it.
"""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch

from freehold.engine.model.fused import TOLERANCE, agree
from freehold.engine.native.library import DTYPE_CODES, native_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from freehold.engine.native.library import NativeLibrary

    Rotation: TypeAlias = Callable[..., tuple[torch.Tensor, torch.Tensor]]

NAME = "apply_rotary_pos_emb"


class FusedRotary:
    """Stands for the function of that name: ``x * cos + rotate_half(x) * sin``."""

    def __init__(self, original: Rotation, library: NativeLibrary) -> None:
        self._original = original
        self._library = library

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """``q``, ``k``: ``[1, heads, T, dim]``; ``cos``, ``sin``: ``[1, T, dim]``; same type."""
        if args or kwargs or not (_fits(q, cos, sin) and _fits(k, cos, sin)):
            return self._original(q, k, cos, sin, *args, **kwargs)
        return self._rotate(q, cos, sin), self._rotate(k, cos, sin)

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        _, num_heads, num_tokens, dim = x.shape
        # In memory [tokens, heads, dim], which is what the pool and the kernel want.
        out = torch.empty((1, num_tokens, num_heads, dim), dtype=x.dtype)
        self._library.rotate(
            DTYPE_CODES[x.dtype],
            x.data_ptr(),
            cos.data_ptr(),
            sin.data_ptr(),
            out.data_ptr(),
            num_tokens,
            num_heads,
            dim,
            x.stride(2),
            x.stride(1),
            torch.get_num_threads(),
        )
        return out.transpose(1, 2)


def fuse_rotary(model: nn.Module) -> int:
    """Rebind the name where that is possible on this machine; returns in how many modules."""
    parameter = next(model.parameters())
    library = native_library() if parameter.device.type == "cpu" else None
    if library is None or parameter.dtype not in TOLERANCE:
        return 0
    rebound: dict[FunctionType, FunctionType | None] = {}  # all layers share one function
    num_rebound = 0
    for module in model.modules():
        function = getattr(module.forward, "__func__", None)
        if not isinstance(function, FunctionType) or NAME not in function.__code__.co_names:
            continue
        if function not in rebound:
            rebound[function] = _rebind(function, parameter.dtype, library)
        replacement = rebound[function]
        if replacement is not None:
            module.forward = MethodType(replacement, module)
            num_rebound += 1
    return num_rebound


def _rebind(
    function: FunctionType, dtype: torch.dtype, library: NativeLibrary
) -> FunctionType | None:
    """The same function, for which ``NAME`` means ours; None if ours is another rotation."""
    original = function.__globals__.get(NAME)
    if not callable(original) or isinstance(original, FusedRotary):
        return None
    rotation = cast("Rotation", original)
    fused = FusedRotary(rotation, library)
    if not _is_rotation(fused, rotation, dtype):
        return None
    namespace = {**function.__globals__, NAME: fused}
    rebound = FunctionType(
        function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__
    )
    rebound.__kwdefaults__ = function.__kwdefaults__
    return rebound


def _fits(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> bool:
    """A partial rotation, a batch or mixed types are the original's business."""
    return (
        x.dim() == 4
        and x.shape[0] == 1
        and cos.shape == sin.shape == (1, x.shape[2], x.shape[3])
        and x.dtype == cos.dtype == sin.dtype
        and x.dtype in DTYPE_CODES
        and x.device.type == "cpu"
        and x.stride(3) == 1
        and cos.is_contiguous()
        and sin.is_contiguous()
    )


@torch.inference_mode()
def _is_rotation(fused: FusedRotary, original: Rotation, dtype: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(1)
    q, k = (torch.randn(1, heads, 5, 32, generator=generator).to(dtype) for heads in (4, 2))
    # Not a real rotation on purpose: both halves of cos and sin differ.
    cos, sin = (torch.randn(1, 5, 32, generator=generator).to(dtype) for _ in range(2))
    pairs = zip(fused(q, k, cos, sin), original(q, k, cos, sin), strict=True)
    return all(got.shape == expected.shape and agree(got, expected) for got, expected in pairs)
