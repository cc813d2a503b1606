"""The designs that the service is compared with, on the same texts, vectors and queries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.library.hybrid_search import EmbeddingClient, HybridSearch
from memory_api.memories.index.drafts import PreparedMemory
from memory_api.playbooks.models import Bullet, Playbook, SearchQuery


class JsonFile:
    """(b) Spec 2 literally: for each query, read the file, embed all bullets and build BM25."""

    def __init__(self, path: Path, items: Sequence[PreparedMemory]) -> None:
        self.path = path
        bullets = [
            Bullet(id=f"b-{n:05d}", section="all", content=item.draft.content)
            for n, item in enumerate(items)
        ]
        path.write_text(Playbook(bullets=bullets).model_dump_json(), encoding="utf8")
        self.client = EmbeddingClient(StaticEmbedder())
        self.hybrid = HybridSearch(self.client)

    def search(self, text: str) -> list[str]:
        playbook = Playbook.model_validate(json.loads(self.path.read_text(encoding="utf8")))
        query = SearchQuery(query_text=text, top_k=10, min_confidence=0.0)
        return [hit.bullet.id for hit in self.hybrid.search(query, playbook)]

    def close(self) -> None:
        """Do not call it inside a running event loop."""
        self.client.close()


class InProcess:
    """(b′) In-process search: vectors and a bm25s index in memory."""

    def __init__(self, items: Sequence[PreparedMemory]) -> None:
        self.bm25s = import_module("bm25s")
        self.matrix = np.stack([item.vector for item in items])
        self.index = self.bm25s.BM25()
        texts = [item.draft.searchable_text for item in items]
        self.index.index(self.bm25s.tokenize(texts, show_progress=False), show_progress=False)

    def search(self, text: str, vector: NDArray[np.float32]) -> list[int]:
        """The positions of the ten best documents."""
        dense = np.maximum(self.matrix @ vector, 0)
        tokens = self.bm25s.tokenize([text], return_ids=False, show_progress=False)[0]
        words = self.index.get_scores(tokens) if tokens else np.zeros(len(dense), np.float32)
        scores = 0.4 * dense / (dense.max() or 1) + 0.6 * words / (words.max() or 1)
        best = np.argpartition(-scores, min(10, len(scores) - 1))[:10]
        return best[np.argsort(-scores[best])].tolist()


PLAIN_TABLE = """
create table plain (tenant_id uuid, n bigint primary key, content text, emb halfvec(256),
                    tsv tsvector generated always as (to_tsvector('english', content)) stored)
"""
PLAIN_FILL = """
insert into plain (tenant_id, n, content, emb)
select m.tenant_id, m.seq, m.content, v.embedding::halfvec(256)
from memories m join memory_vectors v on v.tenant_id = m.tenant_id and v.seq = m.seq
where m.kind = 'bullet'
"""
PLAIN_INDEXES = (
    "create index on plain using hnsw (emb halfvec_ip_ops)",
    "create index on plain using gin (tsv)",
    "create index on plain (tenant_id)",
    "vacuum analyze plain",
)
PLAIN_SEARCH = """
with dense as (
    select n, row_number() over () place from (
        select n from plain where tenant_id = $1 order by emb <#> $2 limit 100) d
), words as (
    select n, row_number() over (order by score desc) place from (
        select n, ts_rank(tsv, q) score from plain, to_tsquery('english', $3) q
        where tenant_id = $1 and tsv @@ q order by score desc limit 100) w
)
select coalesce(d.n, w.n) n, p.content
from dense d full join words w on w.n = d.n join plain p on p.n = coalesce(d.n, w.n)
order by coalesce(1.0 / (60 + d.place), 0) + coalesce(1.0 / (60 + w.place), 0) desc limit 10
"""


class Plain:
    """(c) Plain pgvector: one table, with one HNSW and one GIN index for all tenants, and RRF."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self.connection = connection

    @staticmethod
    async def make(admin: asyncpg.Connection[Any]) -> None:
        await admin.execute("set maintenance_work_mem = '1GB'")
        for statement in (PLAIN_TABLE, PLAIN_FILL, *PLAIN_INDEXES):
            await admin.execute(statement)
        await admin.execute("grant select on plain to hansei_app")

    async def search(self, tenant: Any, text: str, vector: NDArray[np.float32]) -> list[int]:
        words = " | ".join(set("".join(c if c.isalnum() else " " for c in text).split()))
        rows = await self.connection.fetch(PLAIN_SEARCH, tenant, HalfVector(vector), words)
        return [row["n"] for row in rows]
