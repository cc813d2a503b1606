"""One function for calls to addresses that a tenant or the operator chooses. Private addresses are
refused unless the caller allows them. The other side decides neither how long a call takes nor how
much of its answer is read.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast
from urllib.parse import SplitResult, quote, urlsplit

import h11
import httpx2

from memory_api.core.errors import HanseiError

MAX_HEAD_BYTES = 64 * 1024
"""At most this much is read without a body."""
READ_BYTES = 16 * 1024
MAX_PROVIDER_BYTES = 16 * 1024 * 1024
"""Of an answer of a model provider, which can hold 128 vectors as text."""
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


class CallFailed(HanseiError):
    """The other side cannot be reached, or its answer is late, too large or not HTTP."""


@dataclass(frozen=True)
class OutgoingCall:
    """`seconds` limits the whole call, from the look-up of the host to the last byte. Without
    `max_bytes`, no body is read.
    """

    method: str
    url: str
    allow_private: bool
    seconds: float = 10.0
    max_bytes: int = 0
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content: bytes = b""
    tls: ssl.SSLContext | None = None
    """Unset: the certificate authorities of the system."""


@dataclass(frozen=True)
class OutgoingAnswer:
    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


async def send_call(call: OutgoingCall) -> OutgoingAnswer:
    """Send a request to the address that was checked. No redirect is followed, and nothing is
    decompressed. Raises `AddressRefused` and `CallFailed`.
    """
    try:
        async with asyncio.timeout(call.seconds):
            return await _send(call)
    except TimeoutError as error:
        raise CallFailed(f"No answer within {call.seconds:g} seconds.") from error
    except (OSError, h11.ProtocolError) as error:
        raise CallFailed(f"No answer: {type(error).__name__}.") from error


async def _send(call: OutgoingCall) -> OutgoingAnswer:
    url = await resolve_url(call.url, allow_private=call.allow_private)
    is_tls = url.scheme == "https"
    reader, writer = await asyncio.open_connection(
        url.address,
        url.port,
        limit=READ_BYTES,
        ssl=(call.tls or _tls()) if is_tls else None,
        server_hostname=url.host if is_tls else None,
    )
    try:
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        headers = {
            "Host": url.host_header,
            "User-Agent": "hansei",
            "Accept-Encoding": "identity",
            "Connection": "close",
            "Content-Length": str(len(call.content)),
            **call.headers,
        }
        request = h11.Request(method=call.method, target=url.target, headers=list(headers.items()))
        for event in (request, h11.Data(data=call.content), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        return await _read_answer(connection, reader, call.max_bytes)
    finally:
        writer.transport.abort()


async def _read_answer(
    connection: h11.Connection, reader: asyncio.StreamReader, max_bytes: int
) -> OutgoingAnswer:
    """Informational responses, headers and chunk sizes count too."""
    status, body, unread = 0, bytearray(), MAX_HEAD_BYTES + max_bytes
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(READ_BYTES)
            unread -= len(data)
            if unread < 0:
                raise CallFailed(f"The answer has more than {max_bytes or MAX_HEAD_BYTES:,} bytes.")
            connection.receive_data(data)
        elif isinstance(event, h11.Response):
            status = event.status_code
            if not max_bytes:
                return OutgoingAnswer(status, b"")
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return OutgoingAnswer(status, bytes(body))
        elif not isinstance(event, h11.InformationalResponse):
            raise CallFailed("The answer is incomplete.")


@cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes tens of milliseconds."""
    return ssl.create_default_context()


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        async for part in self._stream:
            count += len(part)
            if count > MAX_PROVIDER_BYTES:
                raise httpx2.ReadError(f"The answer has more than {MAX_PROVIDER_BYTES:,} bytes.")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _ask_uncompressed(request: httpx2.Request) -> None:
    request.headers["Accept-Encoding"] = "identity"


async def _limit_answer(response: httpx2.Response) -> None:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise httpx2.DecodingError("The answer is compressed, which was not asked for.")
    response.stream = _LimitedStream(cast("httpx2.AsyncByteStream", response.stream))


PROVIDER_CLIENT: dict[str, Any] = {
    "follow_redirects": False,
    "event_hooks": {"request": [_ask_uncompressed], "response": [_limit_answer]},
}
"""Options of the HTTP client in the SDK of a model provider. Its caller sets the deadline."""
