"""The compiled library's functions with their C types; None where it could not be compiled.

Loaded after torch (``build`` imports it) on purpose: both name ``libgomp.so.1``, so they share one
pool of OpenMP threads instead of two that fight for the cores. A call releases the GIL.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

import structlog
import torch

from freehold.engine.native.build import BuildFailed, build
from freehold.errors import FreeholdError

if TYPE_CHECKING:
    from pathlib import Path

_POINTER, _INT, _LONG, _FLOAT = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_float

DTYPE_CODES = {torch.float32: 0, torch.bfloat16: 1}
"""As the C++ knows them; others have no kernel."""


class KernelUnavailable(FreeholdError):
    """The settings name a way to compute that this machine or model does not allow."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.what} is not available: {self.reason}"


class NativeLibrary:
    """ctypes functions; pointers are ``Tensor.data_ptr()``. Shapes are said in the C++."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self.paged_attention = library.freehold_paged_attention
        self.paged_attention.restype = None
        self.paged_attention.argtypes = [
            _INT,
            *[_POINTER] * 10,
            *[_LONG] * 3,
            *[_INT] * 3,
            _FLOAT,
            _LONG,
            _FLOAT,
            _INT,
        ]
        self.linear = library.freehold_linear
        self.linear.restype = None
        self.linear.argtypes = [_INT, *[_POINTER] * 4, *[_LONG] * 3, _INT]
        self.argmax = library.freehold_argmax
        self.argmax.restype = None
        self.argmax.argtypes = [_INT, _POINTER, _LONG, _LONG, _POINTER, _INT]
        self.rms_norm = library.freehold_rms_norm
        self.rms_norm.restype = None
        self.rms_norm.argtypes = [_INT, *[_POINTER] * 3, *[_LONG] * 2, _FLOAT, _INT, _INT]
        self.silu_gate = library.freehold_silu_gate
        self.silu_gate.restype = None
        self.silu_gate.argtypes = [_INT, *[_POINTER] * 3, *[_LONG] * 2, _INT]
        self.rotate = library.freehold_rotate
        self.rotate.restype = None
        self.rotate.argtypes = [_INT, *[_POINTER] * 4, *[_LONG] * 5, _INT]
        self.has_native_bf16 = bool(library.freehold_has_bf16())


@cache
def native_library() -> NativeLibrary | None:
    """The library, compiled on first use; None (and one warning in the log) if that failed."""
    log = structlog.get_logger()
    built = build()
    if isinstance(built, BuildFailed):
        log.warning("native_kernels_unavailable", reason=built.reason, fallback="torch")
        return None
    log.debug("native_kernels_loaded", path=str(built))
    return NativeLibrary(built)
