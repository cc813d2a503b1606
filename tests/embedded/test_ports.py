from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from memory_api.embedded.data_directory import PortUnavailable
from memory_api.embedded.ports import check_port, find_port_owner


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken


def port_of(taken: socket.socket) -> int:
    return taken.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_busy_port_error_names_owner(listener: socket.socket, host: str) -> None:
    owner = find_port_owner(host, port_of(listener))
    assert owner is not None
    assert f"pid {os.getpid()} (" in owner


def test_check_names_owner_of_port(listener: socket.socket) -> None:
    port = port_of(listener)
    with pytest.raises(PortUnavailable, match=f"Port {port} is in use by pid {os.getpid()}"):
        check_port("127.0.0.1", port)


def test_free_port_has_no_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = port_of(taken)
    assert find_port_owner("127.0.0.1", port) is None
    check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


def test_recently_closed_connections_do_not_block_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = port_of(server)
        with socket.create_connection(("127.0.0.1", port)) as client:
            served, _ = server.accept()
            served.close()  # first, as a server that leaves does: the port lingers in TIME_WAIT
            assert client.recv(1) == b""
    check_port("127.0.0.1", port)


def test_other_address_does_not_block_port(listener: socket.socket) -> None:
    assert find_port_owner("127.0.0.2", port_of(listener)) is None
    check_port("127.0.0.2", port_of(listener))


def test_foreign_address_is_reported() -> None:
    with pytest.raises(PortUnavailable, match=r"192\.0\.2\.1:8321"):
        check_port("192.0.2.1", 8321)


def test_python_process_is_named_by_its_program() -> None:
    command = [sys.executable, "-m", "http.server", "0", "--bind", "127.0.0.1"]
    with subprocess.Popen(
        [sys.executable, "-u", *command[1:]], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().split(" port ")[1].split()[0])
            assert find_port_owner("127.0.0.1", port) == f"pid {process.pid} (http.server)"
        finally:
            process.kill()
