from __future__ import annotations

import base64
import stat
from typing import TYPE_CHECKING

import pytest

from deployments.stores.master_key import (
    MASTER_KEY_VARIABLE,
    MasterKeyUnusable,
    create_master_key_file,
    load_master_key,
)
from freehold.secret import Secret
from tenancy.sealing import MasterKey

if TYPE_CHECKING:
    from pathlib import Path

RAW = bytes(range(32))
TEXT = base64.b64encode(RAW).decode()


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_reads_a_private_file(tmp_path: Path) -> None:
    path = write(tmp_path / "master.key", TEXT + "\n")
    key = load_master_key(path, {})
    assert key.master_key_id == MasterKey(Secret(RAW)).master_key_id


def test_the_environment_wins(tmp_path: Path) -> None:
    path = write(tmp_path / "master.key", base64.b64encode(bytes(32)).decode())
    key = load_master_key(path, {MASTER_KEY_VARIABLE: TEXT})
    assert key.master_key_id == MasterKey(Secret(RAW)).master_key_id


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o666])
def test_refuses_a_file_that_others_can_reach(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path / "master.key", TEXT, mode)
    with pytest.raises(MasterKeyUnusable, match="chmod 600"):
        load_master_key(path, {})


def test_there_is_no_default(tmp_path: Path) -> None:
    with pytest.raises(MasterKeyUnusable, match=MASTER_KEY_VARIABLE):
        load_master_key(tmp_path / "missing.key", {})


def test_refuses_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "master.key"
    folder.mkdir(mode=0o700)
    with pytest.raises(MasterKeyUnusable, match="regular file"):
        load_master_key(folder, {})


@pytest.mark.parametrize(
    "text",
    ["", "not base64!", "c2hvcnQ=", TEXT[:-4], TEXT + TEXT, RAW.hex(), "ÿ" * 44, "A" * 5000],
)
def test_refuses_malformed_keys_without_repeating_them(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "master.key", text)
    for environ in ({}, {MASTER_KEY_VARIABLE: text}):
        with pytest.raises(MasterKeyUnusable, match="base64 of 32 bytes") as caught:
            load_master_key(path, environ)
        assert not text or text not in str(caught.value) + repr(caught.value)
        assert caught.value.__cause__ is None


def test_a_bad_variable_does_not_fall_back_to_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "master.key", TEXT)
    with pytest.raises(MasterKeyUnusable, match=MASTER_KEY_VARIABLE):
        load_master_key(path, {MASTER_KEY_VARIABLE: ""})


def test_creates_a_random_private_file_once(tmp_path: Path) -> None:
    path = tmp_path / "state" / "master.key"
    first = create_master_key_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert create_master_key_file(path).master_key_id == first.master_key_id
    assert load_master_key(path, {}).master_key_id == first.master_key_id
    assert [entry.name for entry in path.parent.iterdir()] == ["master.key"]
    other = create_master_key_file(tmp_path / "other.key")
    assert other.master_key_id != first.master_key_id


def test_never_replaces_a_file_it_cannot_use(tmp_path: Path) -> None:
    path = write(tmp_path / "master.key", "broken")
    with pytest.raises(MasterKeyUnusable):
        create_master_key_file(path)
    assert path.read_text() == "broken"
