"""Replaces a model's linear layers by ones whose weights are packed for the CPU, at load.

``packed`` is our own kernel (``native/csrc/gemm.cpp``): as fast as memory allows for few rows, and
each output one chain over the input channels, so results do not depend on the batch. ``onednn``
needs no compiler. ``torch`` leaves the model alone. The packed copy replaces the weights in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from freehold.engine.native.library import DTYPE_CODES, KernelUnavailable, native_library

if TYPE_CHECKING:
    from freehold.engine.native.library import NativeLibrary

LinearsName = Literal["auto", "packed", "onednn", "torch"]
_Replacement = Callable[[nn.Linear], nn.Module]
PANEL = 32
"""Output columns that lie together in the packed weights."""


class PackedLinear(nn.Module):
    """``nn.Linear`` by our kernel; the weights as ``[panels, channels / group, PANEL, group]``."""

    packed: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, linear: nn.Linear, library: NativeLibrary) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._library = library
        self._dtype_code = DTYPE_CODES[linear.weight.dtype]
        self.register_buffer("packed", pack(linear.weight), persistent=False)
        bias = _bias(linear)
        bias = None if bias is None else bias.float().contiguous()
        self.register_buffer("bias", bias, persistent=False)
        self._packed_pointer = self.packed.data_ptr()
        self._bias_pointer = None if bias is None else bias.data_ptr()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = x.new_empty((*x.shape[:-1], self.out_features))
        self._library.linear(
            self._dtype_code,
            x.data_ptr(),
            self._packed_pointer,
            self._bias_pointer,
            out.data_ptr(),
            x.numel() // self.in_features,
            self.in_features,
            self.out_features,
            torch.get_num_threads(),
        )
        return out


def pack(weight: torch.Tensor) -> torch.Tensor:
    """``[columns, channels]`` → panels; columns are padded with zeros to a whole panel."""
    columns, channels = weight.shape
    group = 2 if weight.dtype == torch.bfloat16 else 1
    padded = nn.functional.pad(weight, (0, 0, 0, -columns % PANEL))
    panels = padded.view(-1, PANEL, channels // group, group)
    return panels.permute(0, 2, 1, 3).contiguous()


class OneDnnLinear(nn.Module):
    """``nn.Linear`` over weights in oneDNN's own blocked layout."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight)
        self._bias = linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._weight, self._bias, "none", [], ""
        )
        return out


def replace_linears(model: nn.Module, name: LinearsName) -> str:
    """Replace every ``nn.Linear`` that the kernel can do; returns what was taken, for the log.

    ``auto``: ``packed`` if it runs here, else ``onednn`` in bfloat16, else ``torch``.

    Raises:
        KernelUnavailable: one was named that cannot run here; says why.
    """
    weight = next(model.parameters())
    candidates: dict[str, Callable[[], _Replacement | str]] = {
        "packed": lambda: _packed(weight),
        "onednn": lambda: _onednn(weight),
        "torch": lambda: _keep,
    }
    if name != "auto":
        candidates = {name: candidates[name]}
    reason = ""
    for chosen, find in candidates.items():
        replacement = find()
        if not isinstance(replacement, str):
            _replace(model, replacement)
            return chosen
        reason = replacement
    what = f"linears {name}"
    raise KernelUnavailable(what, reason)


def _replace(model: nn.Module, replacement: _Replacement) -> None:
    for module in list(model.modules()):
        for child_name, child in list(module.named_children()):
            # Exactly nn.Linear: a subclass may compute something else. The bfloat16 kernel takes
            # input channels in pairs; no model has an odd number.
            if type(child) is nn.Linear and child.in_features % 2 == 0:
                setattr(module, child_name, replacement(child))


def _packed(weight: torch.Tensor) -> _Replacement | str:
    """The replacement, or why it cannot run; so ``_onednn``."""
    if weight.device.type != "cpu" or weight.dtype not in DTYPE_CODES:
        return f"there is no kernel for {weight.dtype} on {weight.device.type}"
    library = native_library()
    if library is None:
        return "the kernel could not be compiled (the log says why)"
    if weight.dtype == torch.bfloat16 and not library.has_native_bf16:
        return "this processor has no bfloat16 instructions"
    return lambda linear: PackedLinear(linear, library)


def _onednn(weight: torch.Tensor) -> _Replacement | str:
    if weight.device.type != "cpu" or weight.dtype != torch.bfloat16:
        return f"it gains nothing for {weight.dtype} on {weight.device.type}"
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch's
        return "torch was built without oneDNN"
    return OneDnnLinear


def _keep(linear: nn.Linear) -> nn.Module:
    return linear


def _bias(linear: nn.Linear) -> torch.Tensor | None:
    """torch types it as always there."""
    return linear.bias
