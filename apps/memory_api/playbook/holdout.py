"""Leaving out a bullet by lot, so that what it does can be measured and not only believed.

Each render draws one bullet of its block, and a coin decides whether that bullet is left out. The
drawn bullet is noted either way: among the renders that drew it, only the coin differs, so the runs
with it and without it can be compared as they are (view `bullet_effects`). Both draws follow from
the render's id alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.sql import load

EFFECTS = load(__file__, "effects.sql")
_RANGE = 2.0**64


@dataclass(frozen=True)
class Draw:
    """The bullet that was drawn, and whether it is left out."""

    candidate: str
    held_out: bool


def draw(render_id: UUID, keys: Sequence[str], share: float) -> Draw | None:
    """The lot of one render: each of `keys` is drawn alike, and left out with chance `share`, 0..1.
    None when there is nothing to draw from, or nothing is ever left out. The order of `keys` does
    not matter.
    """
    if share <= 0.0 or not keys:
        return None
    digest = hashlib.sha256(b"holdout" + render_id.bytes).digest()
    coin, lot = (int.from_bytes(digest[n : n + 8], "big") for n in (0, 8))
    candidate = sorted(keys)[lot % len(keys)]
    return Draw(candidate, coin / _RANGE < share)


async def list_effects(
    session: AsyncSession, scope: int, *, behind: str | None = None, limit: int = 50
) -> Sequence[Any]:
    """Rows (key, sides by basis) of a playbook's bullets that were ever served to a run that ended,
    by key; one more than `limit` when there is a next page.
    """
    given = {"tenant": tenant_of(session), "scope": scope, "behind": behind, "limit": limit + 1}
    return (await session.execute(EFFECTS, given)).all()
