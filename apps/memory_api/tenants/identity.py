"""Who is calling: tenant ids, API keys and what a key may do.

A key carries its tenant, `hsk_<tenant id, base32>_<secret>`, so that looking it up needs no way
around row-level security:
bind the tenant it claims, then match the SHA-256 of its secret among that tenant's keys.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID, uuid5

from apps.memory_api.core.errors import Forbidden, Invalid, Unauthorized

NAMESPACE = UUID("6f0e7c1c-6f4b-5d0c-9b5e-8d2f0a1b7c3e")
"""Never changes: tenant ids made from slugs depend on it."""

_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_KEY = re.compile(r"hsk_([a-z2-7]{26})_([A-Za-z0-9_-]{20,128})")


class Access(StrEnum):
    """What a key may do. `operator` creates tenants; only the CLI makes such a key, on the owner's
    connection.
    """

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"
    OPERATOR = "operator"


IMPLIED = {
    Access.READ: {Access.READ},
    Access.WRITE: {Access.READ, Access.WRITE},
    Access.ADMIN: {Access.READ, Access.WRITE, Access.ADMIN},
    Access.OPERATOR: {Access.OPERATOR},
}


@dataclass(frozen=True)
class Identity:
    """An authenticated caller."""

    tenant_id: UUID
    key_id: UUID
    scopes: frozenset[Access]
    project_id: str | None = None

    @property
    def actor(self) -> str:
        """Who a change is signed by."""
        return f"key:{self.key_id}"

    def may(self, access: Access) -> bool:
        return any(access in IMPLIED[scope] for scope in self.scopes)

    def require(self, access: Access) -> None:
        if not self.may(access):
            raise Forbidden(f"This key has no '{access}' scope.")

    def project(self, asked: str | None) -> str:
        """The project asked for, if the key may; else the key's; else `default`."""
        if self.project_id is not None and asked not in (None, self.project_id):
            raise Forbidden(
                f"This key is bound to project '{self.project_id}'.", field="project_id"
            )
        return asked or self.project_id or "default"

    def check_tenant(self, claimed: str | None) -> None:
        """A tenant named in a body must be the key's own."""
        if claimed is not None and tenant_id_of(claimed) != self.tenant_id:
            raise Forbidden("tenant_id is not the tenant of this key.", field="tenant_id")


def tenant_id_of(name: str | UUID) -> UUID:
    """A tenant's id: the UUID given, else uuid5 of a fixed namespace and the slug.

    Raises `Invalid` for a name that is neither a UUID nor a slug (letters, digits, `.`, `_`, `-`;
    at most 128).
    """
    if isinstance(name, UUID):
        return name
    try:
        return UUID(name)
    except ValueError:
        if not _SLUG.fullmatch(name):
            raise Invalid(f"'{name[:140]}' is not a tenant name.", field="tenant_id") from None
    return uuid5(NAMESPACE, name)


@dataclass(frozen=True)
class NewKey:
    """A key just made; `text` is shown once and never stored."""

    text: str
    secret_hash: bytes


def make_key(tenant_id: UUID) -> NewKey:
    secret = secrets.token_urlsafe(32)
    claim = base64.b32encode(tenant_id.bytes).decode().rstrip("=").lower()
    return NewKey(f"hsk_{claim}_{secret}", _hash(secret))


def read_key(text: str) -> tuple[UUID, bytes]:
    """The tenant a key claims and the hash to look for. Raises `Unauthorized` for anything that is
    not shaped like a key.
    """
    match = _KEY.fullmatch(text)
    if match is None:
        raise Unauthorized
    try:
        raw = base64.b32decode(match[1].upper() + "=" * 6)
    except binascii.Error:
        raise Unauthorized from None
    return UUID(bytes=raw), _hash(match[2])


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
