"""Starts and ends the local Ray cluster and Serve on it: the only place that commands them.

``ray`` is imported inside the functions because it reads its environment at import. Its types do
not pass strict checking; what goes in and out here is typed.
"""
# pyright: reportUnknownMemberType=false
# (Ray 2.60 leaves parts of its functions' signatures unannotated.)

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freehold.errors import FreeholdError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ray.serve import Application
    from ray.serve.schema import LoggingConfig

    from deployments.settings import Settings

APP_NAME = "freehold"
POLL_S = 0.1
DRAIN_MARGIN_S = 10.0


class DeployFailed(FreeholdError):
    """The application cannot run; ``reason`` is the last line of what failed."""

    def __init__(self, reason: str, details_in: str) -> None:
        super().__init__(reason, details_in)
        self.reason = reason
        self.details_in = details_in

    def __str__(self) -> str:
        return f"the service cannot run: {self.reason} (more in {self.details_in})"


@dataclass(frozen=True, slots=True)
class DeploymentState:
    """How many replicas of one deployment answer, and what the controller says of the others."""

    num_running: int
    message: str


@dataclass(frozen=True, slots=True)
class AppState:
    """The application as Serve's controller sees it."""

    is_running: bool
    has_failed: bool
    message: str
    deployments: Mapping[str, DeploymentState]


def start_ray(settings: Settings, *, num_cpus: int, ray_dir: Path) -> None:
    import ray

    ray.init(
        address="local",  # never a cluster that RAY_ADDRESS names
        num_cpus=num_cpus,
        include_dashboard=False,
        object_store_memory=settings.ray.object_store_bytes,
        logging_level=logging.WARNING,
        _node_ip_address=settings.ray.node_ip,
        _temp_dir=str(ray_dir),
    )


def num_gpus() -> int:
    import ray

    return int(ray.cluster_resources().get("GPU", 0))  # type: ignore[no-untyped-call]  # Ray's gap


def serve_logs(state_dir: Path) -> LoggingConfig:
    """What Serve itself logs, and where. Not its access log: the gateway writes a better one."""
    from ray.serve.schema import LoggingConfig

    return LoggingConfig(
        log_level="WARNING", logs_dir=str(state_dir / "logs"), enable_access_log=False
    )


def start_serve(settings: Settings) -> None:
    """Start the controller and the HTTP proxy. The host is said here: HAProxy mode would
    otherwise open every interface."""
    from ray import serve
    from ray.serve.config import HTTPOptions

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    serve.start(
        http_options=HTTPOptions(host=settings.service.host, port=settings.service.port),
        logging_config=serve_logs(settings.service.state_dir),
    )


def deploy(app: Application) -> None:
    """Hand the application over and return at once; ``app_state`` tells how it goes."""
    from ray import serve

    serve.run_many(
        [serve.RunTarget(app, name=APP_NAME, route_prefix="/")],
        wait_for_ingress_deployment_creation=False,
        wait_for_applications_running=False,
    )


def app_state() -> AppState | None:
    """None when the controller knows no such application (not yet, or not any more)."""
    from ray import serve
    from ray.serve.schema import ApplicationStatus

    app = serve.status().applications.get(APP_NAME)
    if app is None:
        return None
    return AppState(
        is_running=app.status == ApplicationStatus.RUNNING,
        has_failed=app.status == ApplicationStatus.DEPLOY_FAILED,
        message=app.message,
        deployments={
            name: DeploymentState(
                sum(n for state, n in deployment.replica_states.items() if state == "RUNNING"),
                deployment.message,
            )
            for name, deployment in app.deployments.items()
        },
    )


def drain(drain_s: float) -> None:
    """Let streams finish for ``drain_s`` and the replicas end themselves; ``kill`` does the rest.

    Not ``serve.shutdown()``: that gives up after 30 s, whatever the drain period says.
    """
    from ray import serve

    serve.delete(APP_NAME, _blocking=False)
    deadline = time.monotonic() + drain_s + DRAIN_MARGIN_S
    while app_state() is not None and time.monotonic() < deadline:
        time.sleep(POLL_S)


def kill() -> None:
    """End the cluster now; whatever still runs in it is killed."""
    import ray

    ray.shutdown()
