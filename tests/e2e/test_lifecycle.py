"""Starting and ending the service, as its operator sees it; each test has a service of its own."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.service import (
    RunningService,
    StartOptions,
    prepare,
    start_service,
    try_freehold,
)
from tests.support.tiny_models import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

pytestmark = pytest.mark.service

MODEL = "tiny"
REPOSITORY = Path(__file__).parents[2]
LONG = 3000
"""Tokens: a stream that lasts while a test does something to the service."""


@pytest.fixture
def options(tmp_path: Path) -> StartOptions:
    model = make_tiny_model(tmp_path / "model", max_model_len=4096)
    return StartOptions(tmp_path, model, MODEL, {"replicas": 2, "kv_blocks": 2048})


@contextlib.contextmanager
def started(options: StartOptions) -> Generator[RunningService]:
    """Not ready yet, and not stopped at the end: that is what these tests are about."""
    service = start_service(prepare(options))
    try:
        yield service
    finally:
        service.kill()


def chat(service: RunningService, text: str, max_tokens: int) -> dict[str, object]:
    return {
        "model": service.model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "stream": True,
    }


@contextlib.contextmanager
def open_stream(service: RunningService, text: str, max_tokens: int) -> Generator[Iterator[str]]:
    """The lines of a streamed answer, from the first one with content on."""
    headers = {"authorization": f"Bearer {service.tenants[0].api_key}"}
    url = f"{service.base_url}/chat/completions"
    body = chat(service, text, max_tokens)
    with (
        httpx.Client(timeout=60, trust_env=False) as client,
        client.stream("POST", url, json=body, headers=headers) as response,
    ):
        assert response.status_code == 200, response.read()
        lines = (line for line in response.iter_lines() if line)
        next(lines)
        yield lines


def test_three_starts_of_one_service_and_their_ends(options: StartOptions) -> None:
    """Killed, by Ctrl-C and by SIGTERM: nothing stays, and the next start has the same keys."""
    prepared = prepare(options)
    for end in (kill, ctrl_c, terminate):
        service = start_service(prepared)
        try:
            service.wait_ready()
            with open_stream(service, "hello", 2) as lines:
                assert list(lines)[-1] == "data: [DONE]"
            mode = service.service_file.stat().st_mode & 0o777

            end(service.process.pid)
            service.wait_gone()
        finally:
            service.kill()

        assert mode == 0o600
        assert "Traceback" not in service.output
        assert prepared.tenants[0].api_key not in service.output
        if end is not kill:
            assert service.process.returncode == 0
            assert not service.service_file.exists()
    assert "all interfaces" in service.output  # open ports are named


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def ctrl_c(pid: int) -> None:
    """A terminal signals the whole process group."""
    os.killpg(pid, signal.SIGINT)


def terminate(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def test_a_signal_during_the_start_ends_it_too(options: StartOptions) -> None:
    with started(options) as service:
        service.wait_for(lambda: "starting the HTTP proxy" in service.output, "the proxy starts")

        service.process.send_signal(signal.SIGINT)
        service.wait_gone()

        assert service.process.returncode == 0
        assert "Traceback" not in service.output


def test_the_first_ctrl_c_lets_streams_finish_and_the_second_does_not_wait(
    options: StartOptions,
) -> None:
    with started(options.with_service(drain_s=3600)) as service:
        service.wait_ready()
        with open_stream(service, "hello", LONG) as lines:
            service.process.send_signal(signal.SIGINT)
            service.wait_for(lambda: "stopping" in service.output, "it says that it stops")

            assert list(lines)[-1] == "data: [DONE]"

        assert service.process.poll() is None
        service.process.send_signal(signal.SIGINT)
        service.wait_gone()
        assert "Traceback" not in service.output


def test_a_replica_that_is_killed_takes_only_its_own_streams_with_it(
    options: StartOptions,
) -> None:
    with started(options) as service, contextlib.ExitStack() as open_streams:
        service.wait_ready()
        service.wait_for(lambda: len(service.status().replicas) == 2, "two replicas")
        before = {replica.incarnation for replica in service.status().replicas}
        streams = [
            open_streams.enter_context(open_stream(service, f"{i} hello", LONG)) for i in range(8)
        ]

        service.engine_processes()[0].kill()
        ends = [list(lines)[-1] for lines in streams]

        lost = [end for end in ends if end != "data: [DONE]"]
        assert 0 < len(lost) < len(streams)
        for end in lost:
            assert json.loads(end.removeprefix("data: "))["error"]["code"] == "replica_lost"
        for i in range(8):  # the prompts of the dead replica's streams too
            with open_stream(service, f"{i} hello", 2) as lines:
                assert list(lines)[-1] == "data: [DONE]"
        service.wait_for(lambda: len(service.status().replicas) == 2, "a replica in its place")
        after = {replica.incarnation for replica in service.status().replicas}
        assert len(before & after) == 1
        service.stop()


def test_a_taken_port_is_named_with_its_setting(options: StartOptions) -> None:
    prepared = prepare(options)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", prepared.port))
        taken.listen()
        done = try_freehold("serve", "--config", prepared.config, cwd=options.folder)

    assert done.returncode == 2
    assert done.stderr == (
        f"error: service.port: port {prepared.port} on 127.0.0.1 is taken by another process\n"
    )


def test_a_bad_setting_is_refused_with_the_nearest_name(options: StartOptions) -> None:
    config = options.folder / "bad.yaml"
    config.write_text(f"models: [{{name: a, path: {options.model_folder}, kv_block: 1}}]")

    done = try_freehold("serve", "--config", config, cwd=options.folder)

    assert done.returncode == 2
    problem = "models[0].kv_block: unknown, did you mean kv_blocks"
    assert done.stderr == f"error: {config}: {problem}\n"


def test_no_master_key_no_service(options: StartOptions) -> None:
    prepared = prepare(options)
    prepared.master_key.unlink()

    done = try_freehold("serve", "--config", prepared.config, cwd=options.folder)

    assert done.returncode == 2
    assert done.stderr.startswith(f"error: master key in {prepared.master_key}: ")


def test_the_platform_folder_does_not_shadow_the_standard_library() -> None:
    """Here (``python -m pytest``), from the repository root, and inside a Ray worker."""
    standard = Path(platform.__file__).resolve()
    assert standard.parent == Path(json.__file__).resolve().parents[1]

    script = (
        "import platform, ray\n"
        "ray.init(address='local', num_cpus=1, include_dashboard=False,"
        " _node_ip_address='127.0.0.2', log_to_driver=False)\n"
        "def where():\n"
        "    import platform\n"
        "    return platform.__file__, platform.python_version()\n"
        "print(platform.__file__, *ray.get(ray.remote(num_cpus=1)(where).remote()))\n"
    )
    done = subprocess.run(  # noqa: S603  # a script of ours, no shell
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    here, in_worker, version = done.stdout.split()[-3:]
    assert Path(here).resolve() == Path(in_worker).resolve() == standard
    assert version == platform.python_version()
