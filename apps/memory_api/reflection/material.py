"""All that a reflection on one trace needs, out of the database."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import NotFound
from apps.memory_api.reflection.evidence import Evidence
from apps.memory_api.reflection.findings.schemas import Attempt
from apps.memory_api.reflection.schemas import ReflectionContext
from apps.memory_api.traces.events import as_events
from apps.memory_api.traces.queries import earlier_attempts, get_trace, list_events
from apps.memory_api.traces.schemas import ErrorInfo, OutcomeType
from apps.memory_api.traces.tables import Trace


@dataclass(frozen=True)
class Material:
    """A trace, what happened in it, and what is known of its task."""

    trace: Trace
    context: ReflectionContext
    evidence: Evidence


async def load(session: AsyncSession, trace_id: UUID) -> Material:
    """A trace with its events, and the earlier attempts of its task with theirs."""
    trace = await get_trace(session, trace_id)
    if trace is None:
        raise NotFound
    events = await list_events(session, trace_id)
    attempts = [
        Attempt(
            outcome=OutcomeType(earlier.outcome or OutcomeType.PARTIAL),
            events=as_events(await list_events(session, earlier.id)),
            trace_id=str(earlier.id),
            ground_truth_known=earlier.ground_truth is not None,
        )
        for earlier in await earlier_attempts(session, trace)
    ]
    context = ReflectionContext(
        events=as_events(events),
        outcome=OutcomeType(trace.outcome or OutcomeType.PARTIAL),
        tenant_id=str(trace.tenant_id),
        project_id=trace.project_id,
        session_id=trace.session_id,
        error=ErrorInfo.model_validate(trace.error) if trace.error else None,
        task_description=trace.task_description,
        task_goal=trace.task_goal,
        related_memory_ids=[UUID(memory) for memory in trace.related_memory_ids],
    )
    return Material(trace, context, Evidence(attempts, trace.ground_truth, trace.test_report))
