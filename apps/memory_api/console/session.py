"""Sessions of the console: a person logs in with an API key and gets a cookie.

The cookie contains the tenant ID and a random token. The database stores the SHA-256 of the token.
A session ends after `IDLE` without a request, after `MAX_AGE`, and with its API key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from fastapi import Request, Response

from memory_api.auth.identity import Identity, KeyScope
from memory_api.console import queries
from memory_api.console.tables import ConsoleSessionRow
from memory_api.core.ids import new_id
from memory_api.runtime import Runtime

SESSION_COOKIE = "hansei_console"
LOGIN_COOKIE = "hansei_login"
"""A random value that binds the login form to the browser."""
COOKIE_PATH = "/console"
IDLE = timedelta(minutes=30)
MAX_AGE = timedelta(hours=8)
USE_INTERVAL = timedelta(minutes=1)
"""The last use of a session is written at most this often."""
_TOKEN = re.compile(r"([0-9a-f]{32})\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True)
class SessionToken:
    """The content of the cookie."""

    tenant_id: UUID
    secret: str

    @property
    def text(self) -> str:
        return f"{self.tenant_id.hex}.{self.secret}"

    @property
    def secret_hash(self) -> bytes:
        return hashlib.sha256(self.secret.encode()).digest()


@dataclass(frozen=True)
class Login:
    """A valid session: whose it is, and the CSRF token of its forms."""

    caller: Identity
    key_name: str
    csrf: str


def parse_token(text: str) -> SessionToken | None:
    match = _TOKEN.fullmatch(text)
    return SessionToken(UUID(match[1]), match[2]) if match else None


def csrf_token(secret: str) -> str:
    """The token of the forms of a session, or of a browser before the login. It follows from the
    secret in the cookie, which no other site can read.
    """
    return hmac.new(secret.encode(), b"hansei console form", hashlib.sha256).hexdigest()


def is_csrf_token(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


async def create_console_session(runtime: Runtime, caller: Identity) -> SessionToken:
    token = SessionToken(caller.tenant_id, secrets.token_urlsafe(32))
    now = datetime.now(UTC)
    async with runtime.sessions.for_tenant(caller.tenant_id) as session:
        await queries.delete_ended_sessions(session, now - IDLE)
        session.add(
            ConsoleSessionRow(
                tenant_id=caller.tenant_id,
                id=new_id(),
                key_id=caller.key_id,
                secret_hash=token.secret_hash,
                expires_at=now + MAX_AGE,
            )
        )
    return token


async def find_login(runtime: Runtime, cookie: str) -> Login | None:
    """The session of a cookie, if it is valid."""
    token = parse_token(cookie)
    if token is None:
        return None
    now = datetime.now(UTC)
    async with runtime.sessions.for_tenant(token.tenant_id) as session:
        found = await queries.get_valid_session(session, token.secret_hash, now - IDLE)
        if found is None:
            return None
        row, key = found
        if now - row.last_used_at > USE_INTERVAL:
            await queries.mark_session_used(session, token.secret_hash)
    caller = Identity(
        tenant_id=token.tenant_id,
        key_id=key.id,
        scopes=frozenset(KeyScope(scope) for scope in key.scopes),
        project_id=key.project_id,
    )
    return Login(caller, key.name, csrf_token(token.secret))


async def delete_console_session(runtime: Runtime, cookie: str) -> None:
    token = parse_token(cookie)
    if token is None:
        return
    async with runtime.sessions.for_tenant(token.tenant_id) as session:
        await queries.delete_session(session, token.secret_hash)


def set_cookie(request: Request, response: Response, name: str, value: str) -> None:
    """Set a cookie that scripts cannot read, other sites do not cause to be sent, and that ends
    with the browser.
    """
    response.set_cookie(
        name,
        value,
        path=COOKIE_PATH,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
