"""Compiles ``csrc/`` into a shared library, once for each source, compiler and processor.

Decides flags and the place in the cache folder. Refuses to know what the library does; no
compiler, or one that fails, is an expected outcome and a reason in words.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch

from freehold.engine.cache_dir import atomic_folder, cache_root

CSRC = Path(__file__).parent / "csrc"
FLAGS = (
    "-O3",
    "-march=native",
    "-fopenmp",
    "-std=c++17",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
)
COMPILE_TIMEOUT_S = 300
LIBRARY = "libfreehold.so"


@dataclass(frozen=True, slots=True)
class BuildFailed:
    """Why there is no library."""

    reason: str


def build() -> Path | BuildFailed:
    """The compiled library; takes some ten seconds the first time, nothing afterwards."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        return BuildFailed("no C++ compiler was found (c++, g++ or $CXX)")
    try:
        version = _run([compiler, "--version"])
        folder = cache_root() / "native" / _key(version)
        if not (folder / LIBRARY).is_file():
            with atomic_folder(folder) as scratch:
                sources = sorted(str(path) for path in CSRC.glob("*.cpp"))
                _run([compiler, *FLAGS, "-o", str(scratch / LIBRARY), *sources])
    except subprocess.CalledProcessError as error:
        return BuildFailed(f"{compiler} failed: {error.stderr[-2000:]}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return BuildFailed(str(error))
    return folder / LIBRARY


def _key(compiler_version: str) -> str:
    """Everything that the machine code depends on; -march=native makes the processor part of it."""
    digest = hashlib.sha256()
    for path in sorted(CSRC.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    processor = dict(torch.cpu.get_capabilities())
    facts = [FLAGS, compiler_version, processor, torch.__version__]
    digest.update(json.dumps(facts, sort_keys=True, default=str).encode())
    return digest.hexdigest()[:16]


def _run(command: list[str]) -> str:
    result = subprocess.run(  # noqa: S603  # no shell; the compiler is the system's or $CXX's
        command, capture_output=True, text=True, check=True, timeout=COMPILE_TIMEOUT_S
    )
    return result.stdout
