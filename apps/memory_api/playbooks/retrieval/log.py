"""Records retrievals: what one search or render handed out.

The request inserts its retrieval before it answers, so a verdict that names the `retrieval_id` is
accepted by any process at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from apps.memory_api.core.db import Sessions
from apps.memory_api.core.ids import new_id

INSERT_RETRIEVAL = (
    "select hansei_insert_retrieval($1, $2, $3, $4, $5, $6, $7::text[], $8::real[], $9, $10)"
)


@dataclass(frozen=True)
class RetrievalRecord:
    """One search or render. `bullet_keys` and `scores` are parallel. `holdout_candidate` is the
    bullet of the holdout experiment, if there is one, and `held_out` whether it was withheld.
    """

    scope_id: int
    version: int
    kind: Literal["search", "render"]
    query: str
    bullet_keys: Sequence[str]
    scores: Sequence[float]
    holdout_candidate: str | None = None
    held_out: bool = False
    retrieval_id: UUID = field(default_factory=new_id)


async def insert_retrieval(sessions: Sessions, tenant_id: UUID, record: RetrievalRecord) -> None:
    """Insert a retrieval in one round trip. It is committed when this returns."""
    async with sessions.raw_connection() as connection:
        await connection.execute(
            INSERT_RETRIEVAL,
            tenant_id,
            record.retrieval_id,
            record.scope_id,
            record.version,
            record.kind,
            record.query,
            list(record.bullet_keys),
            list(record.scores),
            record.holdout_candidate,
            record.held_out,
        )
