"""Statements about agent runs, their steps, events and interventions."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import and_, select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.after_commit import notify_after_commit
from memory_api.core.db import current_tenant_id
from memory_api.core.pagination import Cursor, keyset_page
from memory_api.core.resources import read_sql
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.grace.execution_plan import SEARCH_ACTIONS
from memory_api.grace.tables import (
    AgentCalibrationRow,
    AgentEventRow,
    AgentRunRow,
    AgentStepRow,
    InterventionRow,
)
from memory_api.runs.tables import RunRow

AgentEventData = tuple[str, Mapping[str, Any]]
"""Type and data of an event that is not stored yet."""
INSERT_EVENTS = load_statement("grace/queries.sql", "insert_events")
LOAD_EXPERIENCE = load_statement("grace/queries.sql", "load_experience")
LOAD_PROGRESS = read_sql("grace/queries.sql", "load_progress")
FIND_VALID_KEYS = read_sql("grace/queries.sql", "find_valid_keys")
EVENT_CHANNEL = "agent_events"
"""The channel of notifications; the payload is the ID of the agent run."""


@dataclass(frozen=True)
class FinishedAgentRun:
    """What execution memory needs of an agent run that is done."""

    query: str
    feedback: str | None
    status: str | None
    confidence: float | None
    collections: Sequence[str]
    """Those of its sources."""


async def get_agent_run(
    session: AsyncSession, agent_run_id: UUID, *, for_update: bool = False
) -> AgentRunRow | None:
    query = select(AgentRunRow).where(
        AgentRunRow.tenant_id == current_tenant_id(session), AgentRunRow.id == agent_run_id
    )
    if for_update:
        query = query.with_for_update().execution_options(populate_existing=True)
    return await session.scalar(query)


async def get_locked_agent_run(
    session: AsyncSession, agent_run_id: UUID, run: RunRow
) -> AgentRunRow | None:
    """The agent run, locked, if `run` is the one that works on it and still has its lease.

    Both rows are locked: whoever takes the lease over waits until this transaction has ended.
    """
    return await session.scalar(
        select(AgentRunRow)
        .join(
            RunRow,
            and_(RunRow.tenant_id == AgentRunRow.tenant_id, RunRow.id == AgentRunRow.active_run_id),
        )
        .where(
            AgentRunRow.tenant_id == current_tenant_id(session),
            AgentRunRow.id == agent_run_id,
            RunRow.id == run.id,
            RunRow.lease_owner == run.lease_owner,
            RunRow.state == "running",
        )
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )


async def list_agent_runs(
    session: AsyncSession,
    *,
    project_id: str | None,
    state: str | None,
    cursor: Cursor | None,
    limit: int,
) -> Sequence[AgentRunRow]:
    """Newest first; one row more than `limit` when there is a next page."""
    query = select(AgentRunRow).where(AgentRunRow.tenant_id == current_tenant_id(session))
    if project_id is not None:
        query = query.where(AgentRunRow.project_id == project_id)
    if state is not None:
        query = query.where(AgentRunRow.state == state)
    query = keyset_page(query, AgentRunRow.created_at, AgentRunRow.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()


async def get_cancel_requested(session: AsyncSession, agent_run_id: UUID) -> bool:
    found = await session.scalar(
        select(AgentRunRow.cancel_requested).where(
            AgentRunRow.tenant_id == current_tenant_id(session), AgentRunRow.id == agent_run_id
        )
    )
    return bool(found)


async def list_searches(session: AsyncSession, agent_run_id: UUID) -> list[str]:
    """The words of all searches of an agent run that have started, each once, oldest first."""
    query = AgentStepRow.spec["query"].astext
    found = await session.scalars(
        select(query)
        .where(
            AgentStepRow.tenant_id == current_tenant_id(session),
            AgentStepRow.agent_run_id == agent_run_id,
            AgentStepRow.spec["action"].astext.in_(SEARCH_ACTIONS),
            AgentStepRow.started_at.is_not(None),
        )
        .order_by(AgentStepRow.started_at, AgentStepRow.step_id)
    )
    return list(dict.fromkeys(filter(None, found)))


async def load_steps(session: AsyncSession, agent_run: AgentRunRow) -> Sequence[AgentStepRow]:
    """The steps of the current plan, in order."""
    found = await session.scalars(
        select(AgentStepRow)
        .where(
            AgentStepRow.tenant_id == current_tenant_id(session),
            AgentStepRow.agent_run_id == agent_run.id,
            AgentStepRow.plan_number == agent_run.plan_number,
        )
        .order_by(AgentStepRow.step_id)
        .execution_options(populate_existing=True)
    )
    return found.all()


async def add_events(
    session: AsyncSession,
    agent_run: AgentRunRow,
    events: Sequence[AgentEventData],
) -> None:
    """Number and store events of a locked agent run, and notify its streams when the transaction
    commits.
    """
    if not events:
        return
    parameters = {
        "tenant": agent_run.tenant_id,
        "agent_run": agent_run.id,
        "before": agent_run.event_count,
        "types": [kind for kind, _ in events],
        "data": [json.dumps(dict(each), ensure_ascii=False) for _, each in events],
    }
    await fetch_rows(session, INSERT_EVENTS, parameters)
    notify_after_commit(session, EVENT_CHANNEL, str(agent_run.id))
    agent_run.event_count += len(events)


async def load_progress(
    driver: asyncpg.Connection[Any],
    tenant_id: UUID,
    wanted: Sequence[tuple[UUID, int]],
    limit: int,
) -> list[asyncpg.Record]:
    """For each agent run and number of an event: the state of the run, and its next events, at most
    `limit`, as a row each. `position` counts `wanted` from 1. A run without next events has one
    row; one that does not exist has none.
    """
    ids, numbers = [each for each, _ in wanted], [number for _, number in wanted]
    return await driver.fetch(LOAD_PROGRESS, tenant_id, ids, numbers, limit)


async def find_valid_keys(
    driver: asyncpg.Connection[Any], tenant_id: UUID, key_ids: Collection[UUID]
) -> set[UUID]:
    """Those of the API keys that are neither revoked nor expired; none of a suspended tenant."""
    return {row["id"] for row in await driver.fetch(FIND_VALID_KEYS, tenant_id, list(key_ids))}


async def list_events(
    session: AsyncSession, agent_run_id: UUID, after: int, limit: int
) -> Sequence[AgentEventRow]:
    found = await session.scalars(
        select(AgentEventRow)
        .where(
            AgentEventRow.tenant_id == current_tenant_id(session),
            AgentEventRow.agent_run_id == agent_run_id,
            AgentEventRow.number > after,
        )
        .order_by(AgentEventRow.number)
        .limit(limit)
    )
    return found.all()


async def get_open_intervention(
    session: AsyncSession, agent_run_id: UUID
) -> InterventionRow | None:
    return await session.scalar(
        select(InterventionRow).where(
            InterventionRow.tenant_id == current_tenant_id(session),
            InterventionRow.agent_run_id == agent_run_id,
            InterventionRow.state == "open",
        )
    )


async def get_intervention(
    session: AsyncSession, agent_run_id: UUID, intervention_id: UUID
) -> InterventionRow | None:
    return await session.scalar(
        select(InterventionRow).where(
            InterventionRow.tenant_id == current_tenant_id(session),
            InterventionRow.agent_run_id == agent_run_id,
            InterventionRow.id == intervention_id,
        )
    )


async def list_interventions(
    session: AsyncSession, agent_run_id: UUID
) -> Sequence[InterventionRow]:
    """Oldest first."""
    found = await session.scalars(
        select(InterventionRow)
        .where(
            InterventionRow.tenant_id == current_tenant_id(session),
            InterventionRow.agent_run_id == agent_run_id,
        )
        .order_by(InterventionRow.created_at, InterventionRow.id)
    )
    return found.all()


async def get_calibration(session: AsyncSession, project_id: str) -> AgentCalibrationRow | None:
    return await session.scalar(
        select(AgentCalibrationRow).where(
            AgentCalibrationRow.tenant_id == current_tenant_id(session),
            AgentCalibrationRow.project_id == project_id,
        )
    )


async def lock_calibration(session: AsyncSession, project_id: str) -> AgentCalibrationRow | None:
    return await session.scalar(
        select(AgentCalibrationRow)
        .where(
            AgentCalibrationRow.tenant_id == current_tenant_id(session),
            AgentCalibrationRow.project_id == project_id,
        )
        .with_for_update()
    )


async def list_feedback(
    session: AsyncSession, project_id: str, *, after: datetime | None, limit: int
) -> Sequence[AgentRunRow]:
    """Agent runs with feedback after this time, oldest first; without a time, the newest ones."""
    query = select(AgentRunRow).where(
        AgentRunRow.tenant_id == current_tenant_id(session),
        AgentRunRow.project_id == project_id,
        AgentRunRow.feedback.is_not(None),
    )
    if after is not None:
        query = query.where(AgentRunRow.feedback_at > after).order_by(AgentRunRow.feedback_at)
    else:
        query = query.order_by(AgentRunRow.feedback_at.desc())
    return (await session.scalars(query.limit(limit))).all()


async def load_experience(
    session: AsyncSession, project_id: str, limit: int
) -> Sequence[FinishedAgentRun]:
    """The last finished runs of a project, newest first."""
    parameters = {"tenant": current_tenant_id(session), "project": project_id, "limit": limit}
    rows = await fetch_rows(session, LOAD_EXPERIENCE, parameters)
    return [FinishedAgentRun(*row) for row in rows]
