"""Check whether a port is free, and find the process that uses it."""

from __future__ import annotations

import errno
import ipaddress
import socket
from pathlib import Path

import psutil

from memory_api.embedded.data_directory import PortUnavailable

BACKLOG = 2048
"""Connections that wait to be accepted."""
_MAX_PROCESS_NAME_LENGTH = 60


def check_port(host: str, port: int) -> None:
    """Try to listen on a port. Raises PortUnavailable with a one-line reason."""
    open_listener(host, port).close()


def find_free_port(host: str) -> int:
    """A port that no process listens on now."""
    with open_listener(host, 0) as listener:
        return int(listener.getsockname()[1])


def open_listener(host: str, port: int) -> socket.socket:
    """A socket that listens on a port. Raises PortUnavailable with a one-line reason."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise PortUnavailable(f"Cannot listen on {host}:{port}: {error}.") from error
        owner = find_port_owner(host, port) or "an unknown process"
        raise PortUnavailable(f"Port {port} is in use by {owner}.") from error
    return listener


def find_port_owner(host: str, port: int) -> str | None:
    """The process that listens on a port, as "pid 123 (uvicorn)". None if there is none, or if it
    is not visible to this user.
    """
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:  # macOS shows connections to root only
        return None
    for connection in connections:
        if connection.status != psutil.CONN_LISTEN or not connection.laddr:
            continue
        if connection.laddr.port == port and _conflicts(host, connection.laddr.ip):
            return _describe(connection.pid) if connection.pid else "a process of another user"
    return None


def _conflicts(host: str, listening_address: str) -> bool:
    """Whether a listener on `listening_address` prevents listening on `host`."""
    if _is_wildcard(host) or _is_wildcard(listening_address):
        return True
    return listening_address in {info[4][0] for info in socket.getaddrinfo(host, None)}


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a host name
        return host == ""


def _describe(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        name = process.name()
        if name.startswith("python"):
            name = _python_program(process.cmdline()) or name
    except psutil.Error:  # it has ended, or is not visible to this user
        return f"pid {pid}"
    return f"pid {pid} ({name[:_MAX_PROCESS_NAME_LENGTH]})"


def _python_program(command: list[str]) -> str:
    """The script or module that Python runs, without its arguments, which may contain secrets."""
    arguments = command[1:]
    for position, word in enumerate(arguments):
        if word == "-m":
            return " ".join(arguments[position + 1 : position + 2])
        if not word.startswith("-"):
            return Path(word).name
        if word == "-c":
            break
    return ""
