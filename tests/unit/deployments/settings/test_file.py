from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from deployments.settings import InvalidSettings, Settings, load_settings

if TYPE_CHECKING:
    from deployments.settings.schema import Section

EXAMPLE = Path(__file__).parents[4] / "freehold.example.yaml"
MINIMAL = "models: [{name: tiny, path: models/tiny}]\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "freehold.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def problems(folder: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(InvalidSettings) as caught:
        load_settings(write(folder, text))
    return caught.value.problems


def test_relative_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, MINIMAL))

    assert settings.service.state_dir == tmp_path / ".freehold"
    assert settings.models[0].path == tmp_path / "models/tiny"
    assert settings.master_key_file == tmp_path / ".freehold/master.key"
    assert settings.database_url == f"sqlite+aiosqlite:///{tmp_path}/.freehold/control.db"


def test_absolute_paths_stay(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, MINIMAL + "service: {state_dir: /var/lib/freehold}\n"))

    assert settings.service.state_dir == Path("/var/lib/freehold")


def test_the_environment_wins_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FREEHOLD__SERVICE__PORT", "8123")
    path = write(tmp_path, MINIMAL + "service: {port: 9000, host: 0.0.0.0}\n")

    service = load_settings(path).service

    assert (service.port, service.host) == (8123, "0.0.0.0")  # noqa: S104  # only parsed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "models: [{name: a, path: x, kv_block: 3}]",
            "models[0].kv_block: unknown, did you mean kv_blocks",
        ),
        (MINIMAL + "service: {prot: 1}", "service.prot: unknown, did you mean port"),
        (MINIMAL + "servcie: {port: 1}", "servcie: unknown, did you mean service"),
        (
            MINIMAL + "tenancy: {zzz: 1}",
            "tenancy.zzz: unknown, known here: database_url, master_key_file",
        ),
        (
            MINIMAL + "service: {port: 70000}",
            "service.port: Input should be less than or equal to 65535",
        ),
        ("models: [{name: a}]", "models[0]: give exactly one of path, repo and gguf"),
        (
            "models: [{name: a, path: x, kv_blocks: 1, kv_bytes: 1}]",
            "models[0]: give kv_blocks or kv_bytes, not both",
        ),
        ("service: {port: 1}", "models: Field required"),
        ("[1, 2]", "must be a mapping of sections at the top level"),
        ("a: [1", "not valid YAML at line 1, column 6"),
    ],
)
def test_a_mistake_is_named_by_its_path(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(tmp_path, text) == (problem,)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, "models: [{name: a, path: x, kvblocks: 3}]\nservice: {port: 0}\n")

    assert [problem.split(":")[0] for problem in found] == ["service.port", "models[0].kvblocks"]


def test_an_unknown_variable_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FREEHOLD__SERVIC__PORT", "8123")

    assert problems(tmp_path, MINIMAL) == (
        "FREEHOLD__SERVIC__PORT: unknown section 'servic', did you mean service",
    )


def test_values_are_never_repeated(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings) as caught:
        load_settings(write(tmp_path, MINIMAL + "tenancy: {database_url: [hunter2]}\n"))

    assert "hunter2" not in str(caught.value)
    settings = load_settings(write(tmp_path, MINIMAL + "tenancy: {database_url: 'x:hunter2'}\n"))
    assert "hunter2" not in repr(settings)
    assert settings.database_url == "x:hunter2"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"nowhere\.yaml: No such file or directory"):
        load_settings(tmp_path / "nowhere.yaml")


def test_the_example_names_every_setting_with_its_default(tmp_path: Path) -> None:
    """Each key of the schema appears, live or commented, and a live one has the default."""
    text = EXAMPLE.read_text(encoding="utf-8")
    shown = load_settings(write(tmp_path, text))
    defaults = load_settings(write(tmp_path, f"models: {yaml.safe_load(text)['models']}\n"))

    assert shown == defaults
    sections: dict[str, Section] = {
        "service": shown.service,
        "models": shown.models[0],
        "gateway": shown.gateway,
        "tenancy": shown.tenancy,
        "ray": shown.ray,
    }
    assert set(sections) == set(Settings.model_fields)
    for name, section in sections.items():
        assert f"\n{name}:" in text, name
        for key in type(section).model_fields:
            assert f" {key}:" in text, f"{name}.{key}"
