"""A database to measure on: filled fast, as the superuser, past triggers and row-level security."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import UUID, uuid5

import asyncpg
from pgvector import HalfVector

from apps.memory_api.core.ids import new_id
from apps.memory_api.embeddings.static import StaticEmbedder
from apps.memory_api.memory.prepare import Draft, Prepared, prepare
from apps.memory_api.memory.schemas import LAYER_OF, Kind
from apps.memory_api.memory.scopes import KIND_NUMBER
from apps.memory_api.tenants.identity import NAMESPACE
from apps.memory_api.text.tokens import TOKENIZER

MODEL = 1
"""The number of the embedder's label in every tenant made here."""
PROJECT = "default"
NUMBERS = count(1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)

MEMORIES = (
    *("tenant_id", "id", "n", "project_id", "layer", "kind", "scope", "key", "content"),
    *("searchable_text", "terms", "tokenizer", "fingerprint", "source", "status", "created_at"),
)
VECTORS = (
    *("tenant_id", "scope", "model", "n", "kind", "confidence", "importance", "created_at"),
    *("tag_ids", "emb"),
)
POSTINGS = ("tenant_id", "scope", "term", "n", "weight")


def tenant_named(name: str) -> UUID:
    return uuid5(NAMESPACE, f"bench/{name}")


async def prepared(texts: Sequence[str], kind: Kind = Kind.BULLET) -> list[Prepared]:
    return await prepare(StaticEmbedder(), [Draft(kind, PROJECT, text) for text in texts])


async def add_tenants(admin: asyncpg.Connection[Any], tenants: Sequence[UUID]) -> None:
    await admin.copy_records_to_table(
        "tenants", columns=["id", "slug"], records=[(t, str(t)) for t in tenants]
    )
    await admin.copy_records_to_table(
        "labels",
        columns=["tenant_id", "id", "space", "name"],
        records=[(t, MODEL, "model", StaticEmbedder.model) for t in tenants],
    )


async def add_scope(
    admin: asyncpg.Connection[Any],
    tenant: UUID,
    scope: int,
    name: str,
    items: Sequence[Prepared],
    *,
    area: str = "playbook",
    hidden: int = 0,
) -> int:
    """A scope that serves `items`, and `hidden` more of them that are quarantined. Answers the
    number of the first row; the others follow.
    """
    await admin.execute(
        "insert into scopes (tenant_id, scope, project_id, area, name) values ($1, $2, $3, $4, $5)",
        *(tenant, scope, PROJECT, area, name),
    )
    if area == "playbook":
        await admin.execute(
            "insert into playbooks (tenant_id, scope, project_id, name, sections)"
            " values ($1, $2, $3, $4, '[]')",
            *(tenant, scope, PROJECT, name),
        )
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
                *(tenant, scope, MODEL, n, KIND_NUMBER[i.draft.kind], 0.5, i.draft.importance, NOW),
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
        "insert into scope_stats (tenant_id, scope, id, delta) values ($1, $2, $3, $4)",
        *(tenant, scope, new_id(), len(numbered)),
    )
    await admin.execute("set session_replication_role = origin")
    return numbered[0][0]


def _memories(
    tenant: UUID, scope: int, items: Sequence[tuple[int, Prepared, str]]
) -> Iterator[tuple[Any, ...]]:
    for n, item, status in items:
        draft = item.draft
        yield (
            *(tenant, new_id(), n, PROJECT, LAYER_OF[draft.kind].value, draft.kind.value, scope),
            *(f"b-{n:08d}", draft.content, draft.searchable_text, sorted(item.weights), TOKENIZER),
            *(item.fingerprint, "bench", status, NOW),
        )


async def settle(admin: asyncpg.Connection[Any]) -> None:
    """What autovacuum would have done by tomorrow."""
    for table in ("memories", "memory_vectors", "postings", "scope_stats", "scopes", "labels"):
        await admin.execute(f"vacuum (analyze) {table}")
