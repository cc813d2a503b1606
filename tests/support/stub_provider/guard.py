"""No test reaches a real provider: Python itself refuses the connection. Installed once per
process, for good."""

from __future__ import annotations

import ipaddress
import sys
from typing import Any

PROVIDERS = ("openai.com", "anthropic.com", "azure.com", "amazonaws.com", "googleapis.com")

_installed: list[bool] = []


class RealProviderReached(AssertionError):
    """A test tried to leave this machine."""


def forbid_real_providers() -> None:
    """Refuse to resolve a provider's name and to connect to any public address. A second call does
    nothing."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.getaddrinfo":
        host = args[0].decode() if isinstance(args[0], bytes) else str(args[0] or "")
        host = host.lower().rstrip(".")
        if host.endswith(PROVIDERS):
            raise RealProviderReached(f"a test asked for {host}")
    elif event == "socket.connect" and isinstance(args[1], tuple) and _public(str(args[1][0])):
        raise RealProviderReached(f"a test connected to {args[1][0]}")


def _public(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_global
    except ValueError:
        return False
