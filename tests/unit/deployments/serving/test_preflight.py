from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from deployments.serving import preflight
from deployments.settings import InvalidSettings, ModelSettings, ServiceSettings, Settings
from deployments.stores.master_key import MasterKeyUnusable, create_master_key_file
from freehold.errors import FreeholdError

if TYPE_CHECKING:
    from pathlib import Path


def write_config(model: Path, architecture: str) -> None:
    model.mkdir(exist_ok=True)
    config = {"architectures": [architecture], "model_type": "llama"}
    (model / "config.json").write_text(json.dumps(config))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    model = tmp_path / "model"
    write_config(model, "LlamaForCausalLM")
    state = tmp_path / "state"
    state.mkdir()
    return Settings(
        service=ServiceSettings(state_dir=state), models=(ModelSettings(name="a", path=model),)
    )


def test_what_can_start_passes(settings: Settings) -> None:
    create_master_key_file(settings.master_key_file)

    preflight.check(settings)


def test_no_master_key(settings: Settings) -> None:
    with pytest.raises(MasterKeyUnusable):
        preflight.check(settings)


def test_another_master_key_than_the_databases(settings: Settings) -> None:
    create_master_key_file(settings.master_key_file)
    preflight.check(settings)
    settings.master_key_file.unlink()
    create_master_key_file(settings.master_key_file)

    with pytest.raises(FreeholdError):
        preflight.check(settings)


def test_a_model_of_an_unknown_kind_is_refused_by_name(settings: Settings, tmp_path: Path) -> None:
    write_config(tmp_path / "model", "GPT2LMHeadModel")

    with pytest.raises(InvalidSettings, match=r"models\[0\]\.path: .*GPT2LMHeadModel"):
        preflight.check(settings)


def test_a_damaged_configuration_is_no_traceback(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "model" / "config.json").write_text("{")

    with pytest.raises(InvalidSettings, match="is not JSON"):
        preflight.check(settings)


def test_every_model_that_is_not_there_is_named(settings: Settings, tmp_path: Path) -> None:
    models = (
        *settings.models,
        ModelSettings(name="b", path=tmp_path / "none"),
        ModelSettings(name="c", gguf=tmp_path / "c.gguf"),
    )
    with pytest.raises(InvalidSettings) as caught:
        preflight.check(settings.model_copy(update={"models": models}))

    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "models[1].path",
        "models[2].gguf",
    ]
