"""Compiling once, and what happens where nothing can be compiled."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
import torch

from freehold.engine.native import build as build_module
from freehold.engine.native import library as library_module
from freehold.engine.native.build import LIBRARY, BuildFailed, build
from freehold.engine.native.library import native_library

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FREEHOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that writes the word "code" and keeps a log of its calls."""
    path = tmp_path / "c++"
    path.write_text(
        "#!/bin/sh\n"
        f'echo call >> "{tmp_path}/calls"\n'
        'while [ $# -gt 0 ]; do case $1 in -o) shift; echo code > "$1";; esac; shift; done\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return tmp_path / "calls"


def test_the_second_build_compiles_nothing(compiler: Path) -> None:
    first = build()
    assert not isinstance(first, BuildFailed)
    assert first.name == LIBRARY
    assert first.read_text() == "code\n"
    assert build() == first
    # Asked for its version twice, compiled once.
    assert compiler.read_text().count("call") == 3


def test_other_flags_are_another_library(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build()
    monkeypatch.setattr(build_module, "FLAGS", ("-O0",))
    assert build() != first
    assert compiler.read_text().count("call") == 4


def test_another_processor_is_another_library(
    compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build()
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    assert build() != first
    assert compiler.read_text().count("call") == 4


def test_no_compiler_is_a_reason_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert build() == BuildFailed("no C++ compiler was found (c++, g++ or $CXX)")


def test_a_compiler_that_fails_leaves_nothing_behind(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "/bin/false")
    failed = build()
    assert isinstance(failed, BuildFailed)
    assert "/bin/false failed" in failed.reason
    assert not list(cache.rglob(LIBRARY))


def test_a_missing_or_endless_compiler_is_a_reason_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert isinstance(build(), BuildFailed)

    def endless(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("c++", 300)  # noqa: EM101  # a command

    monkeypatch.setattr(subprocess, "run", endless)
    assert isinstance(build(), BuildFailed)


@pytest.fixture
def _forget_library() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    native_library.cache_clear()
    yield
    native_library.cache_clear()


@pytest.mark.usefixtures("_forget_library")
def test_a_failed_build_is_said_once_and_gives_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(library_module, "build", lambda: BuildFailed("no luck today"))
    assert native_library() is None
    assert native_library() is None
    assert capsys.readouterr().out.count("no luck today") == 1
