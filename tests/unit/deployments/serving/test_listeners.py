from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import psutil
import pytest

from deployments.serving.listeners import Listener, open_listeners

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class FakeProcess:
    """The part of ``psutil.Process`` that is asked."""

    command: Sequence[str]
    listening: Sequence[tuple[str, int]] = ()
    below: Sequence[FakeProcess] = ()
    is_gone: bool = False
    pid: int = field(default=-1)

    def children(self, *, recursive: bool) -> Sequence[FakeProcess]:
        assert recursive
        return self.below

    def cmdline(self) -> Sequence[str]:
        if self.is_gone:
            raise psutil.NoSuchProcess(1)
        return self.command

    def name(self) -> str:
        return self.command[0].rpartition("/")[2]

    def net_connections(self, kind: str) -> Sequence[SimpleNamespace]:
        assert kind == "tcp"
        listening = [
            SimpleNamespace(status=psutil.CONN_LISTEN, laddr=SimpleNamespace(ip=ip, port=port))
            for ip, port in self.listening
        ]
        return [*listening, SimpleNamespace(status=psutil.CONN_ESTABLISHED)]


def owners(*processes: FakeProcess) -> list[Listener]:
    root = FakeProcess(["freehold"], below=processes)
    return list(open_listeners(cast("psutil.Process", root)))


def test_names_are_those_an_operator_knows() -> None:
    found = owners(
        FakeProcess(["ray::ServeReplica:freehold:gateway"], [("127.0.0.1", 30000)]),
        FakeProcess(["ray::ServeController.listen()"], [("::", 4)]),
        FakeProcess(["ray::ServeReplica:freehold:engine:qwen2.5"], [("::", 5)]),
        FakeProcess(["/somewhere/gcs_server", "--x"], [("::", 2)]),
        FakeProcess(["/somewhere/bin/haproxy"], [("127.0.0.1", 8000)]),
        FakeProcess(["python", "/ray/dashboard.py"], [("0.0.0.0", 3)]),  # noqa: S104  # read only
    )

    assert found == [
        Listener("ServeController", "::", 4),
        Listener("engine:qwen2.5", "::", 5),
        Listener("gateway", "127.0.0.1", 30000),
        Listener("gcs_server", "::", 2),
        Listener("haproxy", "127.0.0.1", 8000),
        Listener("ray dashboard", "0.0.0.0", 3),  # noqa: S104
    ]


def test_a_process_that_ends_meanwhile_is_skipped() -> None:
    assert owners(FakeProcess(["x"], [("::", 1)], is_gone=True)) == []


@pytest.mark.parametrize(
    ("host", "reach"),
    [
        ("127.0.0.1", "loopback"),
        ("127.0.0.2", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "all interfaces"),  # noqa: S104
        ("::", "all interfaces"),
        ("10.0.0.7", "network"),
    ],
)
def test_reach(host: str, reach: str) -> None:
    assert Listener("x", host, 1).reach == reach
