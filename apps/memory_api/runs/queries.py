"""Statements on runs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, bindparam, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.ids import new_id
from memory_api.core.pagination import Cursor, keyset_page
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.runs.tables import RunRow

INSERT_QUEUED_RUNS = load_statement("runs/queries.sql", "insert_queued_runs")
DELETE_FINISHED_RUNS = load_statement("runs/queries.sql", "delete_finished_runs")
_RUN = select(RunRow).where(RunRow.tenant_id == bindparam("tenant"), RunRow.id == bindparam("run"))


async def get_run(session: AsyncSession, run_id: UUID) -> RunRow | None:
    return await session.scalar(_RUN, {"tenant": current_tenant_id(session), "run": run_id})


def select_runs(
    session: AsyncSession,
    *,
    project_id: str | None = None,
    states: Sequence[str] = (),
    kind: str | None = None,
    kinds: Collection[str] = (),
    has_evaluations: bool = True,
    trace_id: UUID | None = None,
    parent: RunRow | None = None,
) -> Select[RunRow]:
    """`has_evaluations` is False to leave out those that are done: what follows from one is a run
    of its own. With `parent`, the steps that follow it.
    """
    query = select(RunRow).where(RunRow.tenant_id == current_tenant_id(session))
    if project_id is not None:
        query = query.where(RunRow.project_id == project_id)
    if states:
        query = query.where(RunRow.state.in_(states))
    if kind is not None:
        query = query.where(RunRow.kind == kind)
    if kinds:
        query = query.where(RunRow.kind.in_(kinds))
    if not has_evaluations:
        query = query.where(or_(RunRow.kind != "evaluate", RunRow.state != "done"))
    if trace_id is not None:
        query = query.where(RunRow.trace_id == trace_id)
    if parent is not None:
        query = query.where(RunRow.parent_id == parent.id)
        if parent.trace_id is not None:  # a chain is about one trace, and by trace it is found fast
            query = query.where(RunRow.trace_id == parent.trace_id)
    return query


async def list_runs(
    session: AsyncSession, query: Select[RunRow], *, cursor: Cursor | None = None, limit: int = 50
) -> Sequence[RunRow]:
    """What `select_runs` finds, newest first; one row more than `limit` when there is a next
    page.
    """
    query = keyset_page(query, RunRow.created_at, RunRow.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()


async def has_queued_run(session: AsyncSession, kind: str, since: datetime) -> bool:
    """Whether a run of this kind waits that was queued after `since`."""
    found = await session.scalar(
        select(RunRow.id)
        .where(
            RunRow.tenant_id == current_tenant_id(session),
            RunRow.kind == kind,
            RunRow.state == "queued",
            RunRow.updated_at > since,
        )
        .limit(1)
    )
    return found is not None


async def list_unfinished_runs(session: AsyncSession, kind: str) -> Sequence[RunRow]:
    """The queued and running runs of a kind. A run with an `error` was postponed or is retried."""
    rows = await session.scalars(
        select(RunRow).where(
            RunRow.tenant_id == current_tenant_id(session),
            RunRow.kind == kind,
            RunRow.state.in_(("queued", "running")),
        )
    )
    return rows.all()


async def delete_finished_runs(session: AsyncSession, before: datetime) -> None:
    """Delete a batch of the runs that are no work on a trace and were done before a time. Dead ones
    stay, and those that called a model: the cost of a playbook includes their calls.
    """
    parameters = {"tenant": current_tenant_id(session), "before": before}
    await fetch_rows(session, DELETE_FINISHED_RUNS, parameters)


async def latest_done_run(session: AsyncSession, kind: str) -> RunRow | None:
    """The run of this kind that finished last."""
    return await session.scalar(
        select(RunRow)
        .where(
            RunRow.tenant_id == current_tenant_id(session),
            RunRow.kind == kind,
            RunRow.state == "done",
        )
        .order_by(RunRow.finished_at.desc())
        .limit(1)
    )


async def latest_runs(
    session: AsyncSession, trace_ids: Sequence[UUID], *kinds: str
) -> dict[UUID, RunRow]:
    """`latest_run` of many traces, by trace; without those that have none."""
    if not trace_ids:
        return {}
    found = await session.scalars(
        select(RunRow)
        .where(
            RunRow.tenant_id == current_tenant_id(session),
            RunRow.trace_id.in_(trace_ids),
            RunRow.kind.in_(kinds),
        )
        .order_by(RunRow.created_at, RunRow.id)
    )
    return {run.trace_id: run for run in found if run.trace_id is not None}


async def latest_run(
    session: AsyncSession, trace_id: UUID, *kinds: str, without_states: Sequence[str] = ()
) -> RunRow | None:
    """The newest run of any of these kinds for one trace."""
    return await session.scalar(
        select(RunRow)
        .where(
            RunRow.tenant_id == current_tenant_id(session),
            RunRow.trace_id == trace_id,
            RunRow.kind.in_(kinds),
            RunRow.state.not_in(without_states),
        )
        .order_by(RunRow.created_at.desc(), RunRow.id.desc())
        .limit(1)
    )


async def insert_queued_runs(
    session: AsyncSession,
    kind: str,
    projects: Mapping[UUID, str],
    *,
    input: Mapping[str, Any],
    max_attempts: int,
) -> dict[UUID, UUID]:
    """Insert a queued run for each trace with one statement. `projects` maps trace IDs to project
    IDs. Returns trace ID → run ID.
    """
    if not projects:
        return {}
    run_ids = {trace_id: new_id() for trace_id in projects}
    parameters = {
        "tenant": current_tenant_id(session),
        "kind": kind,
        "ids": list(run_ids.values()),
        "project_ids": list(projects.values()),
        "trace_ids": list(run_ids),
        "input": json.dumps(dict(input)),
        "max_attempts": max_attempts,
    }
    await fetch_rows(session, INSERT_QUEUED_RUNS, parameters)
    return run_ids
