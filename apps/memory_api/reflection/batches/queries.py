"""Statements on the short runs that share one reflection call.

A run that waits has the name of its playbook in its input. The run that asks the model adds others
to its batch by writing its ID into their input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.llm.stored_replies import get_stored_reply
from memory_api.runs.tables import RunRow

TAKE_WAITING_RUNS = load_statement("reflection/batches/queries.sql", "take_waiting_runs")
SHARE_REPLIES = load_statement("reflection/batches/queries.sql", "share_replies")
SHARED_HASH = "shared"
"""Stands for the hash of the request in the stored reply of a run of a batch."""


async def take_waiting_runs(
    session: AsyncSession, run: RunRow, playbook: str, limit: int
) -> Sequence[RunRow]:
    """Add up to `limit` waiting short runs of the playbook to the batch of `run`."""
    parameters = {
        "tenant": current_tenant_id(session),
        "project": run.project_id,
        "playbook": playbook,
        "leader": str(run.id),
        "max": limit,
    }
    taken = [row.id for row in await fetch_rows(session, TAKE_WAITING_RUNS, parameters)]
    if not taken:
        return []
    rows = await session.scalars(
        select(RunRow)
        .where(RunRow.tenant_id == current_tenant_id(session), RunRow.id.in_(taken))
        .order_by(RunRow.id)
    )
    return rows.all()


async def get_shared_reply(session: AsyncSession, run_id: UUID) -> str | None:
    """The part of a batch's answer that is about this run."""
    reply = await get_stored_reply(session, run_id, SHARED_HASH)
    return None if reply is None else reply.text


async def share_replies(
    session: AsyncSession, texts: Mapping[UUID, str], *, provider: str, model: str
) -> list[UUID]:
    """Store the parts of a batch's answer by the ID of their run. Returns the runs that have not
    ended.
    """
    parameters = {
        "tenant": current_tenant_id(session),
        "hash": SHARED_HASH,
        "provider": provider,
        "model": model,
        "runs": list(texts),
        "texts": list(texts.values()),
    }
    return [row.run_id for row in await fetch_rows(session, SHARE_REPLIES, parameters)]
