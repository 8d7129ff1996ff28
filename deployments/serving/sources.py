"""From a model's settings to where its files are. Imports no torch: the gateway needs it too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freehold.engine.model.source import GgufFile, HubRepo, LocalFolder, ModelSource

if TYPE_CHECKING:
    from deployments.settings import ModelSettings


def model_source(settings: ModelSettings) -> ModelSource:
    """The settings hold exactly one of the three (they are validated)."""
    if settings.path is not None:
        return LocalFolder(settings.path)
    if settings.gguf is not None:
        return GgufFile(settings.gguf)
    if settings.repo is None:
        message = "model settings without a source"
        raise ValueError(message)
    return HubRepo(settings.repo, settings.revision)
