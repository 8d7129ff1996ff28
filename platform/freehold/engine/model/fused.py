"""Replaces a model's RMS norms and gated MLPs by ones that pass over memory once, at load.

Decides by trial, not by class name: a module is replaced only if the replacement gives its
answers on random input, with the model's own weights. So a family, or a release of transformers,
that computes something else simply keeps its own code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from freehold.engine.native.library import DTYPE_CODES, native_library

if TYPE_CHECKING:
    from freehold.engine.native.library import NativeLibrary

SCALINGS = (0, 1, 2)
"""Round to the model's type, then scale (llama); scale, then round (olmo2); by 1 + weight (gemma)."""
NUM_TRIAL_ROWS = 16
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


class FusedRmsNorm(nn.Module):
    """RMS norm over the last dimension."""

    def __init__(
        self, weight: torch.Tensor, epsilon: float, scaling: int, library: NativeLibrary
    ) -> None:
        super().__init__()
        self.weight = weight
        self._epsilon, self._scaling, self._library = epsilon, scaling, library
        self._dtype_code = DTYPE_CODES[weight.dtype]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        width = x.shape[-1]
        self._library.rms_norm(
            self._dtype_code,
            x.data_ptr(),
            self.weight.data_ptr(),
            out.data_ptr(),
            x.numel() // width,
            width,
            self._epsilon,
            self._scaling,
            torch.get_num_threads(),
        )
        return out


class FusedSiluMlp(nn.Module):
    """``down(silu(gate(x)) * up(x))`` over the original's own linear layers."""

    def __init__(
        self, gate: nn.Module, up: nn.Module, down: nn.Module, library: NativeLibrary
    ) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = gate, up, down
        self._library = library

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate: torch.Tensor = self.gate_proj(x)
        up: torch.Tensor = self.up_proj(x)
        width = gate.shape[-1]
        self._library.silu_gate(
            DTYPE_CODES[gate.dtype],
            gate.data_ptr(),
            up.data_ptr(),
            gate.data_ptr(),
            gate.numel() // width,
            width,
            torch.get_num_threads(),
        )
        out: torch.Tensor = self.down_proj(gate)
        return out


def fuse(model: nn.Module) -> int:
    """Replace what can be replaced on this machine; returns how many modules were."""
    parameter = next(model.parameters())
    library = native_library() if parameter.device.type == "cpu" else None
    if library is None or parameter.dtype not in DTYPE_CODES:
        return 0
    num_replaced = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            fused = _fused_norm(child, library) or _fused_mlp(child, parameter.dtype, library)
            if fused is not None:
                setattr(module, name, fused)
                num_replaced += 1
    return num_replaced


@torch.inference_mode()
def _fused_norm(module: nn.Module, library: NativeLibrary) -> nn.Module | None:
    weight = getattr(module, "weight", None)
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not isinstance(weight, torch.Tensor) or not isinstance(epsilon, float) or weight.dim() != 1:
        return None
    if weight.dtype not in TOLERANCE:
        return None
    x = _trial(weight.shape[0], weight.dtype)
    expected: torch.Tensor = module(x)
    candidates = [FusedRmsNorm(weight, epsilon, scaling, library) for scaling in SCALINGS]
    best = min(candidates, key=lambda fused: _error(fused(x), expected))
    return best if agree(best(x), expected) else None


@torch.inference_mode()
def _fused_mlp(module: nn.Module, dtype: torch.dtype, library: NativeLibrary) -> nn.Module | None:
    parts = dict(module.named_children())
    if not {"gate_proj", "up_proj", "down_proj"} <= parts.keys():
        return None
    width = getattr(parts["gate_proj"], "in_features", None)
    if not isinstance(width, int):
        return None
    fused = FusedSiluMlp(parts["gate_proj"], parts["up_proj"], parts["down_proj"], library)
    x = _trial(width, dtype)
    return fused if agree(fused(x), module(x)) else None


def _trial(width: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(width)
    return (3 * torch.randn(NUM_TRIAL_ROWS, width, generator=generator)).to(dtype)


def _error(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got.float() - expected.float()).abs().mean())


def agree(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Within the type's rounding, measured against the largest element."""
    largest = float(expected.float().abs().max())
    worst = float((got.float() - expected.float()).abs().max())
    return worst <= TOLERANCE[expected.dtype] * largest
