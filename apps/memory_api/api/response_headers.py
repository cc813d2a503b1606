"""Headers of every response: against sniffing, framing and caching of tenants' data, the request
ID, and what is left of the caller's rate limits.
"""

from __future__ import annotations

from starlette.types import Scope

RawHeaders = list[tuple[bytes, bytes]]

PAGE_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'"
)
"""`Content-Security-Policy` of the HTML pages of the API, which load nothing from other hosts."""
SECURITY_HEADERS: RawHeaders = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
NO_STORE = (b"cache-control", b"no-store")


def complete_headers(scope: Scope, headers: RawHeaders, request_id: str) -> RawHeaders:
    """The headers of a response, completed. A header that the response has is kept, except for the
    request ID.
    """
    defaults = [*SECURITY_HEADERS, *_rate_limit_headers(scope)]
    if scope["path"].startswith("/api/"):
        defaults.append(NO_STORE)
    names = {name for name, _ in headers}
    completed = [pair for pair in headers if pair[0] != b"x-request-id"]
    completed += [pair for pair in defaults if pair[0] not in names]
    completed.append((b"x-request-id", request_id.encode()))
    return completed


def _rate_limit_headers(scope: Scope) -> RawHeaders:
    """What is left of the limits of an authenticated caller."""
    state: str | None = scope.get("state", {}).get("rate_limit")
    if not state:
        return []
    policy = scope["app"].state.api.rate_limits.policy
    return [(b"ratelimit-policy", policy.encode()), (b"ratelimit", state.encode())]
