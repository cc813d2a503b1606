"""Holdout: withholds a random bullet of a render, to measure the effect of bullets, or the whole
block, to measure the effect of all advice.

Each render draws one bullet of its prompt block and withholds it with a probability. The drawn
bullet is stored in both cases. Renders that drew the same bullet differ only in whether it was
withheld, so the outcomes of their runs can be compared directly (function
`analytics.effects`). Both random decisions are deterministic for a `retrieval_id`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.statements import fetch_rows, load_statement
from memory_api.playbooks.ref import PlaybookRef

EFFECTS = load_statement("playbooks/queries.sql", "bullet_effects")
_RANGE = 2.0**64  # number of values of 8 random bytes


@dataclass(frozen=True)
class HoldoutDraw:
    candidate: str
    held_out: bool


def draw_holdout(retrieval_id: UUID, keys: Sequence[str], share: float) -> HoldoutDraw | None:
    """Draws one of `keys` uniformly and withholds it with probability `share`, 0..1. Deterministic
    for a `retrieval_id`; the order of `keys` does not matter. Returns None without keys and for a
    share of 0.
    """
    if share <= 0.0 or not keys:
        return None
    digest = hashlib.sha256(b"holdout" + retrieval_id.bytes).digest()
    random_share, random_index = (int.from_bytes(digest[n : n + 8], "big") for n in (0, 8))
    candidate = sorted(keys)[random_index % len(keys)]
    return HoldoutDraw(candidate, random_share / _RANGE < share)


def is_advice_held_out(secret: bytes, scope_id: int, session: str, share: float) -> bool:
    """Whether all renders of a session get no advice, with probability `share`, 0..1. The tenant's
    secret makes the draw unpredictable for clients.
    """
    message = f"advice\n{scope_id}\n{session}".encode()
    digest = hmac.digest(secret, message, "sha256")
    return int.from_bytes(digest[:8], "big") / _RANGE < share


@dataclass(frozen=True)
class EffectPeriod:
    """The time of the retrievals: `since` is included, `until` excluded; None is unlimited."""

    since: datetime | None = None
    until: datetime | None = None


async def list_effects(
    session: AsyncSession,
    playbook: PlaybookRef,
    period: EffectPeriod,
    *,
    key: str | None = None,
    after: str | None = None,
    limit: int = 50,
) -> Sequence[Any]:
    """The effects of the bullets that were returned to a finished run, by key: rows (key, status,
    sides by basis). Returns `limit` + 1 rows if there is a next page. With `key`, only this bullet.
    """
    parameters = {
        "project": playbook.project_id,
        "playbook": playbook.name,
        "since": period.since,
        "until": period.until,
        "key": key,
        "after": after,
        "limit": limit + 1,
    }
    return await fetch_rows(session, EFFECTS, parameters)
