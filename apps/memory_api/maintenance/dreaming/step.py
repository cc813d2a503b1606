"""The task `dreaming`: what the recent runs of each project have in common (spec 5).

A model reads the episodes of the time window with enough importance, or traces that the request
names, with the errors and events of the traces, and looks for themes. They are stored like the
lessons of a reflection: guarded, each once, linked to their episodes. A theme that corrects an
earlier statement of dreaming replaces it; themes of named traces replace nothing. Strategies reach
a playbook as a proposal only. Episodes and traces do not change.

Without a model nothing is stored: the episodes are a selection, so nothing about all runs follows
from them. The model gets the outcomes of all traces of the period.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.statements import fetch_rows, load_statement
from memory_api.curation.apply import propose_plan
from memory_api.maintenance.dreaming.context import ACTOR, load_projects
from memory_api.maintenance.dreaming.generate import ProjectDream, StorableTheme, dream_about
from memory_api.maintenance.episodes import lock_sources
from memory_api.maintenance.queries import claim_task
from memory_api.memories.index.writer import unindex_memories
from memory_api.memories.queries import NewLink, add_links, get_memory, lock_memories
from memory_api.memories.schemas import MemoryStatus
from memory_api.playbooks.queries import get_playbook
from memory_api.playbooks.ref import ChangeAuthor
from memory_api.reflection.lesson_storage import SavedLesson, save_lessons
from memory_api.runs.execution import Step
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

log = structlog.get_logger()

DREAMING = "dreaming"
DREAMED_STRATEGIES = load_statement("maintenance/maintenance.sql", "dreamed_strategies")


class DreamStep(Step[None, Sequence[ProjectDream], StepResult]):
    """Dreams about the traces of the request, or about every project of the tenant with at least
    three recent episodes. `load` raises `TaskBusy` while another run of the tenant dreams.
    """

    kind = DREAMING

    async def load(self, session: AsyncSession, run: RunRow) -> None:
        await claim_task(session, DREAMING, run)

    async def compute(self, runtime: Runtime, run: RunRow, input: None) -> list[ProjectDream]:
        if runtime.llm is None:
            return []
        inputs = await load_projects(runtime, run)
        return [await dream_about(runtime, run, project) for project in inputs]

    async def save(
        self,
        runtime: Runtime,
        session: AsyncSession,
        run: RunRow,
        output: Sequence[ProjectDream],
    ) -> StepResult:
        data: dict[str, Any] = {"projects": {}}
        usage, failure, prompt_hash = Counter[str](), None, None
        for dream in output:
            answered = dream.answered
            failure = answered.error or failure
            usage.update({k: v for k, v in (answered.usage or {}).items() if _is_number(v)})
            if answered.answer is not None:
                prompt_hash = answered.prompt_hash
                data["projects"][dream.input.project_id] = await _save(session, run, dream)
        return StepResult(
            data=data,
            engine="rules" if prompt_hash is None else "llm",
            prompt_hash=prompt_hash,
            usage=dict(usage) if usage else None,
            degraded_by=failure,
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


async def _save(session: AsyncSession, run: RunRow, dream: ProjectDream) -> dict[str, Any]:
    """Store what one project showed. The playbooks are locked first, as by a reflection."""
    for ref, _ in dream.plans:
        await get_playbook(session, ref, lock=True)
    await lock_sources(session, dream.input.episodes)
    items = [item for theme in dream.themes for item in theme.memories]

    def links(saved: Sequence[SavedLesson]) -> Iterator[NewLink]:
        ids = {item.draft.id: each.memory_id for item, each in zip(items, saved, strict=True)}
        for theme in dream.themes:
            reflection, *strategies = (ids[item.draft.id] for item in theme.memories)
            for memory_id in (reflection, *strategies):
                for episode in dream.input.episodes:
                    relation = "derived_from" if episode in theme.episodes else "read"
                    yield NewLink(memory_id, relation, *episode.source)
            for strategy in strategies:
                yield NewLink(strategy, "derived_from", "memory", reflection)

    saved = await save_lessons(session, items, count_observations=False, links=links)
    ids = {item.draft.id: each.memory_id for item, each in zip(items, saved, strict=True)}
    replaced = await _archive_replaced(session, run, dream.themes, ids)
    new: list[str] = []
    for item, each in zip(items, saved, strict=True):
        if each.is_new:
            new.append(str(each.memory_id))
            log.info(
                "reflection_stored",
                tenant_id=str(run.tenant_id),
                project_id=dream.input.project_id,
                reflection_id=new[-1],
                importance=item.draft.importance,
            )
    return {
        "episodes": len(dream.input.episodes),
        "counts": dream.input.counts.to_json(),
        "memories": new,
        "replaced": [str(memory_id) for memory_id in replaced],
        "proposals": await _propose(session, run, dream, ids),
    }


async def _propose(
    session: AsyncSession, run: RunRow, dream: ProjectDream, ids: Mapping[UUID, UUID]
) -> dict[str, str]:
    """Store the changes of playbooks as proposals. Playbook → ID of its proposal."""
    proposals: dict[str, str] = {}
    reason = f"Dreaming over {len(dream.input.episodes)} episodes."
    author = ChangeAuthor(ACTOR, reason, run.id)
    for ref, plan in dream.plans:
        for lesson in plan.lessons:  # they have the IDs of drafts
            lesson.memory_id = ids[lesson.memory_id] if lesson.memory_id else None
        proposal_id = await propose_plan(session, ref, plan, author)
        proposals |= {ref.name: str(proposal_id)} if proposal_id else {}
    return proposals


async def _archive_replaced(
    session: AsyncSession,
    run: RunRow,
    themes: Sequence[StorableTheme],
    ids: Mapping[UUID, UUID],
) -> list[UUID]:
    """Archive the statements that a theme replaces, with their strategies, unless a person changed
    or pinned them or a theme says the same again. Returns their IDs.
    """
    successor_of = {
        replaced: ids[theme.memories[0].draft.id]
        for theme in themes
        for replaced in theme.replaced_ids
    }
    parameters = {"tenant": run.tenant_id, "ids": list(successor_of)}
    for row in await fetch_rows(session, DREAMED_STRATEGIES, parameters):
        successor_of.setdefault(row.id, successor_of[row.reflection_id])
    kept = set(ids.values())
    await lock_memories(session, successor_of.keys() - kept)
    archived: list[UUID] = []
    for memory_id, successor in successor_of.items():
        memory = await get_memory(session, memory_id, for_update=True)
        if memory is None or memory_id in kept or memory.pinned:
            continue
        if memory.status == MemoryStatus.ARCHIVED or memory.change_actor != ACTOR:
            continue
        await unindex_memories(session, [memory])
        memory.status = MemoryStatus.ARCHIVED
        memory.change_reason = f"A later dream replaces it by {successor}."
        memory.change_actor, memory.change_run_id = ACTOR, run.id
        archived.append(memory_id)
    links = (NewLink(successor_of[each], "supersedes", "memory", each) for each in archived)
    await add_links(session, links)
    return archived
