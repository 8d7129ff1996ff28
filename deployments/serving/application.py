"""The Serve application: one gateway in front of one engine deployment for each model.

Decides names, resources and how replicas end. Its ``build`` is what a Serve configuration would
import; ``launch`` calls it for a service on one machine.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (Ray 2.60 leaves its decorators' types open.)

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from ray import serve
from ray.serve.config import RequestRouterConfig

from deployments.serving import sizing
from deployments.serving.cluster import serve_logs
from deployments.serving.ingress import Ingress
from deployments.serving.replica import EngineReplica
from deployments.serving.router import EngineRouter

if TYPE_CHECKING:
    from ray.serve import Application

    from deployments.settings import ModelSettings, Settings

GATEWAY = "gateway"
PROBE_ALLOWANCE = 64
"""Calls that are not requests: reports, health checks, queue-length probes."""
STOP_MARGIN_S = 5.0
MAX_CONSTRUCTOR_RETRIES = 1
"""A model that cannot be loaded will not be loadable at the next try either."""


def build(settings: Settings, *, num_gpus: int) -> Application:
    engines = {
        model.name: engine_deployment(model, settings, on_gpu=_wants_gpu(model, settings, num_gpus))
        for model in settings.models
    }
    make = serve.deployment(
        name=GATEWAY,
        num_replicas=1,  # several share neither index nor load until the event channel exists
        ray_actor_options={"num_cpus": sizing.GATEWAY_CPUS},
        max_ongoing_requests=_max_ongoing(settings),
        graceful_shutdown_timeout_s=settings.service.drain_s + STOP_MARGIN_S,
        logging_config=serve_logs(settings.service.state_dir),
    )
    return make(serve.ingress()(Ingress)).bind(settings, engines)


def engine_deployment(model: ModelSettings, settings: Settings, *, on_gpu: bool) -> Application:
    make = serve.deployment(
        name=engine_name(model.name),
        num_replicas=model.replicas,
        ray_actor_options={"num_cpus": sizing.ENGINE_CPUS, "num_gpus": int(on_gpu)},
        # Above the engine's own bounded queue: it, not Serve, says when it is full.
        max_ongoing_requests=model.max_num_seqs + model.max_waiting + PROBE_ALLOWANCE,
        graceful_shutdown_timeout_s=settings.service.drain_s + STOP_MARGIN_S,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=2.0,
        health_check_timeout_s=10.0,
        max_constructor_retry_count=MAX_CONSTRUCTOR_RETRIES,
        logging_config=serve_logs(settings.service.state_dir),
        request_router_config=cast("Any", RequestRouterConfig)(request_router_class=EngineRouter),
    )
    num_cores = len(os.sched_getaffinity(0))
    return make(EngineReplica).bind(
        model,
        num_threads=sizing.num_threads(model, settings, num_cores),
        pool_share=sizing.pool_share(settings, on_gpu=on_gpu),
        log_level=settings.service.log_level,
    )


def engine_name(model: str) -> str:
    """Serve's name of a model's deployment."""
    return f"engine:{model}"


def _max_ongoing(settings: Settings) -> int:
    """The gateway holds every request that the engines hold, and as many again to refuse."""
    return 2 * sum(
        model.replicas * (model.max_num_seqs + model.max_waiting) for model in settings.models
    )


def _wants_gpu(model: ModelSettings, settings: Settings, num_gpus: int) -> bool:
    if model.device == "auto":
        return num_gpus >= settings.num_engines
    return model.device == "cuda"
