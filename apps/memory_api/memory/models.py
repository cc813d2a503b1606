"""Vectors of one model made beside those of another, batch by batch, while memories are searched,
written and changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.sql import load
from apps.memory_api.memory.scopes import ensure_labels

MISSING = load(__file__, "missing_vectors.sql")
LOCK = load(__file__, "lock_memories.sql")
FILL = load(__file__, "fill_vectors.sql")
DROP = load(__file__, "drop_vectors.sql")
OLD = load(__file__, "old_models.sql")
SCOPES = load(__file__, "model_scopes.sql")


class Missing(NamedTuple):
    """A memory without a vector of the model asked for. `said` is the MD5 of its text."""

    n: int
    id: UUID
    text: str
    said: str


class Pass(NamedTuple):
    """From which model's vectors to which, in one scope, both by their labels' numbers."""

    scope: int
    source: int
    target: int


async def number_of(session: AsyncSession, label: str) -> int:
    """The number of a model's label, made where it is missing."""
    return (await ensure_labels(session, [("model", label)]))["model", label]


async def sizes_of(session: AsyncSession, model: int) -> dict[int, int]:
    """Scope → how many vectors of this model it has."""
    rows = await session.execute(SCOPES, {"tenant": tenant_of(session), "model": model})
    return {row.scope: row.many for row in rows}


async def find_missing(
    session: AsyncSession, where: Pass, after: int, many: int
) -> Sequence[Missing]:
    """The next memories by number that lack a vector of the target."""
    given = {"tenant": tenant_of(session), **where._asdict(), "after": after, "many": many}
    return [Missing(*row) for row in await session.execute(MISSING, given)]


async def fill(
    session: AsyncSession, where: Pass, rows: Sequence[Missing], vectors: NDArray[np.float32]
) -> int:
    """Store vectors, shape (len(rows), dimensions), of those that still say the same. Answers how
    many are new.
    """
    tenant = tenant_of(session)
    await session.execute(LOCK, {"tenant": tenant, "ids": [row.id for row in rows]})
    made = await session.execute(
        FILL,
        {
            "tenant": tenant,
            **where._asdict(),
            "ns": [row.n for row in rows],
            "said": [row.said for row in rows],
            "embs": [HalfVector(vector) for vector in vectors],
        },
    )
    return len(made.all())


async def find_old_models(session: AsyncSession, grace: timedelta) -> dict[int, str]:
    """Number → label of the models whose vectors can go; `grace` is how long a model that was
    active may still be asked for.
    """
    rows = await session.execute(OLD, {"tenant": tenant_of(session), "grace": grace})
    return {row.id: row.name for row in rows}


async def drop_batch(session: AsyncSession, where: Pass, after: int, many: int) -> Sequence[int]:
    """Delete vectors of the source that have their counterpart in the target. Answers the numbers
    of their memories.
    """
    given = {
        "tenant": tenant_of(session),
        "scope": where.scope,
        "model": where.source,
        "kept": where.target,
    }
    gone = await session.execute(DROP, {**given, "after": after, "many": many})
    return gone.scalars().all()
