"""From a reflection to the curator: what a run taught goes on to its playbook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.jobs.chain import CURATE, follow
from apps.memory_api.jobs.tables import Run
from apps.memory_api.playbook.rows import Place
from apps.memory_api.reflection.hints import Hint
from apps.memory_api.runtime import Runtime

PLAYBOOK, MEMORIES, HINTS = "playbook", "memories", "hints"
"""In the input of the step that curates: the playbook's name, the memories whose advice is for it,
and what the run says of bullets that are there.
"""
_HINTS = TypeAdapter(list[Hint])


async def to_curator(
    runtime: Runtime,
    session: AsyncSession,
    run: Run,
    place: Place | None,
    memories: Sequence[UUID],
    hints: Sequence[Hint] = (),
) -> Run | None:
    """The step that curates, queued in the transaction that finishes `run`; None when there is no
    playbook, or nothing for it.
    """
    revising = [hint for hint in hints if hint.action == "revise"]
    if place is None or not (memories or revising):
        return None
    told = {
        PLAYBOOK: place.name,
        MEMORIES: [str(memory) for memory in dict.fromkeys(memories)],
        HINTS: _HINTS.dump_python(revising, mode="json"),
    }
    return await follow(runtime.queue, session, run, CURATE, told)


def hints_in(input: dict[str, Any]) -> list[Hint]:
    """The hints that a run was given."""
    return _HINTS.validate_python(input.get(HINTS, []))
