"""Refuses what can be refused before Ray starts: seconds instead of a replica's traceback.

Checks the database against the master key, and that models are where the settings say. Changes
nothing but the database's schema, which it brings up to date.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deployments.settings import InvalidSettings
from deployments.stores.control_plane import ControlPlane
from deployments.stores.master_key import load_master_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deployments.settings import ModelSettings, Settings

SETTINGS = "settings"


def check(settings: Settings) -> None:
    """
    Raises:
        InvalidSettings: a model's folder or file is not there.
        MasterKeyUnusable, StoreUnavailable, UnsealFailed
    """
    problems = tuple(_missing_models(settings.models))
    if problems:
        raise InvalidSettings(SETTINGS, problems)
    asyncio.run(_check_control_plane(settings))


async def _check_control_plane(settings: Settings) -> None:
    master_key = load_master_key(settings.master_key_file)
    plane = await ControlPlane.open(settings.database_url, master_key, follow=False)
    await plane.close()


def _missing_models(models: Iterable[ModelSettings]) -> Iterable[str]:
    for i, model in enumerate(models):
        if model.path is not None and not (model.path / "config.json").is_file():
            yield f"models[{i}].path: no config.json in {model.path}"
        if model.gguf is not None and not model.gguf.is_file():
            yield f"models[{i}].gguf: there is no file {model.gguf}"
