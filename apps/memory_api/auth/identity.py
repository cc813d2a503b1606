"""API keys, their scopes, the identity of a caller, and the key cache.

A key contains its tenant ID: `hsk_<tenant ID, base32>_<secret>`. A lookup binds this tenant and
then searches the SHA-256 of the secret among the tenant's keys, so it needs no exception from
row-level security.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from uuid import UUID

from memory_api.core.errors import Forbidden, Unauthorized
from memory_api.core.ids import to_tenant_id

_KEY = re.compile(r"hsk_([a-z2-7]{26})_([A-Za-z0-9_-]{20,128})")


class KeyScope(StrEnum):
    """What an API key may do. `operator` keys create tenants. Only the CLI can create them, with
    the owner connection.
    """

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"
    OPERATOR = "operator"


IMPLIED_SCOPES = {
    KeyScope.READ: {KeyScope.READ},
    KeyScope.WRITE: {KeyScope.READ, KeyScope.WRITE},
    KeyScope.ADMIN: {KeyScope.READ, KeyScope.WRITE, KeyScope.ADMIN},
    KeyScope.OPERATOR: {KeyScope.OPERATOR},
}


@dataclass(frozen=True)
class Identity:
    """An authenticated caller."""

    tenant_id: UUID
    key_id: UUID
    scopes: frozenset[KeyScope]
    project_id: str | None = None

    @property
    def actor(self) -> str:
        """Recorded as the author of a change."""
        return f"key:{self.key_id}"

    def has_scope(self, scope: KeyScope) -> bool:
        return any(scope in IMPLIED_SCOPES[own] for own in self.scopes)

    def require_scope(self, scope: KeyScope) -> None:
        if not self.has_scope(scope):
            raise Forbidden(f"This API key does not have the scope `{scope}`.")

    def resolve_project(self, requested: str | None) -> str:
        """Return the requested project, else the key's project, else `default`. Raises `Forbidden`
        if the key is bound to another project.
        """
        if self.project_id is not None and requested not in (None, self.project_id):
            raise Forbidden(
                f"This API key is bound to project '{self.project_id}'.", field="project_id"
            )
        return requested or self.project_id or "default"

    def require_tenant(self, tenant: str | None) -> None:
        """Raise `Forbidden` if a request names another tenant than the key's."""
        if tenant is not None and to_tenant_id(tenant) != self.tenant_id:
            raise Forbidden("`tenant_id` is not the tenant of this API key.", field="tenant_id")


@dataclass(frozen=True)
class GeneratedKey:
    """A new key. `text` is shown once and never stored."""

    text: str
    secret_hash: bytes


def generate_key(tenant_id: UUID) -> GeneratedKey:
    secret = secrets.token_urlsafe(32)
    encoded_tenant = base64.b32encode(tenant_id.bytes).decode().rstrip("=").lower()
    return GeneratedKey(f"hsk_{encoded_tenant}_{secret}", _hash(secret))


def parse_key(text: str) -> KeyClaim:
    """Return the tenant ID in a key and the SHA-256 of its secret. Raises `Unauthorized` for a text
    that does not have the format of a key. Does not check whether the key exists.
    """
    match = _KEY.fullmatch(text)
    if match is None:
        raise Unauthorized
    return _decode_tenant_id(match[1]), _hash(match[2])


@lru_cache(maxsize=1 << 12)
def _decode_tenant_id(text: str) -> UUID:
    try:
        return UUID(bytes=base64.b32decode(text.upper() + "=" * 6))
    except binascii.Error:
        raise Unauthorized from None


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


KEY_CACHE_SECONDS = 5.0
MAX_CACHED_KEYS = 10_000
"""At this size the cache is cleared."""

KeyClaim = tuple[UUID, bytes]
"""The tenant ID in a key and the SHA-256 of its secret."""


class KeyCache:
    """The identities of recently checked keys, per process, so that not every request queries the
    database.

    A revoked key stops working at once in the process that revoked it and within
    `KEY_CACHE_SECONDS` in all others; so do the keys of a suspended tenant. An expired key stops
    exactly at its expiry. `clock` returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[KeyClaim, tuple[Identity, float]] = {}

    def get(self, claim: KeyClaim) -> Identity | None:
        identity, expires_at = self._entries.get(claim, (None, 0.0))
        return identity if self._clock() < expires_at else None

    def has_worked(self, claim: KeyClaim) -> bool:
        """Whether the key was valid when this process last asked the database."""
        return claim in self._entries

    def add(self, claim: KeyClaim, identity: Identity, key_expires_at: datetime | None) -> None:
        """Add an identity that the database has confirmed."""
        seconds = KEY_CACHE_SECONDS
        if key_expires_at is not None:
            seconds = min(seconds, (key_expires_at - datetime.now(UTC)).total_seconds())
        if len(self._entries) >= MAX_CACHED_KEYS:
            self._entries.clear()
        self._entries[claim] = (identity, self._clock() + seconds)

    def discard(self, claim: KeyClaim) -> None:
        self._entries.pop(claim, None)

    def remove(self, key_id: UUID) -> None:
        self._entries = {
            claim: entry for claim, entry in self._entries.items() if entry[0].key_id != key_id
        }
