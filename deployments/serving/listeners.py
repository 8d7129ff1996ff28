"""Every TCP port that the service's processes hold open, and to whom.

Ray opens several listeners on all interfaces whatever its settings say; an operator has to see
them to close them (docs/operations.md). Looks only at this process and what it started.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

REPLICA = "ServeReplica:freehold:"
CALL = re.compile(r"\.[a-z]+(_[a-z]+)*(\(\))?$")
"""Ray adds the method that runs; a model's name may hold dots too (``qwen2.5``)."""


@dataclass(frozen=True, slots=True, order=True)
class Listener:
    """One open port."""

    owner: str
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def reach(self) -> str:
        if self.is_loopback:
            return "loopback"
        if ipaddress.ip_address(self.host).is_unspecified:
            return "all interfaces"
        return "network"


def open_listeners(process: psutil.Process) -> Sequence[Listener]:
    """Of ``process`` and everything below it, sorted; processes that end meanwhile are skipped."""
    return sorted(set(_listeners([process, *process.children(recursive=True)])))


def _listeners(processes: Iterable[psutil.Process]) -> Iterable[Listener]:
    for process in processes:
        try:
            owner = _owner(process)
            sockets = process.net_connections(kind="tcp")
        except psutil.Error:
            continue
        for socket in sockets:
            if socket.status == psutil.CONN_LISTEN:
                yield Listener(owner, socket.laddr.ip, socket.laddr.port)


def _owner(process: psutil.Process) -> str:
    """What the process is to an operator, from how Ray names its own."""
    command = process.cmdline()
    title = command[0] if command else process.name()
    if title.startswith("ray::"):
        # "ray::ServeReplica:freehold:engine:a", "ray::ServeController.listen_for_change()"
        return CALL.sub("", title.removeprefix("ray::").removeprefix(REPLICA)).strip()
    if process.name() in {"gcs_server", "raylet", "haproxy"}:
        return process.name()
    for script in ("dashboard", "monitor", "log_monitor"):
        if any(part.endswith(f"/{script}.py") for part in command):
            return f"ray {script}"
    return "freehold serve" if process.pid == psutil.Process().pid else process.name()
