"""Delete expired rows in batches. Each batch is a transaction of its own, so locks are short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.api.idempotency import RETENTION
from memory_api.core.db import current_tenant_id
from memory_api.core.settings import Settings
from memory_api.core.statements import (
    Statement,
    fetch_column,
    fetch_rows,
    fetch_value,
    load_statement,
)
from memory_api.maintenance.retention.queries import list_policies
from memory_api.maintenance.tables import RetentionPolicyRow
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.tenants.queries import list_projects
from memory_api.traces.deletion import delete_traces

EXPIRED_TRACES = load_statement("maintenance/maintenance.sql", "expired_traces")
DELETE_EVENTS = load_statement("maintenance/maintenance.sql", "delete_events")
DELETE_MODEL_CALLS = load_statement("maintenance/maintenance.sql", "delete_model_calls")
DELETE_RETRIEVALS = load_statement("maintenance/maintenance.sql", "delete_retrievals")
DELETE_IDEMPOTENCY_KEYS = load_statement("maintenance/maintenance.sql", "delete_idempotency_keys")
DELETE_OLD_RUNS = load_statement("maintenance/maintenance.sql", "delete_old_runs")
NEXT_EXPIRY = load_statement("maintenance/maintenance.sql", "next_expiry")
DELETE_RESERVATIONS = load_statement("maintenance/maintenance.sql", "delete_reservations")
DELETE_STORED_REPLIES = load_statement("maintenance/maintenance.sql", "delete_stored_replies")
DELETE_BUDGET_TOTALS = load_statement("maintenance/maintenance.sql", "delete_budget_totals")
RESERVATION_RETENTION = timedelta(days=32)
"""A month and a day: the totals of a month can be checked until it has ended."""
STORED_REPLY_RETENTION = timedelta(days=1)
TOTAL_RETENTION = timedelta(days=400)
"""Of totals and alerts of budgets."""
ROWS_PER_BATCH = 5_000
TRACES_PER_BATCH = 100
MAX_BATCHES_PER_ROUND = 100
"""Upkeep continues in its next round. The task `retention` queues another run."""
HAS_MORE = "has_more"
"""Result of a run that left rows for another one."""


async def delete_expired_rows(runtime: Runtime, tenant_id: UUID) -> dict[str, int]:
    """Deletes what has expired, whatever its project: a batch of each at a time. Returns the number
    of rows by kind.
    """
    expired = (
        ("idempotency_keys_deleted", DELETE_IDEMPOTENCY_KEYS, RETENTION),
        ("reservations_deleted", DELETE_RESERVATIONS, RESERVATION_RETENTION),
        ("stored_replies_deleted", DELETE_STORED_REPLIES, STORED_REPLY_RETENTION),
        ("budget_totals_deleted", DELETE_BUDGET_TOTALS, TOTAL_RETENTION),
        ("runs_deleted", DELETE_OLD_RUNS, timedelta(days=runtime.settings.run_retention_days)),
    )
    return {
        name: await _delete_in_batches(runtime, tenant_id, statement, retention)
        for name, statement, retention in expired
    }


@dataclass(frozen=True)
class ProjectPolicy:
    """The days that data of a project is stored. None: no limit."""

    event_days: int | None
    trace_days: int | None
    retrieval_days: int
    llm_call_days: int | None


async def load_policies(session: AsyncSession, settings: Settings) -> dict[str, ProjectPolicy]:
    """Project → its policy, else that of all other projects, for projects with data."""
    policies = {row.project_id: row for row in await list_policies(session)}
    default = policies.get("", RetentionPolicyRow())
    projects = sorted(await list_projects(session) | policies.keys() - {""})
    rows = [(project, policies.get(project, default)) for project in projects]
    return {
        project: ProjectPolicy(
            row.event_days,
            row.trace_days,
            row.retrieval_days or settings.retrieval_retention_days,
            row.llm_call_days,
        )
        for project, row in rows
    }


async def next_expiry(session: AsyncSession, settings: Settings) -> datetime | None:
    """When the retention of something of the tenant ends next. In the past if it is to be deleted
    now, None if nothing expires.
    """
    policies = await load_policies(session, settings)
    days = {
        field.name: [getattr(policy, field.name) for policy in policies.values()]
        for field in fields(ProjectPolicy)
    }
    ages = {"response_age": RETENTION, "reply_age": STORED_REPLY_RETENTION}
    return await fetch_value(
        session,
        NEXT_EXPIRY,
        {"tenant": current_tenant_id(session), "projects": list(policies), **days, **ages},
    )


async def delete_by_policy(runtime: Runtime, run: RunRow) -> StepResult:
    """The task `retention`: deletes traces, events, retrievals and records of model calls that are
    older than the policies of their projects, 100 batches of each kind and project. Memories stay.
    """
    tenant_id = run.tenant_id
    async with runtime.sessions.for_tenant(tenant_id) as session:
        policies = await load_policies(session, runtime.settings)
    counts: Counter[str] = Counter()
    full_rounds = 0

    def count(kind: str, number: int, batch_limit: int) -> None:
        nonlocal full_rounds
        counts[kind] += number
        full_rounds += number >= MAX_BATCHES_PER_ROUND * batch_limit

    for project, policy in policies.items():
        named = {"project": project}
        traces = await _delete_traces(runtime, tenant_id, project, policy)
        count("traces_deleted", traces, TRACES_PER_BATCH)
        if policy.event_days:
            events = await _delete_in_batches(
                runtime,
                tenant_id,
                DELETE_EVENTS,
                timedelta(days=policy.event_days),
                named,
                batch_limit=TRACES_PER_BATCH,  # each may have thousands of events
            )
            count("events_deleted", events, TRACES_PER_BATCH)
        if policy.llm_call_days:
            calls = await _delete_in_batches(
                runtime, tenant_id, DELETE_MODEL_CALLS, timedelta(days=policy.llm_call_days), named
            )
            count("model_calls_deleted", calls, ROWS_PER_BATCH)
        retrievals = await _delete_in_batches(
            runtime, tenant_id, DELETE_RETRIEVALS, timedelta(days=policy.retrieval_days), named
        )
        count("retrievals_deleted", retrievals, ROWS_PER_BATCH)
    return StepResult(data={**counts, HAS_MORE: full_rounds > 0})


async def _delete_traces(
    runtime: Runtime, tenant_id: UUID, project: str, policy: ProjectPolicy
) -> int:
    if not policy.trace_days:
        return 0
    before = datetime.now(UTC) - timedelta(days=policy.trace_days)
    deleted_count = 0
    for _ in range(MAX_BATCHES_PER_ROUND):
        async with runtime.sessions.for_tenant(tenant_id) as session:
            parameters = {
                "tenant": tenant_id,
                "project": project,
                "before": before,
                "batch_size": TRACES_PER_BATCH,
            }
            trace_ids = await fetch_column(session, EXPIRED_TRACES, parameters)
            if trace_ids:
                await delete_traces(session, trace_ids, with_episodes=False)
        deleted_count += len(trace_ids)
        if len(trace_ids) < TRACES_PER_BATCH:
            break
    return deleted_count


async def _delete_in_batches(
    runtime: Runtime,
    tenant_id: UUID,
    statement: Statement,
    retention: timedelta,
    named: Mapping[str, str] = MappingProxyType({}),
    *,
    batch_limit: int | None = None,
) -> int:
    limit = batch_limit or ROWS_PER_BATCH
    before = datetime.now(UTC) - retention
    deleted_count = 0
    for _ in range(MAX_BATCHES_PER_ROUND):
        async with runtime.sessions.for_tenant(tenant_id) as session:
            parameters = {
                "tenant": current_tenant_id(session),
                "before": before,
                "batch_size": limit,
                **named,
            }
            batch_size = len(await fetch_rows(session, statement, parameters))
        deleted_count += batch_size
        if batch_size < limit:
            break
    return deleted_count
