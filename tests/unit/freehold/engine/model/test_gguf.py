"""A GGUF file becomes a folder, once, and the model in it answers as the original."""
# transformers is only partly typed:
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from freehold.engine.model import gguf
from freehold.engine.model.load import load_model
from freehold.engine.model.source import GgufFile, LocalFolder
from tests.support.tiny_gguf import write_gguf
from tests.support.tiny_models import make_tiny_model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FREEHOLD_CACHE", str(tmp_path / "cache"))
    folder = make_tiny_model(tmp_path / "original")
    write_gguf(folder, tmp_path / "tiny.gguf")
    return folder


def test_weights_and_tokenizer_survive(folder: Path) -> None:
    original = load_model(LocalFolder(folder), dtype="float32")
    converted = load_model(GgufFile(folder.parent / "tiny.gguf"), dtype="float32")
    ids = torch.arange(3, 60).unsqueeze(0)
    torch.testing.assert_close(converted.model(ids).logits, original.model(ids).logits)
    text = "the rain in Spain, 世界 🙂"
    assert converted.tokenizer(text).input_ids == original.tokenizer(text).input_ids
    assert converted.eos_token_ids == original.eos_token_ids


def test_a_file_is_converted_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = GgufFile(folder.parent / "tiny.gguf")
    first = source.folder()
    monkeypatch.setattr(gguf, "convert_gguf", None)  # a second call would fail
    assert source.folder() == first


def test_a_changed_file_is_another_model(folder: Path) -> None:
    path = folder.parent / "tiny.gguf"
    first = GgufFile(path).folder()
    make_tiny_model(folder, seed=1)
    write_gguf(folder, path)
    assert GgufFile(path).folder() != first


def test_a_failed_conversion_leaves_nothing_behind(folder: Path) -> None:
    path = folder.parent / "broken.gguf"
    path.write_bytes(b"GGUF but not really")
    with pytest.raises(Exception, match=r"."):
        GgufFile(path).folder()
    converted = folder.parent / "cache" / "converted"
    assert not converted.exists() or not list(converted.iterdir())
