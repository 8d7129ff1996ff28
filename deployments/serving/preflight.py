"""Refuses what can be refused before Ray starts: seconds instead of a replica's traceback.

Checks the database against the master key, that models are where the settings say, and that their
architecture is one that the engine knows. Changes
nothing but the database's schema, which it brings up to date.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from deployments.settings import InvalidSettings
from deployments.stores.control_plane import ControlPlane
from deployments.stores.master_key import load_master_key
from freehold.engine.model.families import check_supported
from freehold.errors import UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from deployments.settings import ModelSettings, Settings

SETTINGS = "settings"


def check(settings: Settings) -> None:
    """
    Raises:
        InvalidSettings: a model is not there, or is of a kind that cannot run here.
        MasterKeyUnusable, StoreUnavailable, UnsealFailed
    """
    problems = tuple(_model_problems(settings.models))
    if problems:
        raise InvalidSettings(SETTINGS, problems)
    asyncio.run(_check_control_plane(settings))


async def _check_control_plane(settings: Settings) -> None:
    master_key = load_master_key(settings.master_key_file)
    plane = await ControlPlane.open(settings.database_url, master_key, follow=False)
    await plane.close()


def _model_problems(models: Iterable[ModelSettings]) -> Iterable[str]:
    for i, model in enumerate(models):
        if model.path is not None and (problem := _folder_problem(model.path)) is not None:
            yield f"models[{i}].path: {problem}"
        if model.gguf is not None and not model.gguf.is_file():
            yield f"models[{i}].gguf: there is no file {model.gguf}"


def _folder_problem(folder: Path) -> str | None:
    config = folder / "config.json"
    try:
        check_supported(json.loads(config.read_text(encoding="utf-8")))
    except OSError:
        return f"no config.json in {folder}"
    except ValueError:
        return f"{config} is not JSON"
    except UnsupportedModel as error:
        return str(error)
    return None
