"""Statements on retrievals: what one search or render handed out.

The request inserts its retrieval before it answers, so any process sees it at once. The insert does
not wait for the disk. So a `retrieval_id` is signed: if a crash of PostgreSQL loses the row, a
verdict that names the ID is accepted all the same (docs/decisions/pipeline.md).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import asyncpg
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import Sessions, tenant_transaction
from memory_api.core.ids import is_signed_id
from memory_api.core.statements import fetch_rows, fetch_value, load_statement

INSERT_RETRIEVAL = (
    "select hansei_insert_retrieval($1, $2, $3, $4, $5, $6, $7::text[], $8::real[], $9, $10, $11)"
)
RETRIEVAL_SECRET = load_statement("playbooks/queries.sql", "retrieval_secret")
SERVED_OUTCOMES = load_statement("playbooks/queries.sql", "served_outcomes")
SERVED_TRACES = load_statement("playbooks/queries.sql", "served_traces")
UNPROVEN_HARMFUL_VERDICTS = load_statement("playbooks/queries.sql", "unproven_harmful_verdicts")
SECRET_BYTES = 32
MAX_CACHED_SECRETS = 10_000


@dataclass(frozen=True)
class RetrievalRecord:
    """One search or render. `bullet_keys` and `scores` are parallel. `holdout_candidate` is the
    bullet of the holdout experiment, if there is one, and `held_out` whether it was withheld.
    `advice_held_out` is whether the whole block was withheld, None without that experiment.
    """

    retrieval_id: UUID
    scope_id: int
    version: int
    kind: Literal["search", "render"]
    query: str
    bullet_keys: Sequence[str]
    scores: Sequence[float]
    holdout_candidate: str | None = None
    held_out: bool = False
    advice_held_out: bool | None = None


async def insert_retrieval(
    connection: asyncpg.Connection[Any], tenant_id: UUID, record: RetrievalRecord
) -> None:
    """Insert a retrieval in one round trip. It is committed when this returns."""
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
        record.advice_held_out,
    )


_secrets: dict[UUID, bytes] = {}
"""Tenant → secret. A secret never changes."""


async def load_retrieval_secret(sessions: Sessions, tenant_id: UUID) -> bytes:
    """The secret that signs the tenant's retrieval IDs. Opens a transaction the first time, so call
    it before a connection is taken.
    """
    secret = _secrets.get(tenant_id)
    if secret is not None:
        return secret
    async with sessions.for_tenant(tenant_id) as session:
        secret = await _load_secret(session)
    if len(_secrets) >= MAX_CACHED_SECRETS:
        _secrets.clear()
    _secrets[tenant_id] = secret  # after the commit
    return secret


async def is_retrieval_id(session: AsyncSession, scope_id: int, retrieval_id: UUID) -> bool:
    """Whether Hansei generated the ID for a retrieval from this playbook."""
    return is_signed_id(retrieval_id, await _load_secret(session), scope_id)


async def _load_secret(session: AsyncSession) -> bytes:
    """The tenant's secret. Inserts one if there is none."""
    return await fetch_value(session, RETRIEVAL_SECRET, {"new_secret": os.urandom(SECRET_BYTES)})


async def count_unproven_harmful_verdicts(
    connection: asyncpg.Connection[Any], tenant_id: UUID, scope: int, keys: Sequence[str]
) -> dict[str, int]:
    """Harmful verdicts that one API key may have invented, by key of the bullet. On the connection
    of the search: a request that waits for a second one could wait for itself.
    """
    async with tenant_transaction(connection, tenant_id):
        rows = await connection.fetch(UNPROVEN_HARMFUL_VERDICTS.text, tenant_id, scope, list(keys))
    return {row["key"]: row["verdict_count"] for row in rows}


async def count_served_outcomes(session: AsyncSession, scope: int, bullet: UUID, key: str) -> Any:
    """`run_count`, `success_count` and `judged_count` of the agent runs that had a bullet in their
    prompt.
    """
    values = {"scope": scope, "bullet": bullet, "key": key}
    return (await fetch_rows(session, SERVED_OUTCOMES, values))[0]


async def list_served_traces(
    session: AsyncSession, scope: int, key: str, *, limit: int
) -> Sequence[Any]:
    """The latest searches and renders of the last 90 days that returned a bullet, newest first,
    with the trace that names them: rows (id, kind, query, created_at, trace_id,
    outcome, task_description).
    """
    return await fetch_rows(session, SERVED_TRACES, {"scope": scope, "key": key, "limit": limit})
