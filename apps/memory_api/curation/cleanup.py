"""Clean up a playbook in the background: quarantine harmful bullets, merge duplicates, and archive
bullets above the limit.

Safe to repeat. Its run kind is `CLEANUP`.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import transaction_time
from memory_api.curation.apply import apply_plan
from memory_api.curation.capacity import (
    archive_over_capacity,
    find_bullets_over_capacity,
)
from memory_api.curation.consolidation.consolidate import (
    MAX_AGE,
    MIN_GROWTH_BULLETS,
    MIN_INTERVAL,
    ConsolidationResult,
    consolidate_if_due,
    count_budgeted_tokens,
    is_consolidation_due,
)
from memory_api.curation.consolidation.queries import list_playbooks_to_consolidate
from memory_api.curation.context import to_nearby
from memory_api.curation.duplicate_search import DuplicateSearch
from memory_api.curation.lesson_duplicates import NearbyBullet, is_duplicate
from memory_api.curation.queries import (
    list_changed_bullets_since,
    list_changed_playbooks,
    list_playbooks_over_capacity,
    list_playbooks_with_harmful_bullets,
    list_rejected_merges,
)
from memory_api.curation.rules import count_support, merge_delta
from memory_api.curation.schemas import (
    ApplyResult,
    CurationPlan,
    ProposedChange,
)
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
from memory_api.run_queue.port import Ticket
from memory_api.runs import lifecycle
from memory_api.runs.chain import PLAYBOOK
from memory_api.runs.execution import Step
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.queries import list_unfinished_runs
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

CLEANUP = "cleanup"
FORCE = "consolidate"
"""Input of CLEANUP: true to consolidate all bullets now."""
AFTER_SEQ, UNTIL_VERSION = "after_seq", "until_version"
"""Input of CLEANUP that continues an earlier one: where, and the version that it cleans up to."""
NEXT_PLAYBOOKS = "next_playbooks"
"""Input of CLEANUP: the playbooks that are cleaned up after this one, as project and name. So the
cleanups of a tenant take one of its slots and not all.
"""
MAX_NEXT_PLAYBOOKS = 200
"""Others that are due wait for the next upkeep."""
BULLETS_PER_BATCH = 100
"""Bullets that are compared with their neighbors per transaction."""
MAX_MERGES_PER_RUN = 10 * MAX_DELTAS
"""Groups of duplicates that a run merges, as versions of `MAX_DELTAS` merges each."""
MAX_BULLETS_PER_RUN = 2_000
"""A run that has compared so many bullets queues another one for the rest, so that the cleanup of a
large playbook takes turns with other work of the tenant.
"""


@dataclass(frozen=True)
class CleanupPosition:
    """The bullets up to `after_seq` are compared; those up to `until_version` are to be."""

    after_seq: int
    until_version: int


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
    next_position: CleanupPosition | None = None
    """Where another run continues."""


_RESULT = TypeAdapter(CleanupResult)


async def clean_up_playbook(
    runtime: Runtime,
    tenant_id: UUID,
    place: PlaybookRef,
    run_id: UUID | None,
    *,
    force: bool = False,
    position: CleanupPosition | None = None,
) -> CleanupResult:
    """Compares at most 2,000 bullets and merges at most 100 groups of duplicates; another run
    continues. With a model, also consolidates the playbook if that is due, or always with `force`.
    Raises `PlaybookNotFound`.
    """
    author = ChangeAuthor(QUARANTINE_ACTOR, "Playbook cleanup.", run_id)
    quarantined = await quarantine_harmful_bullets(runtime, tenant_id, place, author)
    merged, next_position = await _merge_duplicates(runtime, tenant_id, place, author, position)
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
    return CleanupResult(pairs, quarantined, archived, proposal_id, consolidation, next_position)


async def _merge_duplicates(
    runtime: Runtime,
    tenant_id: UUID,
    place: PlaybookRef,
    author: ChangeAuthor,
    position: CleanupPosition | None,
) -> tuple[Sequence[ApplyResult], CleanupPosition | None]:
    """Merges duplicates of which at least one changed since the last cleanup. Returns where to
    continue, or None at the end.
    """
    async with runtime.sessions.for_tenant(tenant_id) as session:
        playbook = await require_playbook(session, place)
        version, scope = playbook.version, playbook.scope_id
        if version <= playbook.cleaned_version:
            return (), None
        position = position or CleanupPosition(0, version)
        rows = await list_changed_bullets_since(
            session,
            scope,
            playbook.cleaned_version,
            after_seq=position.after_seq,
            limit=MAX_BULLETS_PER_RUN + 1,
        )
        rejected_merges = await list_rejected_merges(session, scope)
    has_more, rows = len(rows) > MAX_BULLETS_PER_RUN, rows[:MAX_BULLETS_PER_RUN]
    groups = _DuplicateGroups(rejected_merges)
    search = await DuplicateSearch.open(runtime, tenant_id, scope)
    compared_seq = position.after_seq
    for start in range(0, len(rows), BULLETS_PER_BATCH):
        batch = rows[start : start + BULLETS_PER_BATCH]
        for row, others in zip(batch, await search.find(batch), strict=True):
            groups.add(to_nearby(row), others)
        if len(groups.groups) > MAX_MERGES_PER_RUN:
            has_more = True  # this batch is compared again, without the groups that are merged now
            break
        compared_seq = batch[-1].seq
    changes = [ProposedChange(delta=merge_delta(group)) for group in groups.groups]
    plans = [
        CurationPlan(version=version, changes=changes[start : start + MAX_DELTAS])
        for start in range(0, min(len(changes), MAX_MERGES_PER_RUN), MAX_DELTAS)
    ]
    merged = [await apply_plan(runtime, tenant_id, place, plan, author) for plan in plans]
    if not has_more:
        cleaned_version = position.until_version
        own_version = version + sum(one.changed for one in merged)
        if cleaned_version == version and merged and merged[-1].version == own_version:
            cleaned_version = own_version  # nobody else changed the playbook meanwhile
        async with runtime.sessions.for_tenant(tenant_id) as session:
            current = await get_playbook(session, place)
            assert current is not None, "playbooks are never removed"
            current.cleaned_version = cleaned_version
    is_stuck = compared_seq == position.after_seq and not any(one.changed for one in merged)
    continues = has_more and not is_stuck
    next_position = CleanupPosition(compared_seq, position.until_version) if continues else None
    return merged, next_position


@dataclass
class _DuplicateGroups:
    """Groups of duplicates, each bullet in at most one group, without pairs that a proposal already
    contains.
    """

    rejected_merges: Collection[frozenset[str]]
    groups: list[list[NearbyBullet]] = field(default_factory=list[list[NearbyBullet]])
    grouped_keys: set[str] = field(default_factory=set[str])

    def add(self, nearby: NearbyBullet, others: Sequence[NearbyBullet]) -> None:
        """Add the bullet with all its duplicates among `others`, if it has any."""
        if nearby.bullet.id in self.grouped_keys:
            return
        duplicates = [other for other in others if self._may_merge(nearby, other, other.cosine)]
        if not duplicates:
            return
        survivor = min([nearby, *duplicates], key=lambda n: (-count_support(n), n.bullet.id))
        group = [survivor] + [
            other
            for other in (nearby, *duplicates)
            if other is not survivor
            and (survivor is nearby or other is nearby or self._may_merge(survivor, other, None))
        ]
        self.groups.append(group)
        self.grouped_keys |= {other.bullet.id for other in group}

    def _may_merge(self, nearby: NearbyBullet, other: NearbyBullet, cosine: float | None) -> bool:
        keys = frozenset((nearby.bullet.id, other.bullet.id))
        return (
            len(keys) == 2
            and not keys & self.grouped_keys
            and not any(keys <= rejected for rejected in self.rejected_merges)
            and not other.bullet.pinned
            and is_duplicate(nearby.bullet.content, other.bullet.content, cosine)
        )


class CleanupStep(Step[CleanupPosition | None, CleanupResult, StepResult]):
    """Cleans up a playbook, then enqueues the cleanup of the next one."""

    kind = CLEANUP

    async def load(self, session: AsyncSession, run: RunRow) -> CleanupPosition | None:
        if AFTER_SEQ not in run.input:
            return None
        return CleanupPosition(run.input[AFTER_SEQ], run.input[UNTIL_VERSION])

    async def compute(
        self, runtime: Runtime, run: RunRow, input: CleanupPosition | None
    ) -> CleanupResult:
        force = bool(run.input.get(FORCE))
        return await clean_up_playbook(
            runtime, run.tenant_id, _cleaned_playbook(run), run.id, force=force, position=input
        )

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: CleanupResult
    ) -> StepResult:
        if (after := output.next_position) is not None:
            options = {AFTER_SEQ: after.after_seq, UNTIL_VERSION: after.until_version}
            others = {NEXT_PLAYBOOKS: run.input.get(NEXT_PLAYBOOKS, [])}
            await _enqueue_run(runtime, session, _cleaned_playbook(run), options | others)
        else:
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
    due = {row.scope_id: row for row in await list_changed_playbooks(session)}
    for row in await list_playbooks_with_harmful_bullets(session):
        if row.scope_id not in due and await find_bullets_to_quarantine(session, row.scope_id):
            due[row.scope_id] = row
    for row in await list_playbooks_over_capacity(session):
        if row.scope_id not in due and await find_bullets_over_capacity(session, row):
            due[row.scope_id] = row
    if runtime.llm is not None:
        rows = await list_playbooks_to_consolidate(
            session, MIN_GROWTH_BULLETS, MAX_AGE, MIN_INTERVAL
        )
        for row in rows:
            if row.scope_id not in due and await _is_consolidation_due(session, row):
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
    if runtime.llm is None or not await _is_consolidation_due(session, playbook):
        return
    place = PlaybookRef(playbook.project_id, playbook.name)
    unfinished = await list_unfinished_runs(session, CLEANUP)
    if place not in {_cleaned_playbook(run) for run in unfinished}:
        await _enqueue_run(runtime, session, place)


async def _is_consolidation_due(session: AsyncSession, playbook: PlaybookRow) -> bool:
    curation = await get_curation(session, playbook.scope_id)
    now = await transaction_time(session)
    token_count = await count_budgeted_tokens(session, playbook)
    return is_consolidation_due(playbook, curation, now, token_count)


async def enqueue_consolidation(
    runtime: Runtime, session: AsyncSession, playbook: PlaybookRow
) -> UUID:
    """Enqueues a cleanup that consolidates all bullets of the playbook; the ID of its run."""
    place = PlaybookRef(playbook.project_id, playbook.name)
    return await _enqueue_run(runtime, session, place, {FORCE: True})


async def _enqueue_run(
    runtime: Runtime,
    session: AsyncSession,
    place: PlaybookRef,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> UUID:
    run = lifecycle.new_run(
        session, CLEANUP, project_id=place.project_id, input={PLAYBOOK: place.name, **options}
    )
    await session.flush()
    await runtime.queue.enqueue(session, [Ticket(run.tenant_id, run.id)])
    return run.id
