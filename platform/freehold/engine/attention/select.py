"""Chooses the attention backend at start-up, from what the machine and the model are.

``auto`` takes the fastest that can do all the model asks for; a named one is taken or refused,
never silently replaced. The choice is in the log and in the model's card.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from freehold.engine.attention import flash_backend
from freehold.engine.attention.cpu_backend import CpuAttention
from freehold.engine.attention.flash_backend import FlashAttention
from freehold.engine.attention.flashinfer_backend import FlashInferAttention, is_installed
from freehold.engine.attention.torch_backend import TorchAttention
from freehold.engine.native.library import DTYPE_CODES, KernelUnavailable, native_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from freehold.engine.attention.protocol import AttentionBackend

BackendName = Literal["auto", "cpu", "flash", "flashinfer", "torch"]

_HALF = (torch.bfloat16, torch.float16)


def choose_backend(
    name: BackendName, *, dtype: torch.dtype, device: torch.device, has_softcap: bool
) -> AttentionBackend:
    """The backend called ``name``, or the first of cpu, flash, flashinfer, torch that can run.

    Raises:
        KernelUnavailable: a backend was named that cannot run here; says why.
    """
    candidates: dict[str, Callable[[], AttentionBackend | str]] = {
        "cpu": lambda: _cpu(dtype, device),
        "flash": lambda: _flash(dtype, device, has_softcap=has_softcap),
        "flashinfer": lambda: _flashinfer(dtype, device),
        "torch": TorchAttention,
    }
    if name != "auto":
        candidates = {name: candidates[name]}
    reason = ""
    for make in candidates.values():
        backend = make()
        if not isinstance(backend, str):
            return backend
        reason = backend
    what = f"attention backend {name}"
    raise KernelUnavailable(what, reason)


def _cpu(dtype: torch.dtype, device: torch.device) -> AttentionBackend | str:
    """The backend, or why it cannot run; so the other two."""
    if device.type != "cpu":
        return f"the model is on {device.type}"
    if dtype not in DTYPE_CODES:
        return f"it has no kernel for {dtype}"
    library = native_library()
    return CpuAttention(library) if library else "it could not be compiled (the log says why)"


def _flash(
    dtype: torch.dtype, device: torch.device, *, has_softcap: bool
) -> AttentionBackend | str:
    if device.type != "cuda" or dtype not in _HALF:
        return f"it needs CUDA and a 16-bit type, not {device.type} and {dtype}"
    if has_softcap:
        return "the model caps its attention scores, which FlashAttention cannot"
    implementation = flash_backend.activate(device)
    if implementation is None:
        return "FlashAttention 3 or 4 is not installed for this device"
    return FlashAttention(implementation)


def _flashinfer(dtype: torch.dtype, device: torch.device) -> AttentionBackend | str:
    if device.type != "cuda" or dtype not in _HALF:
        return f"it needs CUDA and a 16-bit type, not {device.type} and {dtype}"
    if not is_installed():
        return "FlashInfer is not installed"
    return FlashInferAttention(device)
