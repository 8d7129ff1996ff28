"""Where weights come from: a local folder, the Hugging Face cache or hub, a GGUF file.

Decides how each becomes a folder of safetensors on this machine; pickled weights (``.bin``) are
never read, because reading them runs whatever code they carry.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import (
    snapshot_download,  # pyright: ignore[reportUnknownVariableType]  # its progress-bar class is generic
)
from huggingface_hub.errors import LocalEntryNotFoundError

from freehold.errors import FreeholdError

_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt"]


class ModelNotFound(FreeholdError):
    """There is no model where the settings say one is."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def __str__(self) -> str:
        return f"no model at {self.where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder as ``save_pretrained`` writes it."""

    path: Path

    def folder(self) -> Path:
        path = self.path.expanduser()
        if not (path / "config.json").is_file():
            raise ModelNotFound(str(path), "the folder has no config.json")
        return path


@dataclass(frozen=True, slots=True)
class HubRepo:
    """A repository on the Hugging Face hub; what the local cache has is not fetched again."""

    repo_id: str
    revision: str | None = None

    def folder(self) -> Path:
        try:
            return self._snapshot(local_files_only=True)
        except LocalEntryNotFoundError:
            pass
        try:
            return self._snapshot(local_files_only=False)
        except (OSError, ValueError) as error:
            raise ModelNotFound(self.repo_id, f"the Hugging Face hub said: {error}") from error

    def _snapshot(self, *, local_files_only: bool) -> Path:
        path = Path(
            snapshot_download(
                self.repo_id,
                revision=self.revision,
                allow_patterns=_PATTERNS,
                local_files_only=local_files_only,
            )
        )
        # A cache that holds the tokenizer only (a gateway's, say) is no model yet.
        if local_files_only and not any(path.glob("*.safetensors")):
            raise LocalEntryNotFoundError(self.repo_id)
        return path


@dataclass(frozen=True, slots=True)
class GgufFile:
    """One GGUF file; converted once, see ``gguf``."""

    path: Path

    def folder(self) -> Path:
        path = self.path.expanduser()
        if not path.is_file():
            raise ModelNotFound(str(path), "there is no such file")
        # Late: it brings torch, which whoever only wants a folder (a gateway) can do without.
        from freehold.engine.model.gguf import converted_folder

        return converted_folder(path)


ModelSource = LocalFolder | HubRepo | GgufFile
