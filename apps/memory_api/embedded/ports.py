"""Is a port free, and who has it if not."""

from __future__ import annotations

import errno
import ipaddress
import socket
from pathlib import Path

import psutil

from apps.memory_api.embedded.errors import PortUnavailable

_LONGEST_NAME = 60


def check_port(host: str, port: int) -> None:
    """Try to listen, as the server will. Raises PortUnavailable with the reason in one line."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise PortUnavailable(f"cannot listen on {host}:{port}: {error}") from error
        owner = port_owner(host, port) or "a process that cannot be seen from here"
        raise PortUnavailable(f"port {port} is in use by {owner}") from error


def port_owner(host: str, port: int) -> str | None:
    """Who listens there, as "pid 123 (uvicorn)". None when nobody does, or nobody we may see."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:  # macOS shows them to root only
        return None
    for one in connections:
        if one.status != psutil.CONN_LISTEN or not one.laddr:
            continue
        if one.laddr.port == port and _meets(host, one.laddr.ip):
            return _describe(one.pid) if one.pid else "a process of another user"
    return None


def _meets(host: str, listening: str) -> bool:
    """Whether a listener on one address is in the way of the other."""
    if _is_wildcard(host) or _is_wildcard(listening):
        return True
    return listening in {info[4][0] for info in socket.getaddrinfo(host, None)}


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
            name = _program(process.cmdline()) or name
    except psutil.Error:  # it has just ended, or is not ours to see
        return f"pid {pid}"
    return f"pid {pid} ({name[:_LONGEST_NAME]})"


def _program(command: list[str]) -> str:
    """The script or module an interpreter runs; never its arguments, which may hold secrets."""
    arguments = command[1:]
    for position, word in enumerate(arguments):
        if word == "-m":
            return " ".join(arguments[position + 1 : position + 2])
        if not word.startswith("-"):
            return Path(word).name
        if word == "-c":
            break
    return ""
