"""Refuses private network addresses for requests to URLs that are configured or sent by clients."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urlsplit

from memory_api.core.errors import HanseiError

_IPV6_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_REFUSED = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocols; metadata of one cloud
        "192.88.99.0/24",  # relays of 6to4
        "168.63.129.16/32",  # the host's services in Azure
        "2001::/23",  # protocols, with Teredo
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
"""The first half of an interface identifier that holds an IPv4 address."""
_LOOK_UPS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="look-up")
"""A look-up cannot be canceled. A slow name server of a tenant holds no thread that others need."""
_QUERY_CHARACTERS = "%/:?@!$&'()*+,;=~"


class AddressRefused(HanseiError):
    """The URL is not allowed."""

    status, code = 422, "address_refused"


@dataclass(frozen=True)
class ResolvedUrl:
    """A URL with the address that its host had when it was checked. Connect to this address: a
    second look-up may return another one.
    """

    scheme: str
    host: str
    address: str
    port: int
    host_header: str
    target: str
    """Path and query."""


def parse_url(url: str) -> tuple[SplitResult, str, int]:
    """The parts of an http or https URL, its host in ASCII, and its port. Raises `AddressRefused`
    for another scheme, for credentials in the URL, and for one that cannot be parsed.
    """
    try:
        parts = urlsplit(url)
        if not url.isprintable() or " " in parts.netloc:
            raise ValueError("it contains a control character, or its host a space")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        name = parts.hostname or ""
        host = name if ":" in name else name.encode("idna").decode()
    except ValueError as error:
        raise AddressRefused(f"The URL is invalid: {error}.") from error
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        raise AddressRefused("The URL must be http or https, with a host and without credentials.")
    return parts, host, port


async def resolve_url(url: str, *, allow_private: bool) -> ResolvedUrl:
    """Look up the host of an http or https URL. Raises `AddressRefused` as `parse_url` does, for an
    unknown host, and, without `allow_private`, if any address of the host is not public.
    """
    parts, host, port = parse_url(url)
    addresses = await _look_up(host, port)
    if not allow_private and not all(map(is_public, addresses)):
        raise AddressRefused(
            f"{host} is a private address. Set HANSEI_WEBHOOK_ALLOW_PRIVATE=true to allow it."
        )
    shown = f"[{host}]" if ":" in host else host
    header = f"{shown}:{parts.port}" if parts.port else shown
    return ResolvedUrl(parts.scheme, host, addresses[0], port, header, _target(parts))


def _target(parts: SplitResult) -> str:
    path = quote(parts.path or "/", safe=_QUERY_CHARACTERS)
    return f"{path}?{quote(parts.query, safe=_QUERY_CHARACTERS)}" if parts.query else path


async def _look_up(host: str, port: int) -> list[str]:
    def look_up() -> list[str]:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [str(entry[4][0]).partition("%")[0] for entry in found]

    try:
        return await asyncio.get_running_loop().run_in_executor(_LOOK_UPS, look_up)
    except (OSError, UnicodeError) as error:
        raise AddressRefused(f"The host {host} is unknown.") from error


def is_public(address: str) -> bool:
    """Whether an address belongs to a host of the public internet. IPv6 forms of an IPv4 address
    are judged by it (NAT64, IPv4-mapped) or refused (all tunnels). The NAT64 prefix of a network of
    its own cannot be recognized.
    """
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return is_public(str(parsed.ipv4_mapped))
        if parsed in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)))
        if parsed not in _IPV6_UNICAST or (int(parsed) >> 32) & 0xFFFFFFFF in _ISATAP:
            return False
    if any(parsed in network for network in _REFUSED):
        return False
    return parsed.is_global and not parsed.is_multicast
