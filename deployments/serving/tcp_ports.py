"""TCP ports: whether one is free, and some that are."""

from __future__ import annotations

import contextlib
import errno
import socket

from freehold.errors import FreeholdError

LOOPBACK = "127.0.0.1"


class PortTaken(FreeholdError):
    """Another process listens there; ``setting`` says where to choose another one."""

    def __init__(self, host: str, port: int, setting: str) -> None:
        super().__init__(host, port, setting)
        self.host = host
        self.port = port
        self.setting = setting

    def __str__(self) -> str:
        return f"{self.setting}: port {self.port} on {self.host} is taken by another process"


class BadAddress(FreeholdError):
    """The machine cannot listen on ``host``."""

    def __init__(self, host: str, setting: str, reason: str) -> None:
        super().__init__(host, setting, reason)
        self.host = host
        self.setting = setting
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.setting}: cannot listen on {self.host}: {self.reason}"


def require_free(host: str, port: int) -> None:
    """See whether ``service.port`` can be had, before anything slow is started.

    Raises:
        PortTaken: somebody listens there.
        BadAddress: no interface of this machine has the address.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # Connections of a service that just ended linger: they do not keep the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(host, port, "service.port") from None
        raise BadAddress(host, "service.host", error.strerror or "unknown address") from None


def free_ports(count: int) -> list[int]:
    """Distinct ports that were free a moment ago; held together, so that none comes twice."""
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for _ in range(count):
            probe = held.enter_context(socket.socket())
            probe.bind((LOOPBACK, 0))
            ports.append(probe.getsockname()[1])
        return ports
