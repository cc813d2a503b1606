"""The episode of a trace (layer em): what happened, kept once."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.memory.prepare import Draft
from apps.memory_api.memory.queries import find_key
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.memory.tables import Memory
from apps.memory_api.reflection.material import Material
from apps.memory_api.traces.episodes import episode_text
from apps.memory_api.traces.schemas import OutcomeType


def episode_of(material: Material, importance: float | None = None) -> Draft:
    """`importance` as the evaluation gave it; without one, by the outcome."""
    trace, context = material.trace, material.context
    text = episode_text(trace.task_description, trace.task_goal, trace.outcome, context.events)
    by_outcome = 0.3 if context.outcome is OutcomeType.SUCCESS else 0.6
    return Draft(
        kind=Kind.EPISODE,
        project_id=trace.project_id,
        content=text,
        importance=by_outcome if importance is None else importance,
        source="trace",
        outcome=trace.outcome,
        session_id=trace.session_id,
        trace_id=trace.id,
        metadata={"event_count": len(context.events), "task_key": trace.task_key},
        key=str(trace.id),
    )


async def find_episode(session: AsyncSession, draft: Draft) -> Memory | None:
    """The one of its trace, which is written once however often the trace is reflected on."""
    assert draft.key is not None
    return await find_key(session, draft.scope_address, draft.key)
