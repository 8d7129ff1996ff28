"""The compiled library's functions with their C types; None where it could not be compiled.

Loaded after torch (``build`` imports it) on purpose: both name ``libgomp.so.1``, so they share one pool of OpenMP threads
instead of two that fight for the cores. A call releases the GIL.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

import structlog

from freehold.engine.native.build import BuildFailed, build

if TYPE_CHECKING:
    from pathlib import Path

_POINTER, _INT, _LONG, _FLOAT = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_float


class NativeLibrary:
    """ctypes functions; pointers are ``Tensor.data_ptr()``. Layouts are said in the C++."""

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
