"""Chooses the attention backend at start-up, from what the machine and the model are.

``auto`` takes the fastest that can do all the model asks for and says so in the log; a named one
is taken or refused, never silently replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from freehold.engine.attention.cpu_backend import DTYPE_CODES, CpuAttention
from freehold.engine.attention.torch_backend import TorchAttention
from freehold.engine.native.library import native_library
from freehold.errors import FreeholdError

if TYPE_CHECKING:
    import torch

    from freehold.engine.attention.protocol import AttentionBackend

BackendName = Literal["auto", "cpu", "torch", "flash", "flashinfer"]


class BackendUnavailable(FreeholdError):
    """The attention backend that the settings name cannot run here."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"attention backend {self.name!r} is not available: {self.reason}"


def choose_backend(
    name: BackendName, *, dtype: torch.dtype, device: torch.device
) -> AttentionBackend:
    """The backend called ``name``, or the best one for ``auto``.

    Raises:
        BackendUnavailable: a backend was named that cannot run here; says why.
    """
    if name == "torch":
        return TorchAttention()
    if name in ("cpu", "auto") and device.type == "cpu":
        library = native_library()
        if library is not None and dtype in DTYPE_CODES:
            return CpuAttention(library)
        if name == "cpu":
            raise BackendUnavailable(name, f"no compiled kernel for {dtype} (see the log)")
        return TorchAttention()
    raise BackendUnavailable(name, f"it does not run on {device.type}")
