"""GGUF in, a plain Hugging Face folder (safetensors, tokenizer, chat template) out, once.

Decides how the file is converted, not where the result is kept. Weights are dequantized to
float32, which is exact; loading the result takes a fraction of a second where GGUF takes many.
"""
# transformers is only partly typed:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from freehold.engine.cache_dir import atomic_folder, cache_root

if TYPE_CHECKING:
    from pathlib import Path


def converted_folder(gguf: Path) -> Path:
    """The folder of the converted ``gguf``, made now if it was not before.

    A file that changed (size or time) is another file.
    """
    stat = gguf.stat()
    identity = json.dumps([str(gguf.resolve()), stat.st_size, stat.st_mtime_ns])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    target = cache_root() / "converted" / f"{gguf.stem}-{digest}"
    if not target.is_dir():
        convert_gguf(gguf, target)
    return target


def convert_gguf(gguf: Path, target: Path) -> None:
    """Write the model in ``gguf`` as a folder that ``from_pretrained`` reads; all or nothing."""
    folder, name = str(gguf.parent), gguf.name
    loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    config = loaded.config
    # A model that came from GGUF refuses to be saved, so its weights move to a fresh one that
    # was never quantized.
    vars(config).pop("quantization_config")
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    with atomic_folder(target) as scratch:
        model.save_pretrained(scratch)
        AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(scratch)
