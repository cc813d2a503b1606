"""Finds the duplicates of many bullets of one playbook. A product of matrices replaces a search for
each bullet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.curation.context import NEAREST_PER_LESSON, to_nearby
from memory_api.curation.lesson_duplicates import NearbyBullet, is_duplicate
from memory_api.curation.queries import load_memories
from memory_api.memories.queries import find_contents, list_vectors
from memory_api.memories.tables import MemoryRow
from memory_api.runtime import Runtime

ROWS_PER_PRODUCT = 4_096
"""Rows that are converted to single precision at once."""


@dataclass(frozen=True)
class BulletVectors:
    """The vectors of all active bullets: `rows[n]` is the unit vector of the bullet `seqs[n]`. The
    numbers in `seqs` ascend. 20,000 vectors of 256 dimensions have 10 MB.
    """

    seqs: NDArray[np.int64]
    rows: NDArray[np.float16]

    def has(self, seq: int) -> bool:
        place = int(np.searchsorted(self.seqs, seq))
        return place < len(self.seqs) and bool(self.seqs[place] == seq)

    def find_nearest(self, seqs: Sequence[int]) -> list[list[tuple[int, float]]]:
        """For each of these bullets the nearest others: seq and cosine, the nearest first."""
        places = np.searchsorted(self.seqs, np.array(seqs, np.int64))
        cosines = self._multiply(self.rows[places].astype(np.float32))
        cosines[np.arange(len(places)), places] = -np.inf
        count = min(NEAREST_PER_LESSON, len(self.seqs) - 1)
        nearest = np.argpartition(-cosines, max(0, count - 1), axis=1)[:, :count]
        return [
            sorted(
                ((int(self.seqs[n]), float(row[n])) for n in found),
                key=lambda pair: (-pair[1], -pair[0]),
            )
            for row, found in zip(cosines, nearest, strict=True)
        ]

    def _multiply(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """The cosine of each query with each row."""
        cosines = np.empty((len(queries), len(self.rows)), np.float32)
        for start in range(0, len(self.rows), ROWS_PER_PRODUCT):
            part = slice(start, start + ROWS_PER_PRODUCT)
            np.matmul(queries, self.rows[part].astype(np.float32).T, out=cosines[:, part])
        return cosines


@dataclass(frozen=True)
class DuplicateSearch:
    """Finds duplicates among the active bullets of a playbook, as its vectors were when it was
    opened.
    """

    runtime: Runtime
    tenant_id: UUID
    scope: int
    vectors: BulletVectors

    @classmethod
    async def open(cls, runtime: Runtime, tenant_id: UUID, scope: int) -> DuplicateSearch:
        embedder = await runtime.get_tenant_embedder(tenant_id)
        async with runtime.sessions.for_tenant(tenant_id) as session:
            vectors = BulletVectors(*await list_vectors(session, scope, embedder.model))
        return cls(runtime, tenant_id, scope, vectors)

    async def find(self, bullets: Sequence[MemoryRow]) -> list[list[NearbyBullet]]:
        """For each bullet the active bullets that say the same, the nearest first."""
        bullets_by_seq = {row.seq: row for row in bullets if self.vectors.has(row.seq)}
        if not bullets_by_seq:
            return [[] for _ in bullets]
        nearest = await asyncio.to_thread(self.vectors.find_nearest, list(bullets_by_seq))
        others = {seq for found in nearest for seq, _ in found}
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            texts = await find_contents(session, self.scope, others)
            pairs = {
                row.seq: [
                    (texts[seq][0], cosine)
                    for seq, cosine in found
                    if seq in texts and is_duplicate(row.content, texts[seq][1], cosine)
                ]
                for row, found in zip(bullets_by_seq.values(), nearest, strict=True)
            }
            duplicates = await _load_nearby(session, pairs)
        return [duplicates.get(row.seq, []) for row in bullets]


async def _load_nearby(
    session: AsyncSession, pairs: dict[int, list[tuple[UUID, float]]]
) -> dict[int, list[NearbyBullet]]:
    rows = await load_memories(session, {other for found in pairs.values() for other, _ in found})
    return {
        seq: [to_nearby(rows[other], cosine) for other, cosine in found if other in rows]
        for seq, found in pairs.items()
    }
