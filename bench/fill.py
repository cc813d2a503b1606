"""Fill a database quickly: COPY as the superuser, without triggers and row-level security."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import UUID, uuid5

import asyncpg
from pgvector import HalfVector

from memory_api.core.ids import TENANT_NAMESPACE, new_id
from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.embeddings.tenant_models import TenantEmbedder
from memory_api.memories.index.drafts import MemoryDraft, PreparedMemory, prepare_memories
from memory_api.memories.index.scopes import KIND_IDS
from memory_api.memories.schemas import LAYER_BY_KIND, MemoryKind
from memory_api.text.terms import TOKENIZER_VERSION

MODEL = 1
"""Label ID of the embedding model in each tenant."""
PROJECT = "default"
NUMBERS = count(1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)

MEMORIES = (
    *("tenant_id", "id", "seq", "project_id", "layer", "kind", "scope_id", "key", "content"),
    *("searchable_text", "terms", "tokenizer", "fingerprint", "source", "status", "created_at"),
)
VECTORS = (
    *("tenant_id", "scope_id", "model_label_id", "seq", "kind_id", "confidence", "importance"),
    *("created_at", "tag_label_ids", "embedding"),
)
POSTINGS = ("tenant_id", "scope_id", "term_id", "seq", "weight")


def tenant_named(name: str) -> UUID:
    return uuid5(TENANT_NAMESPACE, f"bench/{name}")


async def prepared(
    texts: Sequence[str], kind: MemoryKind = MemoryKind.BULLET
) -> list[PreparedMemory]:
    return await prepare_memories(
        TenantEmbedder(StaticEmbedder()),
        [MemoryDraft(kind, PROJECT, text, is_guarded=True) for text in texts],
    )


async def add_tenants(admin: asyncpg.Connection[Any], tenants: Sequence[UUID]) -> None:
    await admin.copy_records_to_table(
        "tenants", columns=["id", "slug"], records=[(t, str(t)) for t in tenants]
    )
    await admin.copy_records_to_table(
        "labels",
        columns=["tenant_id", "id", "type", "name"],
        records=[(t, MODEL, "model", StaticEmbedder.model) for t in tenants],
    )


async def add_scope(
    admin: asyncpg.Connection[Any],
    tenant: UUID,
    scope: int,
    name: str,
    items: Sequence[PreparedMemory],
    *,
    scope_type: str = "playbook",
    hidden: int = 0,
) -> int:
    """Insert a scope with active `items` and with `hidden` of them again as quarantined. Returns
    the number of the first row; the numbers of the others follow.
    """
    await admin.execute(
        "insert into scopes (tenant_id, id, project_id, type, name) values ($1, $2, $3, $4, $5)",
        *(tenant, scope, PROJECT, scope_type, name),
    )
    if scope_type == "playbook":
        await admin.execute(
            "insert into playbooks (tenant_id, scope_id, project_id, name, sections)"
            " values ($1, $2, $3, $4, '[]')",
            *(tenant, scope, PROJECT, name),
        )
    return await add_memories(admin, tenant, scope, items, hidden=hidden)


async def add_memories(
    admin: asyncpg.Connection[Any],
    tenant: UUID,
    scope: int,
    items: Sequence[PreparedMemory],
    *,
    hidden: int = 0,
) -> int:
    """Insert memories into a scope that exists, and return the number of the first row."""
    numbered = [(next(NUMBERS), item) for item in items]
    kept = [*((n, i, "active") for n, i in numbered)]
    kept += [(next(NUMBERS), item, "quarantined") for item in items[:hidden]]
    await admin.execute("set session_replication_role = replica")
    await admin.copy_records_to_table(
        "memories", columns=MEMORIES, records=_memories(tenant, scope, kept)
    )
    await admin.copy_records_to_table(
        "memory_vectors",
        columns=VECTORS,
        records=(
            (
                *(tenant, scope, MODEL, n, KIND_IDS[i.draft.kind], 0.5, i.draft.importance, NOW),
                *([], HalfVector(i.vector)),
            )
            for n, i in numbered
        ),
    )
    await admin.copy_records_to_table(
        "postings",
        columns=POSTINGS,
        records=((tenant, scope, t, n, w) for n, i in numbered for t, w in i.weights.items()),
    )
    await admin.execute(
        "insert into scope_stats (tenant_id, scope_id, id, delta) values ($1, $2, $3, $4)",
        *(tenant, scope, new_id(), len(numbered)),
    )
    await admin.execute("set session_replication_role = origin")
    return numbered[0][0]


def _memories(
    tenant: UUID, scope: int, items: Sequence[tuple[int, PreparedMemory, str]]
) -> Iterator[tuple[Any, ...]]:
    for n, item, status in items:
        draft = item.draft
        yield (
            *(
                tenant,
                new_id(),
                n,
                PROJECT,
                LAYER_BY_KIND[draft.kind].value,
                draft.kind.value,
                scope,
            ),
            *(
                f"b-{n:08d}",
                draft.content,
                draft.searchable_text,
                sorted(item.weights),
                TOKENIZER_VERSION,
            ),
            *(item.fingerprint, "bench", status, NOW),
        )


async def settle(admin: asyncpg.Connection[Any]) -> None:
    """Vacuum and analyze, as autovacuum would do later."""
    for table in ("memories", "memory_vectors", "postings", "scope_stats", "scopes", "labels"):
        await admin.execute(f"vacuum (analyze) {table}")
