"""Ports are the kernel's business: these tests open real ones, on loopback."""

from __future__ import annotations

import socket

import pytest

from deployments.serving.tcp_ports import LOOPBACK, BadAddress, PortTaken, free_ports, require_free


def test_free_ports_differ_and_can_be_had() -> None:
    ports = free_ports(20)

    assert len(set(ports)) == 20
    for port in ports:
        require_free(LOOPBACK, port)


def test_a_taken_port_is_named_with_its_setting() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port: int = taken.getsockname()[1]

        with pytest.raises(PortTaken) as caught:
            require_free(LOOPBACK, port)

    assert str(caught.value) == (
        f"service.port: port {port} on 127.0.0.1 is taken by another process"
    )
    require_free(LOOPBACK, port)


@pytest.mark.parametrize("host", ["203.0.113.1", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(BadAddress, match=r"^service\.host: cannot listen on "):
        require_free(host, 8000)
