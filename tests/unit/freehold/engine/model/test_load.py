"""From a folder to a loaded model, and the fingerprint that names it."""
# safetensors' paths are only partly typed:
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from freehold.engine.model.fingerprint import file_digest
from freehold.engine.model.load import LoadedModel, load_model
from freehold.engine.model.source import GgufFile, HubRepo, LocalFolder, ModelNotFound
from freehold.errors import UnsupportedModel
from tests.support.tiny_models import make_tiny_model

MAX_LEN = 1024


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), max_model_len=MAX_LEN)


@pytest.fixture
def folder(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to spoil, with a digest cache of its own."""
    monkeypatch.setenv("FREEHOLD_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(original, tmp_path / "model"))


def load(folder: Path, **options: object) -> LoadedModel:
    return load_model(LocalFolder(folder), **{"dtype": "float32", **options})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a test's shorthand


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_facts_of_a_loaded_model(folder: Path) -> None:
    loaded = load(folder)
    assert loaded.architecture == "LlamaForCausalLM"
    assert loaded.dtype_name == "float32"
    assert loaded.max_model_len == MAX_LEN
    assert loaded.eos_token_ids == (2,)
    assert loaded.kv_bytes_per_block == 16 * 2 * 2 * 2 * 16 * 4
    assert not loaded.model.training
    assert len(loaded.fingerprint) == 32


def test_a_limit_may_be_lowered_never_raised(folder: Path) -> None:
    assert load(folder, max_len=100).max_model_len == 100
    assert load(folder, max_len=10**6).max_model_len == MAX_LEN


def test_generation_config_knows_all_end_tokens(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}))
    assert load(folder).eos_token_ids == (2, 7)


@pytest.mark.parametrize("has_bf16", [False, True])
def test_auto_dtype_is_bfloat16_only_where_the_processor_multiplies_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, has_bf16: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": has_bf16})
    expected = torch.bfloat16 if has_bf16 else torch.float32
    assert load(folder, dtype="auto", device="cpu").dtype is expected


def test_unsupported_models_are_refused_before_weights_are_read(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"not weights")
    edit_config(folder, model_type="gpt_oss", architectures=["GptOssForCausalLM"])
    with pytest.raises(UnsupportedModel, match=r"GptOssForCausalLM.*sinks"):
        load(folder)


def test_pickled_weights_are_not_read(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelNotFound, match=r"no \.safetensors"):
        load(folder)


def test_missing_models_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelNotFound, match=r"nowhere.*config\.json"):
        LocalFolder(tmp_path / "nowhere").folder()
    with pytest.raises(ModelNotFound, match=r"nothing\.gguf.*no such file"):
        GgufFile(tmp_path / "nothing.gguf").folder()

    def unreachable(*_: object, local_files_only: bool, **__: object) -> str:
        if local_files_only:
            from huggingface_hub.errors import LocalEntryNotFoundError

            raise LocalEntryNotFoundError("x")  # noqa: EM101
        raise OSError("no network")  # noqa: EM101

    monkeypatch.setattr("freehold.engine.model.source.snapshot_download", unreachable)
    with pytest.raises(ModelNotFound, match=r"some/model.*no network"):
        HubRepo("some/model").folder()


def test_the_hub_is_not_asked_for_what_the_cache_has(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cached(*_: object, local_files_only: bool, **__: object) -> str:
        assert local_files_only, "asked the hub"
        return str(folder)

    monkeypatch.setattr("freehold.engine.model.source.snapshot_download", cached)
    assert HubRepo("some/model").folder() == folder


def test_block_sizes_that_the_kernels_do_not_know_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="block size 20"):
        load(folder, block_size=20)


class TestFingerprint:
    def test_is_stable(self, folder: Path, tmp_path: Path) -> None:
        again = Path(shutil.copytree(folder, tmp_path / "elsewhere"))
        assert load(folder).fingerprint == load(folder).fingerprint == load(again).fingerprint

    def test_ignores_what_says_nothing_about_the_numbers(self, folder: Path) -> None:
        before = load(folder).fingerprint
        edit_config(folder, transformers_version="9.9", use_cache=False)
        (folder / "README.md").write_text("hello")
        assert load(folder).fingerprint == before

    def test_changes_with_one_weight(self, folder: Path) -> None:
        before = load(folder).fingerprint
        path = folder / "model.safetensors"
        weights = load_file(path)
        weights["model.norm.weight"][3] += 1e-3
        save_file(weights, path, metadata={"format": "pt"})
        assert load(folder).fingerprint != before

    def test_changes_with_dtype_and_layout(self, folder: Path) -> None:
        prints = {
            load(folder).fingerprint,
            load(folder, dtype="bfloat16").fingerprint,
            load(folder, block_size=32).fingerprint,
        }
        assert len(prints) == 3

    def test_changes_with_rope(self, folder: Path) -> None:
        before = load(folder).fingerprint
        edit_config(folder, rope_parameters={"rope_type": "default", "rope_theta": 50_000.0})
        assert load(folder).fingerprint != before

    def test_changes_with_the_tokenizer(self, folder: Path) -> None:
        before = load(folder).fingerprint
        path = folder / "tokenizer.json"
        path.write_text(path.read_text() + "\n")
        assert load(folder).fingerprint != before

    def test_a_digest_is_remembered_until_the_file_changes(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        first = file_digest(path)
        stat = path.stat()
        path.write_text("x" * stat.st_size)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert file_digest(path) == first, "same path, size and time: not read again"
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
        assert file_digest(path) != first
