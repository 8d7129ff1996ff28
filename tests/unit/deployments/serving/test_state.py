from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from deployments.serving.state import (
    StateFolder,
    StateInUse,
    new_token,
    read_json,
    read_token,
    write_private,
    write_private_json,
)

if TYPE_CHECKING:
    from pathlib import Path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_is_private_even_if_it_was_not(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "state"
    folder.mkdir(parents=True, mode=0o755)

    StateFolder(folder).create()

    assert mode(folder) == 0o700


def test_one_service_at_a_time(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    with state.locked(), pytest.raises(StateInUse), state.locked():
        pass
    with state.locked():  # let go
        pass


def test_a_new_run_forgets_that_a_killed_one_was_ready(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    for path in (state.service_file, state.demo_file, state.ray_token):
        path.touch()

    state.forget_last_run()
    state.forget_last_run()

    assert list(tmp_path.iterdir()) == [state.ray_token]


def test_a_private_file_replaces_one_that_others_could_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o644)

    write_private(path, "new")

    assert (path.read_text(), mode(path)) == ("new", 0o600)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_private(path, "old")

    with pytest.raises(UnicodeEncodeError):
        write_private(path, "\ud800")

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_tokens_are_new_each_time_and_hide_in_texts(tmp_path: Path) -> None:
    path = tmp_path / "token"
    new_token(path)
    first = read_token(path)
    new_token(path)
    second = read_token(path)

    assert first != second
    assert len(first.reveal()) == 64
    assert first.reveal().decode() not in repr(first)


@pytest.mark.parametrize("text", ["", "[1]", "{", '"a"'])
def test_what_is_no_mapping_reads_as_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)

    assert read_json(path) is None
    assert read_json(tmp_path / "missing.json") is None


def test_json_survives(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_private_json(path, {"a": [1, "ü"]})

    assert read_json(path) == {"a": [1, "ü"]}
    assert mode(path) == 0o600
