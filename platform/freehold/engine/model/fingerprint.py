"""The fingerprint of a loaded model: what cached keys and values depend on besides the tokens.

Covers the weights' content, dtype, tokenizer, configuration (rope and attention included) and the
KV layout. It is part of every block key, so a changed model can never hit another's cache.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from freehold.engine.cache_dir import cache_root, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

VERSION = "v1"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)
_VOLATILE = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache"}
"""Configuration entries that say nothing about the numbers (the dtype in use is passed apart)."""


def fingerprint(
    folder: Path, config: Mapping[str, Any], *, dtype: str, layout: Mapping[str, int]
) -> str:
    """32 hex digits. ``config`` is complete; ``layout`` names the KV pool's dimensions.

    Reading the weights costs about a second per 2 GB the first time, nothing afterwards.
    """
    facts = {
        "version": VERSION,
        "weights": _digests(sorted(folder.glob("*.safetensors"))),
        "tokenizer": _digests(
            path for name in TOKENIZER_FILES if (path := folder / name).is_file()
        ),
        "config": {key: value for key, value in config.items() if key not in _VOLATILE},
        "dtype": dtype,
        "layout": dict(layout),
    }
    canonical = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def _digests(files: Iterable[Path]) -> dict[str, str]:
    return {path.name: file_digest(path) for path in files}


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, remembered by path, size and modification time."""
    stat = path.stat()
    identity = json.dumps([str(path.resolve()), stat.st_size, stat.st_mtime_ns])
    record = cache_root() / "digests" / hashlib.sha256(identity.encode()).hexdigest()
    if record.is_file():
        return record.read_text()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        write_atomically(record, digest)
    except OSError:
        # A read-only cache folder costs time at the next start, nothing else.
        return digest
    return digest
