"""Refuses private network addresses for requests to URLs that are configured or sent by clients."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

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


class AddressRefused(HanseiError):
    """The URL is not allowed."""

    status, code = 422, "address_refused"


@dataclass(frozen=True)
class ResolvedUrl:
    """A URL with the address that its host had when it was checked. Connect to this address: a
    second look-up may return another one.
    """

    url: str
    host: str
    host_header: str
    address: str

    @property
    def url_of_address(self) -> str:
        """The URL with the address as its host."""
        parts = urlsplit(self.url)
        address = f"[{self.address}]" if ":" in self.address else self.address
        port = f":{parts.port}" if parts.port else ""
        return parts._replace(netloc=f"{address}{port}").geturl()


async def resolve_url(url: str, *, allow_private: bool) -> ResolvedUrl:
    """Look up the host of an http or https URL. Raises `AddressRefused` for another scheme, for
    credentials in the URL, for an unknown host, and, without `allow_private`, if any address of the
    host is not public.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise AddressRefused(f"The URL is invalid: {error}.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise AddressRefused("The URL must be http or https, with a host and without credentials.")
    addresses = await _look_up(parts)
    if not allow_private and not all(map(is_public, addresses)):
        raise AddressRefused(
            f"{parts.hostname} is a private address. Set HANSEI_WEBHOOK_ALLOW_PRIVATE=true to"
            " allow it."
        )
    port = f":{parts.port}" if parts.port else ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return ResolvedUrl(url, parts.hostname, f"{host}{port}", addresses[0])


async def _look_up(parts: SplitResult) -> list[str]:
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            parts.hostname, port, type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError) as error:
        raise AddressRefused(f"The host {parts.hostname} is unknown.") from error
    return [str(entry[4][0]).partition("%")[0] for entry in found]


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
