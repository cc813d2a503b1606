"""Clean up a playbook in the background: quarantine harmful bullets, merge bullets with the same
words, and archive bullets above the limit.

Safe to repeat. Its run kind is `CLEANUP`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.curation.apply import apply_plan
from memory_api.curation.capacity import archive_over_capacity, find_bullets_over_capacity
from memory_api.curation.consolidation.consolidate import (
    ConsolidationResult,
    consolidate_if_due,
    is_consolidation_due,
)
from memory_api.curation.queries import (
    list_changed_playbooks,
    list_duplicate_bullets,
    list_playbooks_to_clean_up,
    list_rejected_merges,
)
from memory_api.curation.schemas import ApplyResult, CurationPlan, ProposedChange, new_delta
from memory_api.playbooks.deltas import MAX_DELTAS
from memory_api.playbooks.editing.edits import require_playbook
from memory_api.playbooks.inbox.queries import get_curation
from memory_api.playbooks.queries import get_playbook
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.tables import PlaybookRow
from memory_api.playbooks.verdicts.quarantine import (
    QUARANTINE_ACTOR,
    find_bullets_to_quarantine,
    quarantine_harmful_bullets,
)
from memory_api.runs import lifecycle
from memory_api.runs.chain import PLAYBOOK, enqueue_runs
from memory_api.runs.execution import Step
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.queries import list_unfinished_runs
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

CLEANUP = "cleanup"
FORCE = "consolidate"
"""Input of CLEANUP: true to consolidate all bullets now."""
NEXT_PLAYBOOKS = "next_playbooks"
"""Input of CLEANUP: the playbooks that are cleaned up after this one, as project and name. So the
cleanups of a tenant take one of its slots and not all.
"""
MAX_NEXT_PLAYBOOKS = 200
"""Others that are due wait for the next upkeep."""
MAX_MERGES_PER_RUN = 10 * MAX_DELTAS
"""Groups of duplicates that a run merges, as versions of `MAX_DELTAS` merges each. The next upkeep
merges the others.
"""


@dataclass(frozen=True)
class CleanupResult:
    """The result of one cleanup."""

    merged_keys: Sequence[tuple[str, str]] = field(default_factory=tuple[tuple[str, str], ...])
    """(survivor, absorbed)."""
    quarantined_keys: Sequence[str] = ()
    archived_keys: Sequence[str] = ()
    proposal_id: UUID | None = None
    """The merges wait for review."""
    consolidation: ConsolidationResult = field(default_factory=ConsolidationResult)


_RESULT = TypeAdapter(CleanupResult)


async def clean_up_playbook(
    runtime: Runtime,
    tenant_id: UUID,
    place: PlaybookRef,
    run_id: UUID | None,
    *,
    force: bool = False,
) -> CleanupResult:
    """Merges at most 100 groups of duplicates. With a model, also consolidates the playbook if that
    is due, or always with `force`. Raises `PlaybookNotFound`.
    """
    author = ChangeAuthor(QUARANTINE_ACTOR, "Playbook cleanup.", run_id)
    quarantined = await quarantine_harmful_bullets(runtime, tenant_id, place, author)
    merged = await _merge_duplicates(runtime, tenant_id, place, author)
    consolidation = await consolidate_if_due(runtime, tenant_id, place, run_id, force=force)
    archived = await archive_over_capacity(runtime, tenant_id, place, author)
    pairs = tuple(
        (result.key or "", bullet.id)
        for one in merged
        for result in one.results
        for bullet in result.absorbed
    )
    proposals = (one.proposal_id for one in (*merged, consolidation))
    proposal_id = next(filter(None, proposals), None)
    return CleanupResult(pairs, quarantined, archived, proposal_id, consolidation)


async def _merge_duplicates(
    runtime: Runtime, tenant_id: UUID, place: PlaybookRef, author: ChangeAuthor
) -> Sequence[ApplyResult]:
    """Merges the bullets with the same words if the playbook changed since its last cleanup. Of
    each group the bullet with the most verdicts and observations remains.
    """
    async with runtime.sessions.for_tenant(tenant_id) as session:
        playbook = await require_playbook(session, place)
        version, scope = playbook.version, playbook.scope_id
        if version <= playbook.cleaned_version:
            return ()
        groups = await list_duplicate_bullets(session, scope)
        rejected_merges = await list_rejected_merges(session, scope)
    changes: list[ProposedChange] = []
    for first, *others in groups:
        absorbed = [key for key in others if not any({first, key} <= r for r in rejected_merges)]
        if absorbed:
            reason = f"The same words as {', '.join(absorbed)}."
            delta = new_delta("MERGE", bullet_id=first, source_ids=absorbed, reasoning=reason)
            changes.append(ProposedChange(delta=delta))
    plans = [
        CurationPlan(version=version, changes=changes[start : start + MAX_DELTAS])
        for start in range(0, min(len(changes), MAX_MERGES_PER_RUN), MAX_DELTAS)
    ]
    merged = [await apply_plan(runtime, tenant_id, place, plan, author) for plan in plans]
    if len(changes) <= MAX_MERGES_PER_RUN:
        own_version = version + sum(one.changed for one in merged)
        is_own = bool(merged) and merged[-1].version == own_version
        async with runtime.sessions.for_tenant(tenant_id) as session:
            current = await get_playbook(session, place)
            assert current is not None, "playbooks are never removed"
            current.cleaned_version = own_version if is_own else version
    return merged


class CleanupStep(Step[None, CleanupResult, StepResult]):
    """Cleans up a playbook, then enqueues the cleanup of the next one."""

    kind = CLEANUP

    async def load(self, session: AsyncSession, run: RunRow) -> None:
        return None

    async def compute(self, runtime: Runtime, run: RunRow, input: None) -> CleanupResult:
        force = bool(run.input.get(FORCE))
        place = _cleaned_playbook(run)
        return await clean_up_playbook(runtime, run.tenant_id, place, run.id, force=force)

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: CleanupResult
    ) -> StepResult:
        await _enqueue_next_playbook(runtime, session, run)
        consolidation = output.consolidation
        return StepResult(
            data=_RESULT.dump_python(output, mode="json"),
            engine="llm" if consolidation.prompt_hash else "rules",
            prompt_hash=consolidation.prompt_hash,
            usage=consolidation.usage,
        )

    async def abandon(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, reason: str
    ) -> None:
        """The other playbooks do not wait for one whose cleanup fails."""
        await _enqueue_next_playbook(runtime, session, run)


async def _enqueue_next_playbook(runtime: Runtime, session: AsyncSession, run: RunRow) -> None:
    places = [PlaybookRef(*place) for place in run.input.get(NEXT_PLAYBOOKS, ())]
    await _enqueue_in_sequence(runtime, session, places)


async def enqueue_cleanups(runtime: Runtime, session: AsyncSession) -> int:
    """Enqueues the cleanups of the playbooks that need one, one after the other. Returns their
    number: 0 while an earlier sequence is unfinished.
    """
    unfinished = await list_unfinished_runs(session, CLEANUP)
    if any(run.error is None for run in unfinished):
        return 0
    due = {
        row.scope_id: row
        for row in await list_playbooks_to_clean_up(session)
        if row.version > row.cleaned_version
        or await find_bullets_to_quarantine(session, row.scope_id)
        or await find_bullets_over_capacity(session, row)
    }
    if runtime.llm is not None:
        for row, curation in await list_changed_playbooks(session):
            if row.scope_id not in due and await is_consolidation_due(session, row, curation):
                due[row.scope_id] = row
    busy = {_cleaned_playbook(run) for run in unfinished}  # they wait for a model or a budget
    places = [PlaybookRef(row.project_id, row.name) for row in due.values()]
    places = [place for place in places if place not in busy]
    if len(places) > MAX_NEXT_PLAYBOOKS:
        places = random.sample(places, MAX_NEXT_PLAYBOOKS)
    await _enqueue_in_sequence(runtime, session, places)
    return len(places)


def _cleaned_playbook(run: RunRow) -> PlaybookRef:
    return PlaybookRef(run.project_id, run.input[PLAYBOOK])


async def _enqueue_in_sequence(
    runtime: Runtime, session: AsyncSession, places: Sequence[PlaybookRef]
) -> None:
    """Enqueues the cleanup of the first playbook. It enqueues that of the next one when it ends."""
    if places:
        others = [[place.project_id, place.name] for place in places[1:]]
        await _enqueue_run(runtime, session, places[0], {NEXT_PLAYBOOKS: others})


async def enqueue_cleanup_after_growth(
    runtime: Runtime, session: AsyncSession, playbook: PlaybookRow
) -> None:
    """Enqueues a cleanup if a consolidation by a model is due."""
    if runtime.llm is None:
        return
    curation = await get_curation(session, playbook.scope_id)
    if not await is_consolidation_due(session, playbook, curation):
        return
    place = PlaybookRef(playbook.project_id, playbook.name)
    unfinished = await list_unfinished_runs(session, CLEANUP)
    if place not in map(_cleaned_playbook, unfinished):
        await _enqueue_run(runtime, session, place, {})


async def enqueue_consolidation(
    runtime: Runtime, session: AsyncSession, playbook: PlaybookRow
) -> RunRow:
    """Enqueues a cleanup that consolidates all bullets of the playbook."""
    place = PlaybookRef(playbook.project_id, playbook.name)
    return await _enqueue_run(runtime, session, place, {FORCE: True})


async def _enqueue_run(
    runtime: Runtime, session: AsyncSession, place: PlaybookRef, options: Mapping[str, Any]
) -> RunRow:
    run = lifecycle.new_run(
        session, CLEANUP, project_id=place.project_id, input={PLAYBOOK: place.name, **options}
    )
    await enqueue_runs(runtime.queue, session, run)
    return run
