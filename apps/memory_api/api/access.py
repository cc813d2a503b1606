"""Who may read figures of the whole service, without an API key of a tenant."""

from __future__ import annotations

import secrets
from ipaddress import ip_address

from fastapi import Request
from pydantic import SecretStr

from memory_api.core.errors import Forbidden, Unauthorized

FORWARDING_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
"""A proxy on the same machine adds one of these. Its clients are not on the loopback address."""


class MetricsForbidden(Forbidden):
    """Metrics are readable from the loopback address only. Set `HANSEI_METRICS_TOKEN` to read them
    from another machine.
    """


class MetricsTokenInvalid(Unauthorized):
    """Send `Authorization: Bearer` with the value of `HANSEI_METRICS_TOKEN`."""


def is_loopback(request: Request) -> bool:
    """Whether the client is on this machine and no proxy is in between."""
    if request.client is None or any(name in request.headers for name in FORWARDING_HEADERS):
        return False
    try:
        return ip_address(request.client.host).is_loopback
    except ValueError:  # not an address, such as the path of a Unix socket
        return False


def require_metrics_access(request: Request, token: SecretStr | None) -> None:
    """With a token, every client must send it; without one, the client must be on the loopback
    address. Raises `MetricsForbidden` or `MetricsTokenInvalid`.
    """
    if token is None:
        if not is_loopback(request):
            raise MetricsForbidden
        return
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    expected = token.get_secret_value().encode()
    if scheme.lower() != "bearer" or not secrets.compare_digest(sent.encode(), expected):
        raise MetricsTokenInvalid
