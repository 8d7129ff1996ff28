"""The variables that Ray and Serve read at import: what a service needs, in one place.

Decides ports, paths and modes of the machinery below; must be applied before ``ray`` is imported
anywhere in the process. Knows no Ray itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deployments.serving import processes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from deployments.settings import Settings

MAX_RUN_DIR_CHARS = 24
"""HAProxy refuses socket paths over 97 characters, and Serve puts a 56-character node id and a
file name behind the folder."""


@dataclass(frozen=True, slots=True)
class ProxyPorts:
    """Ports that Serve takes for itself; fixed ones would collide between two services."""

    stats: int
    metrics: int
    fallback: int


def serve_environment(
    settings: Settings, *, run_dir: Path, ray_token_file: Path, ports: ProxyPorts
) -> Mapping[str, str]:
    """Everything to put into ``os.environ``; values are paths and numbers, never secrets."""
    haproxy = {
        "RAY_SERVE_HAPROXY_STATS_PORT": str(ports.stats),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(ports.metrics),
        # The admin socket is mode 666: only the folder (700) keeps others out.
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(run_dir / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(run_dir / "metrics.sock"),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(run_dir / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(run_dir),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(run_dir / "server-state"),
        "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S": str(int(settings.service.max_stream_s) + 60),
    }
    return haproxy | {
        processes.MARK: str(run_dir),
        "RAY_SERVE_ENABLE_HA_PROXY": _flag(settings.ray.haproxy),
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": _flag(settings.ray.throughput_optimized),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(ports.fallback),
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": str(settings.service.drain_s),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(ray_token_file),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_COLOR_PREFIX": "0",  # the console may be a file
        # One tokenizer call a request: its own thread pool only fights the engines for cores.
        "TOKENIZERS_PARALLELISM": "false",
    }


def _flag(on: bool) -> str:
    return "1" if on else "0"
