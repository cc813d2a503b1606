"""Refuses private network addresses for requests to URLs that are configured or sent by clients."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from memory_api.core.errors import HanseiError


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
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise AddressRefused("The URL must be http or https, with a host and without credentials.")
    addresses = await _look_up(parts)
    if not allow_private and not all(ipaddress.ip_address(a).is_global for a in addresses):
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
    except OSError as error:
        raise AddressRefused(f"The host {parts.hostname} is unknown.") from error
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    return [_unmapped(address) for address in addresses]


def _unmapped(address: str) -> str:
    """An IPv4 address that is written as IPv6 as IPv4."""
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)
