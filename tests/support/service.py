"""A real ``freehold serve`` for end-to-end tests: started, awaited, stopped, and counted out.

The command runs as a user runs it, in a session of its own, so that every process it leaves behind
can be found. Each service has its own port and state folder.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil
from pydantic import TypeAdapter

from deployments.serving.status import ModelStatus
from deployments.serving.tcp_ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from deployments.serving.status import ReplicaStatus

FREEHOLD = Path(sys.executable).with_name("freehold")
TENANTS = ("acme", "globex")
START_S = 180.0
STOP_S = 90.0
SETTLE_S = 2.5
"""The gateway asks its replicas once a second: an older answer than this says nothing."""
POLL_S = 0.1


class ServiceFailed(AssertionError):
    """The service did not do what every test needs; the text ends with its output."""


@dataclass(frozen=True, slots=True)
class TenantAccess:
    tenant_id: str
    api_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Status:
    """What ``freehold status --json`` printed."""

    models: Sequence[ModelStatus]

    @property
    def replicas(self) -> Sequence[ReplicaStatus]:
        return [replica for model in self.models for replica in model.replicas]

    @property
    def is_idle(self) -> bool:
        """Every expected replica reports, and none holds anything for a request."""
        return all(len(m.replicas) == m.num_expected for m in self.models) and not any(
            r.num_running or r.num_waiting or r.active_blocks for r in self.replicas
        )


@dataclass(frozen=True, slots=True)
class RunningService:
    """One ``freehold serve`` process. Make it with ``start_service`` or ``running_service``."""

    process: subprocess.Popen[bytes]
    config: Path
    log: Path
    port: int
    model: str
    tenants: Sequence[TenantAccess]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """As the OpenAI client wants it."""
        return f"{self.url}/v1"

    @property
    def service_file(self) -> Path:
        """There while the service is ready."""
        return self.config.parent / "state/service.json"

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def session(self) -> Sequence[psutil.Process]:
        """Every living process of the service's session."""
        return [p for p in psutil.process_iter() if _session_of(p) == self.process.pid]

    def engine_processes(self) -> Sequence[psutil.Process]:
        title = f"ray::ServeReplica:freehold:engine:{self.model}"
        return [p for p in self.session() if _title_of(p).startswith(title)]

    def status(self) -> Status:
        printed = freehold("status", "--json", "--config", self.config, cwd=self.config.parent)
        models: object = json.loads(printed)["models"]
        return Status(TypeAdapter(list[ModelStatus]).validate_python(models))

    def wait_ready(self) -> None:
        self._wait(self._is_ready, START_S, "is not ready")

    def wait_idle(self) -> None:
        """Until nothing runs, and what says so is younger than the last request."""
        since_s = time.monotonic()

        def idle_for_long_enough() -> bool:
            nonlocal since_s
            if not self.status().is_idle:
                since_s = time.monotonic()
            return time.monotonic() - since_s > SETTLE_S

        self._wait(idle_for_long_enough, 60.0, "does not become idle")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        self._wait(condition, START_S, f"never: {what}")

    def stop(self) -> None:
        """Ctrl-C, and assert that nothing stays behind."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.wait_gone()

    def wait_gone(self) -> None:
        self._wait(lambda: self.process.poll() is not None, STOP_S, "does not end")
        self._wait(lambda: not self.session(), 10.0, "leaves processes behind")

    def kill(self) -> None:
        """End whatever is left, by its id: for the teardown of a test that failed."""
        for process in self.session():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()

    def _is_ready(self) -> bool:
        """It answers, and has said so."""
        if self.process.poll() is not None:
            self._fail("has ended")
        if not self.service_file.exists():
            return False
        try:
            return httpx.get(f"{self.url}/ready", timeout=5).is_success
        except httpx.HTTPError:
            return False

    def _wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                self._fail(what)
            time.sleep(POLL_S)

    def _fail(self, what: str) -> None:
        left = "\n".join(f"{p.pid} {_title_of(p)}" for p in self.session())
        message = f"the service {what}; its processes:\n{left}\nits output:\n{self.output}"
        raise ServiceFailed(message)


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What a service is made from; everything it writes goes below ``folder``."""

    folder: Path
    model_folder: Path
    model: str
    model_settings: Mapping[str, object]
    service_settings: Mapping[str, object] = field(default_factory=dict[str, object])

    def with_service(self, **settings: object) -> StartOptions:
        return replace(self, service_settings=settings)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Settings, master key and two tenants with a key each; nothing runs yet."""

    config: Path
    port: int
    model: str
    tenants: Sequence[TenantAccess]

    @property
    def master_key(self) -> Path:
        return self.config.parent / "state/master.key"


def prepare(options: StartOptions) -> Prepared:
    [port] = free_ports(1)
    state = options.folder / "state"
    state.mkdir(mode=0o700)
    master_key = state / "master.key"
    master_key.touch(mode=0o600)
    master_key.write_bytes(base64.b64encode(secrets.token_bytes(32)))
    service = {"port": port, "state_dir": "state", "drain_s": 0, **options.service_settings}
    model = {"name": options.model, "path": str(options.model_folder), **options.model_settings}
    config = options.folder / "freehold.yaml"
    # YAML is a superset of JSON.
    config.write_text(json.dumps({"service": service, "models": [model]}), encoding="utf-8")
    return Prepared(config, port, options.model, tuple(_make_tenants(config)))


def _make_tenants(config: Path) -> Iterator[TenantAccess]:
    """By the commands that an operator uses."""
    for tenant in TENANTS:
        options = ("--json", "--config", config)
        freehold("tenant", "create", tenant, *options, cwd=config.parent)
        issued = json.loads(freehold("key", "issue", tenant, *options, cwd=config.parent))
        yield TenantAccess(tenant, issued["api_key"])


def start_service(prepared: Prepared) -> RunningService:
    """Start ``freehold serve``; its output is added to ``serve.log`` beside the settings."""
    config = prepared.config
    log = config.with_name("serve.log")
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603  # our own command, no shell
            [FREEHOLD, "serve", "--config", config],
            cwd=config.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return RunningService(process, config, log, prepared.port, prepared.model, prepared.tenants)


@contextlib.contextmanager
def running_service(
    folder: Path, model_folder: Path, *, name: str, **model_settings: object
) -> Generator[RunningService]:
    """A service with two tenants that is ready; at the end it must stop cleanly."""
    prepared = prepare(StartOptions(folder, model_folder, name, model_settings))
    service = start_service(prepared)
    try:
        service.wait_ready()
        yield service
        service.stop()
    finally:
        service.kill()


def freehold(*arguments: str | Path, cwd: Path) -> str:
    """Standard output of a command that must succeed."""
    done = try_freehold(*arguments, cwd=cwd)
    if done.returncode:
        message = f"freehold {' '.join(map(str, arguments))}: {done.stderr}"
        raise ServiceFailed(message)
    return done.stdout


def try_freehold(
    *arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(  # noqa: S603  # our own command, no shell
        [FREEHOLD, *arguments],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=START_S,
    )


def _session_of(process: psutil.Process) -> int | None:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return os.getsid(process.pid)
    except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
        return None


def _title_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()).strip()
    except psutil.Error:
        return ""
