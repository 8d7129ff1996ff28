"""Runs the whole service in the foreground: start, watch, stop.

Decides the order: everything that can be refused is refused before Ray starts, the ready signal
comes last, and nothing is left when it returns, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

import httpx
import psutil

from deployments.serving import cluster, preflight, processes, sizing, tcp_ports
from deployments.serving.environment import MAX_RUN_DIR_CHARS, ProxyPorts, serve_environment
from deployments.serving.keeper import kept
from deployments.serving.listeners import open_listeners
from deployments.serving.state import StateFolder, new_token, write_private, write_private_json
from deployments.stores.master_key import MASTER_KEY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from types import FrameType

    from deployments.serving.listeners import Listener
    from deployments.settings import Settings

WATCH_S = 2.0
LEFTOVER_S = 5.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Running:
    """A service that answers."""

    base_url: str
    """Of the OpenAI API; ends in ``/v1``."""
    listeners: Sequence[Listener]


class Progress(Protocol):
    """Tells a person how it goes."""

    def step(self, text: str) -> None: ...


Announce = Callable[[Running], AbstractContextManager[None]]
"""Entered when the service answers, left when it begins to stop."""


def run_service(settings: Settings, progress: Progress, announce: Announce) -> None:
    """Start the service, announce it, and stay until SIGINT or SIGTERM.

    Raises:
        FreeholdError: it cannot start, or it stopped by itself.
    """
    state = StateFolder(settings.service.state_dir)
    state.create()
    with state.locked(), _signals_restored(), _run_dir() as run_dir:
        tcp_ports.require_free(settings.service.host, settings.service.port)
        preflight.check(settings)
        settings = _master_key_as_file(settings, run_dir)
        state.forget_last_run()
        new_token(state.ray_token)
        new_token(state.operator_token)
        try:
            with kept(run_dir), _cluster(settings, state, run_dir, progress):
                _run(settings, state, progress, announce)
        except KeyboardInterrupt:
            progress.step("stopped")


def _run(settings: Settings, state: StateFolder, progress: Progress, announce: Announce) -> None:
    counts = _ReplicaCounts(progress)
    running = _start(settings, counts, progress)
    try:
        with _service_file(state, running), announce(running):
            _watch(counts, str(state.path / "logs"))
    except KeyboardInterrupt:
        drain_s = settings.service.drain_s
        progress.step(f"stopping: streams have {drain_s:.0f} s (Ctrl-C again: stop now)")
        with contextlib.suppress(KeyboardInterrupt):
            cluster.drain(drain_s)
        raise


def _master_key_as_file(settings: Settings, run_dir: Path) -> Settings:
    """Take the key out of the environment, which every engine would inherit."""
    text = os.environ.pop(MASTER_KEY_VARIABLE, None)
    if text is None:
        return settings
    path = run_dir / "master.key"
    write_private(path, text)
    tenancy = settings.tenancy.model_copy(update={"master_key_file": path})
    return settings.model_copy(update={"tenancy": tenancy})


def _environment(settings: Settings, state: StateFolder, run_dir: Path) -> dict[str, str]:
    stats, metrics, fallback = tcp_ports.free_ports(3)
    proxy = ProxyPorts(stats=stats, metrics=metrics, fallback=fallback)
    return dict(
        serve_environment(
            settings, run_dir=run_dir, ray_token_file=state.ray_token.resolve(), ports=proxy
        )
    )


@contextlib.contextmanager
def _run_dir() -> Generator[Path]:
    """A short private path for sockets and Ray's session, removed at the end."""
    path = Path(tempfile.mkdtemp(prefix="fh-"))
    if len(str(path)) > MAX_RUN_DIR_CHARS:
        path.rmdir()
        path = Path(tempfile.mkdtemp(prefix="fh-", dir="/tmp"))  # made 700, random
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _service_file(state: StateFolder, running: Running) -> Generator[None]:
    write_private_json(state.service_file, {"base_url": running.base_url, "pid": os.getpid()})
    try:
        yield
    finally:
        state.service_file.unlink(missing_ok=True)


@contextlib.contextmanager
def _signals_restored() -> Generator[None]:
    """SIGINT and SIGTERM end the service, and are the caller's again afterwards."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        _catch_signals()
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _catch_signals() -> None:
    """Said even for SIGINT: a shell starts background commands with it ignored."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    for number in STOP_SIGNALS:
        signal.signal(number, interrupt)


@contextlib.contextmanager
def _cluster(
    settings: Settings, state: StateFolder, run_dir: Path, progress: Progress
) -> Generator[None]:
    """Ray and Serve, up; at the end every process of theirs is gone."""
    os.environ.update(_environment(settings, state, run_dir))
    try:
        progress.step("starting Ray")
        cluster.start_ray(settings, num_cpus=sizing.num_cpus(settings), ray_dir=run_dir / "ray")
        _catch_signals()  # ray.init has put a handler of its own in place
        progress.step("starting the HTTP proxy")
        cluster.start_serve(settings)
        yield
    finally:
        for number in STOP_SIGNALS:  # a third Ctrl-C must not leave half a cluster behind
            signal.signal(number, signal.SIG_IGN)
        cluster.kill()
        processes.end(run_dir, LEFTOVER_S)


def _start(settings: Settings, counts: _ReplicaCounts, progress: Progress) -> Running:
    from deployments.serving.application import build

    cluster.deploy(build(settings, num_gpus=cluster.num_gpus()))
    while (state := cluster.app_state()) is None or not state.is_running:
        if state is not None:
            counts.tell(state)
            if state.has_failed:
                raise _deploy_failed(settings, state)
        time.sleep(cluster.POLL_S)
    counts.tell(state)
    url = f"http://{_reachable(settings.service.host)}:{settings.service.port}"
    progress.step("waiting for the first answer")
    _wait_until_ready(url)
    return Running(f"{url}/v1", open_listeners(psutil.Process()))


class _ReplicaCounts:
    """Says how many replicas of each deployment answer, whenever that changes."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._told: dict[str, int] = {}

    def tell(self, state: cluster.AppState) -> None:
        for name, deployment in state.deployments.items():
            if self._told.get(name, 0) != deployment.num_running:
                self._told[name] = deployment.num_running
                self._progress.step(f"{name}: replicas up: {deployment.num_running}")


def _deploy_failed(settings: Settings, state: cluster.AppState) -> cluster.DeployFailed:
    """Serve's messages are whole tracebacks: a person gets the last line, a file gets them all."""
    messages = [deployment.message for deployment in state.deployments.values()]
    messages = [message.strip() for message in [*messages, state.message]]
    messages = [message for message in messages if message] or ["unknown reason"]
    path = settings.service.state_dir / "logs" / "failed-start.log"
    path.parent.mkdir(exist_ok=True)
    write_private(path, "\n\n".join(messages) + "\n")
    return cluster.DeployFailed(messages[0].splitlines()[-1].strip(), str(path))


def _wait_until_ready(url: str) -> None:
    """Through the proxy, as a client would: only then is the service up."""
    with httpx.Client(timeout=5.0, trust_env=False) as client:
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if client.get(f"{url}/ready").is_success:
                    return
            time.sleep(cluster.POLL_S)


def _watch(counts: _ReplicaCounts, logs_dir: str) -> None:
    while True:
        state = cluster.app_state()
        if state is None:
            reason = "Serve has lost the application"
            raise cluster.DeployFailed(reason, logs_dir)
        counts.tell(state)
        time.sleep(WATCH_S)


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104  # compared only
