"""How agent runs ended between the versions of a playbook, and who accepted its proposals."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import and_, select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.console.traces.queries import advice_column, retrieval_of_trace
from memory_api.core.db import current_tenant_id
from memory_api.playbooks.tables import ProposalRow, RetrievalRow
from memory_api.traces.tables import TraceRow

MAX_COUNTED_TRACES = 2_000


async def list_outcomes(
    session: AsyncSession, project: str, playbook: str, since: datetime
) -> Sequence[Any]:
    """`created_at`, `effective_outcome` and `advice` (as in `traces/queries.py`) of the newest
    2,000 traces of a playbook whose outcome is known, since a time, newest first.
    """
    trace = TraceRow
    statement = (
        select(trace.created_at, trace.effective_outcome, advice_column().label("advice"))
        .outerjoin(RetrievalRow, and_(*retrieval_of_trace()))
        .where(
            trace.tenant_id == current_tenant_id(session),
            trace.project_id == project,
            trace.playbook == playbook,
            trace.effective_outcome.is_not(None),
            trace.created_at >= since,
        )
        .order_by(trace.created_at.desc())
        .limit(MAX_COUNTED_TRACES)
    )
    return (await session.execute(statement)).all()


async def load_deciders(
    session: AsyncSession, scope: int, versions: Collection[int]
) -> dict[int, str | None]:
    """Version → who accepted the proposal that it applied."""
    row = ProposalRow
    statement = select(row.accepted_version, row.decided_by).where(
        row.tenant_id == current_tenant_id(session),
        row.scope_id == scope,
        row.state == "accepted",
        row.accepted_version.in_(versions),
    )
    found = (await session.execute(statement)).all()
    return {version: decider for version, decider in found if version is not None}
