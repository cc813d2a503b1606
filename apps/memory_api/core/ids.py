"""Public IDs: UUIDv7, generated in Python because PostgreSQL 16 and 17 have no uuidv7(). Do not
rely on their order. The ID of a tenant comes from its name.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import time
from datetime import UTC, datetime
from uuid import UUID, uuid5

from memory_api.core.errors import InvalidRequest

TENANT_NAMESPACE = UUID("6f0e7c1c-6f4b-5d0c-9b5e-8d2f0a1b7c3e")
"""Must never change: the tenant IDs of slugs are derived from it."""

_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def new_id() -> UUID:
    """Generate a UUIDv7 (RFC 9562): 48 bits of milliseconds, then 74 random bits."""
    return _uuid7(time.time_ns() // 1_000_000, os.urandom(10))


def derived_id(at: datetime, *parts: object) -> UUID:
    """Return a deterministic UUIDv7 for a time and `parts`."""
    digest = hashlib.sha256("\n".join(map(str, parts)).encode()).digest()
    return _uuid7(int(at.timestamp() * 1000), digest[:10])


SIGNATURE_BITS = 50
"""A guess is right once in 10^15 tries."""


def new_signed_id(secret: bytes, *parts: object) -> UUID:
    """Generate a UUIDv7 whose last `SIGNATURE_BITS` are an HMAC-SHA-256 of its other bits and of
    `parts`. 24 bits are random.
    """
    return _sign(new_id(), secret, parts)


def is_signed_id(value: UUID, secret: bytes, *parts: object) -> bool:
    """Whether `new_signed_id` generated the ID with this secret and these parts."""
    return hmac.compare_digest(value.bytes, _sign(value, secret, parts).bytes)


def _sign(value: UUID, secret: bytes, parts: tuple[object, ...]) -> UUID:
    prefix = value.int >> SIGNATURE_BITS
    message = "\n".join(map(str, (prefix, *parts))).encode()
    digest = int.from_bytes(hmac.digest(secret, message, "sha256"), "big")
    return UUID(int=prefix << SIGNATURE_BITS | digest & ((1 << SIGNATURE_BITS) - 1))


def id_timestamp(uuid7: UUID) -> datetime:
    """The creation time in a UUIDv7, to the millisecond, by the clock of its producer."""
    return datetime.fromtimestamp((uuid7.int >> 80) / 1000, UTC)


def _uuid7(milliseconds: int, random_bytes: bytes) -> UUID:
    random = int.from_bytes(random_bytes, "big")
    value = (milliseconds & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76
    value |= (random >> 68 & 0xFFF) << 64 | 0b10 << 62 | random & 0x3FFF_FFFF_FFFF_FFFF
    return UUID(int=value)


def to_tenant_id(name: str | UUID) -> UUID:
    """Return a UUID unchanged, and for a slug its uuid5 in `TENANT_NAMESPACE`.

    Raises `InvalidRequest` for a name that is neither a UUID nor a slug (1 to 128 letters, digits,
    `.`, `_` or `-`).
    """
    if isinstance(name, UUID):
        return name
    try:
        return UUID(name)
    except ValueError:
        if not _SLUG.fullmatch(name):
            raise InvalidRequest(
                f"'{name[:140]}' is not a valid tenant name. Use a UUID, or up to 128 letters,"
                " digits, `.`, `_` and `-`.",
                field="tenant_id",
            ) from None
    return uuid5(TENANT_NAMESPACE, name)
