from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deployments.serving.environment import MAX_RUN_DIR_CHARS, ProxyPorts, serve_environment
from deployments.settings import ModelSettings, RaySettings, ServiceSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

RUN_DIR = Path("/run/" + "x" * (MAX_RUN_DIR_CHARS - 5))
TOKEN = Path("/state/ray.token")
MODELS = (ModelSettings(name="a", path=Path("a")),)


def environment(settings: Settings) -> Mapping[str, str]:
    ports = ProxyPorts(stats=1, metrics=2, fallback=3)
    return serve_environment(settings, run_dir=RUN_DIR, ray_token_file=TOKEN, ports=ports)


def test_both_modes_are_on_and_the_cluster_wants_a_token() -> None:
    variables = environment(Settings(models=MODELS))

    assert variables["RAY_SERVE_ENABLE_HA_PROXY"] == "1"
    assert variables["RAY_SERVE_THROUGHPUT_OPTIMIZED"] == "1"
    assert variables["RAY_AUTH_MODE"] == "token"
    assert variables["RAY_AUTH_TOKEN_PATH"] == str(TOKEN)


def test_both_modes_can_be_turned_off() -> None:
    ray = RaySettings(haproxy=False, throughput_optimized=False)
    variables = environment(Settings(models=MODELS, ray=ray))

    assert variables["RAY_SERVE_ENABLE_HA_PROXY"] == "0"
    assert variables["RAY_SERVE_THROUGHPUT_OPTIMIZED"] == "0"


def test_two_services_share_no_port_and_no_file() -> None:
    variables = environment(Settings(models=MODELS))

    assert variables["RAY_SERVE_HAPROXY_STATS_PORT"] == "1"
    assert variables["RAY_SERVE_HAPROXY_METRICS_PORT"] == "2"
    assert variables["RAY_SERVE_FALLBACK_PROXY_HTTP_PORT"] == "3"
    for name, value in variables.items():
        if value.startswith("/") and value != str(TOKEN):
            assert Path(value).is_relative_to(RUN_DIR), name


def test_the_longest_run_folder_still_makes_sockets_that_haproxy_takes() -> None:
    node_id = "n" * 56
    for name, value in environment(Settings(models=MODELS)).items():
        if value.endswith(".sock"):
            socket = Path(value)
            assert len(str(socket.parent / node_id / socket.name)) <= 97, name


def test_the_proxy_outlasts_the_longest_stream() -> None:
    service = ServiceSettings(max_stream_s=5000, drain_s=7)
    variables = environment(Settings(models=MODELS, service=service))

    assert int(variables["RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S"]) > 5000
    assert float(variables["RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S"]) == 7
