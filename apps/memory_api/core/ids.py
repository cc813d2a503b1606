"""Public ids: UUIDv7 made in Python (PostgreSQL 16 and 17 have no uuidv7()). They are names, not an
order.
"""

from __future__ import annotations

import hashlib
import os
import time
from datetime import UTC, datetime
from uuid import UUID


def new_id() -> UUID:
    """A UUIDv7 (RFC 9562): 48 bits of milliseconds, then 74 random bits."""
    return _uuid7(time.time_ns() // 1_000_000, os.urandom(10))


def same_id(at: datetime, *said: object) -> UUID:
    """A UUIDv7 that is the same whenever it is made of the same time and words."""
    digest = hashlib.sha256("\n".join(map(str, said)).encode()).digest()
    return _uuid7(int(at.timestamp() * 1000), digest[:10])


def made_at(made: UUID) -> datetime:
    """When a UUIDv7 was made, to the millisecond, by the clock of whoever made it."""
    return datetime.fromtimestamp((made.int >> 80) / 1000, UTC)


def _uuid7(milliseconds: int, bits: bytes) -> UUID:
    random = int.from_bytes(bits, "big")
    value = (milliseconds & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76
    value |= (random >> 68 & 0xFFF) << 64 | 0b10 << 62 | random & 0x3FFF_FFFF_FFFF_FFFF
    return UUID(int=value)
