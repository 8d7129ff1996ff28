"""Loads a model: source → folder → checked configuration → weights, tokenizer and fingerprint.

Decides dtype and device where the settings say ``auto``. Knows nothing of steps or of the pool's
size; refuses what ``families`` refuses, before any weight is read.
"""
# transformers is only partly typed:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from freehold.engine.model.families import (
    AttentionShape,
    attention_shape,
    check_supported,
    max_model_len,
)
from freehold.engine.model.fingerprint import fingerprint
from freehold.engine.model.source import ModelNotFound

if TYPE_CHECKING:
    from pathlib import Path

    from freehold.engine.model.source import ModelSource

DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
BLOCK_SIZES = (16, 32, 64)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model in memory and what others must know of it."""

    model: torch.nn.Module
    """A ``…ForCausalLM`` of Hugging Face, unmodified, in evaluation mode."""
    tokenizer: PreTrainedTokenizerBase
    folder: Path
    """Holds configuration, tokenizer and chat template, whatever the source was."""
    fingerprint: str
    architecture: str
    shape: AttentionShape
    dtype: torch.dtype
    device: torch.device
    block_size: int
    """Part of the fingerprint: keys made for other blocks name nothing here."""
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @property
    def kv_bytes_per_block(self) -> int:
        return self.block_size * self.shape.kv_bytes_per_token(self.dtype.itemsize)


def load_model(
    source: ModelSource,
    *,
    dtype: DtypeName = "auto",
    device: str = "auto",
    block_size: int = 16,
    max_len: int | None = None,
) -> LoadedModel:
    """Load ``source``; ``max_len`` may lower the model's own limit, never raise it.

    Raises:
        UnsupportedModel: the architecture, by name and reason.
        ModelNotFound: nothing to load there, or no safetensors in it.
        ValueError: the block size is not one of ``BLOCK_SIZES``.
    """
    if block_size not in BLOCK_SIZES:
        message = f"block size {block_size} is not one of {BLOCK_SIZES}"
        raise ValueError(message)
    folder = source.folder()
    architecture = check_supported(json.loads((folder / "config.json").read_text()))
    if not any(folder.glob("*.safetensors")):
        raise ModelNotFound(str(folder), "it has no .safetensors; other formats are not read")

    config = AutoConfig.from_pretrained(folder)
    facts: dict[str, Any] = config.to_dict()
    shape = attention_shape(facts, architecture)
    target = torch.device(_device(device))
    weights_dtype = _dtype(dtype, target)
    model = _read_weights(folder, config, weights_dtype)
    model.to(target).eval().requires_grad_(False)
    limit = max_model_len(facts)
    return LoadedModel(
        model=model,
        tokenizer=AutoTokenizer.from_pretrained(folder),
        folder=folder,
        fingerprint=fingerprint(
            folder,
            facts,
            dtype=str(weights_dtype),
            layout={
                "block_size": block_size,
                "num_layers": shape.num_layers,
                "num_kv_heads": shape.num_kv_heads,
                "head_dim": shape.head_dim,
            },
        ),
        architecture=architecture,
        shape=shape,
        dtype=weights_dtype,
        device=target,
        block_size=block_size,
        max_model_len=min(limit, max_len or limit),
        vocab_size=int(facts["vocab_size"]),
        eos_token_ids=_eos_token_ids(folder, facts),
    )


def _read_weights(folder: Path, config: PreTrainedConfig, dtype: torch.dtype) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=dtype, use_safetensors=True
    )


def free_device_bytes(device: torch.device) -> int | None:
    """Memory that is free on a GPU; None for the CPU, which has the machine's."""
    if device.type != "cuda":
        return None
    free, _total = torch.cuda.mem_get_info(device)
    return free


def _device(name: str) -> str:
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def _dtype(name: DtypeName, device: torch.device) -> torch.dtype:
    """``auto`` is bfloat16 where the hardware multiplies it, else what is fast and exact."""
    if name != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[
            name
        ]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    # Emulated bfloat16 on a CPU is slower than float32 (4.5 times faster where it is native).
    capabilities: dict[str, Any] = dict(torch.cpu.get_capabilities())
    native = capabilities.get("avx512_bf16") or capabilities.get("bf16")
    return torch.bfloat16 if native else torch.float32


def _eos_token_ids(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """The generation configuration knows more than the model's (chat models often have several)."""
    value: int | list[int] | None = config.get("eos_token_id")
    if (folder / "generation_config.json").is_file():
        value = GenerationConfig.from_pretrained(folder).eos_token_id or value
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)
