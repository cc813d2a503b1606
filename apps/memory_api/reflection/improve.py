"""What rules wrote because the model was away is written again by the model, in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.jobs.tables import Run
from apps.memory_api.memory.change import rewrite
from apps.memory_api.memory.prepare import Prepared
from apps.memory_api.memory.queries import get_memory
from apps.memory_api.memory.tables import Memory
from apps.memory_api.reflection.store import Kept, keep

IMPROVE = "improve"
"""The key of a run's input that says which run's rows it improves."""
REASON = "improved by model"


@dataclass(frozen=True)
class Earlier:
    """The run that rules did, and the rows that are its own: not those it only witnessed."""

    run_id: UUID
    reflection_id: UUID | None = None
    strategy_id: UUID | None = None

    def as_input(self) -> dict[str, Any]:
        return {IMPROVE: {name: str(value) for name, value in asdict(self).items() if value}}


def earlier_of(run: Run) -> Earlier | None:
    """What this run improves, if it is such a run."""
    told: dict[str, str] | None = run.input.get(IMPROVE)
    return Earlier(**{name: UUID(value) for name, value in told.items()}) if told else None


def to_improve(run_id: UUID, kept: Sequence[Kept]) -> Earlier | None:
    """What is left for a model after rules stood in for it. None when they said what was known:
    that row has its own author.
    """
    if not kept:
        return Earlier(run_id)
    if not kept[0].new:
        return None
    return Earlier(run_id, *(row.memory_id if row.new else None for row in kept))


async def improve(
    session: AsyncSession, earlier: Earlier, learnt: Sequence[Prepared]
) -> list[Kept]:
    """Write the earlier rows anew, as revisions; the number of witnesses stays. What somebody has
    changed or deleted meanwhile is left as it is; what has no row yet gets one.
    """
    kept: list[Kept] = []
    ids = (earlier.reflection_id, earlier.strategy_id)
    for item, memory_id in zip(learnt, ids, strict=False):
        if memory_id is None:
            kept += await keep(session, [item], witness=earlier.reflection_id is None)
            continue
        memory = await get_memory(session, memory_id, for_update=True)
        untouched = memory is not None and memory.change_run == earlier.run_id
        if memory is not None and untouched:
            await _improve(session, memory, item)
        kept.append(Kept(memory_id, new=untouched))
    return kept


async def _improve(session: AsyncSession, memory: Memory, item: Prepared) -> None:
    draft = item.draft
    fields = {
        "content": draft.content,
        "tags": list(draft.tags),
        "importance": draft.importance,
        "confidence": draft.confidence,
        "error_category": draft.error_category,
        "source_event_ids": list(draft.source_event_ids),
        "metadata_": draft.metadata,
    }
    await rewrite(
        session, memory, item, fields, reason=REASON, actor=draft.actor, run_id=draft.run_id
    )
