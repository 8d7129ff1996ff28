from __future__ import annotations

import asyncio
import os
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from deployments.serving.demo import (
    KEYS_FILE,
    NUM_REPLICAS,
    TENANTS,
    DemoKeys,
    demo_keys,
    ready_file,
    snippets,
    write_demo_settings,
)
from deployments.serving.launch import Running
from deployments.serving.state import StateFolder, read_json
from deployments.settings import Settings, load_settings
from deployments.stores.control_plane import ControlPlane
from deployments.stores.master_key import load_master_key

if TYPE_CHECKING:
    from pathlib import Path

RUNNING = Running("http://127.0.0.1:8000/v1", ())


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(write_demo_settings(tmp_path / ".freehold", tmp_path / "model"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_settings_are_those_of_any_service(settings: Settings, tmp_path: Path) -> None:
    [model] = settings.models

    assert settings.service.state_dir.resolve() == tmp_path / ".freehold"
    assert (model.path, model.replicas) == (tmp_path / "model", NUM_REPLICAS)
    assert settings.service.drain_s == 0


def test_the_environment_overrides_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FREEHOLD__SERVICE__PORT", "8123")

    assert load_settings(write_demo_settings(tmp_path, tmp_path)).service.port == 8123


async def test_a_second_start_reuses_the_keys(settings: Settings) -> None:
    first = await demo_keys(settings)
    second = await demo_keys(settings)

    assert set(first.api_keys) == set(TENANTS)
    assert not first.reused
    assert second.reused
    assert second.api_keys == first.api_keys


async def test_a_revoked_key_is_replaced(settings: Settings) -> None:
    first = await demo_keys(settings)
    master_key = load_master_key(settings.master_key_file)
    async with await ControlPlane.open(settings.database_url, master_key, follow=False) as plane:
        await plane.keys.revoke(first.api_keys[TENANTS[1]])

    second = await demo_keys(settings)

    assert not second.reused
    assert second.api_keys[TENANTS[1]] != first.api_keys[TENANTS[1]]
    assert (await demo_keys(settings)).reused


async def test_a_damaged_or_lost_key_file_means_new_keys(settings: Settings) -> None:
    kept = settings.service.state_dir / KEYS_FILE
    first = await demo_keys(settings)
    kept.write_text("{")
    second = await demo_keys(settings)
    kept.unlink()
    third = await demo_keys(settings)

    assert not second.reused
    assert not third.reused
    assert len({keys.api_keys[TENANTS[0]] for keys in (first, second, third)}) == 3


async def test_everything_secret_is_private(settings: Settings) -> None:
    await demo_keys(settings)
    state = settings.service.state_dir

    assert mode(state) == 0o700
    for path in (state / KEYS_FILE, settings.master_key_file, state / "freehold.yaml"):
        assert mode(path) == 0o600, path


async def test_the_ready_file_is_there_while_the_demo_answers(settings: Settings) -> None:
    keys = await demo_keys(settings)
    path = StateFolder(settings.service.state_dir).demo_file

    with ready_file(settings, RUNNING, keys):
        content = read_json(path)
        assert mode(path) == 0o600
    assert not path.exists()
    assert content == {
        "base_url": "http://127.0.0.1:8000/v1",
        "model": settings.models[0].name,
        "pid": os.getpid(),
        "tenants": [{"id": id_, "api_key": keys.api_keys[id_]} for id_ in TENANTS],
    }


def test_keys_are_spelled_out_once(settings: Settings) -> None:
    api_keys = {tenant: f"fh_{tenant}" for tenant in TENANTS}
    new = "\n".join(snippets(settings, RUNNING, DemoKeys(api_keys, reused=False)))
    again = "\n".join(snippets(settings, RUNNING, DemoKeys(api_keys, reused=True)))

    assert new.count("fh_acme") == 2
    assert "fh_acme" not in again
    assert str(settings.service.state_dir / KEYS_FILE) in again


def test_keys_hide_in_texts() -> None:
    assert "hunter2" not in repr(DemoKeys({TENANTS[0]: "hunter2"}, reused=True))


def test_the_snippets_say_the_right_key(settings: Settings, tmp_path: Path) -> None:
    """The shell part is run: quoting inside quoting is easy to get wrong."""
    keys = DemoKeys(asyncio.run(demo_keys(settings)).api_keys, reused=True)
    curl, python = snippets(settings, RUNNING, keys)
    fake = tmp_path / "curl"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o700)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(  # noqa: S603  # our own text and a fake curl
        ["/bin/sh", "-c", curl], env={"PATH": path}, capture_output=True, text=True, check=True
    )

    assert f"Authorization: Bearer {keys.api_keys[TENANTS[0]]}" in done.stdout.splitlines()
    compile(python, "snippet", "exec")
