"""Tidying a playbook in the background: what harms is quarantined, bullets that say the same become
one, and what is over the cap is retired. Safe to repeat; worker kind `tidy`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.curator.duplicates import Near, same
from apps.memory_api.curator.merging import merge
from apps.memory_api.curator.queries import (
    changed_playbooks,
    decided_merges,
    live_bullets,
    playbooks_over_cap,
    suspected_playbooks,
)
from apps.memory_api.curator.retire import find_spare, retire
from apps.memory_api.curator.rules import merged as merging
from apps.memory_api.curator.schemas import Candidate, Curation, Merged, Tidied
from apps.memory_api.curator.view import near_of, nearest_to, questions_of
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.port import Ticket
from apps.memory_api.jobs.queries import is_queued
from apps.memory_api.jobs.tables import Run
from apps.memory_api.playbook.deltas import MAX_DELTAS
from apps.memory_api.playbook.edit import find_playbook
from apps.memory_api.playbook.quarantine import ACTOR, find_harmful, quarantine
from apps.memory_api.playbook.queries import get_playbook
from apps.memory_api.playbook.rows import Author, Place
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.runtime import Runtime

KIND = "tidy"
BATCH = 100
"""Bullets whose neighbours are looked for in one transaction."""
PATIENCE = timedelta(minutes=30)
"""A tidying that waits for longer has lost its ticket."""


async def tidy(runtime: Runtime, tenant_id: UUID, place: Place, run_id: UUID | None) -> Tidied:
    """At most ten merges; what is left is found by the next tidying. Raises `NoPlaybook`."""
    author = Author(ACTOR, "tidying", run_id)
    quarantined = await quarantine(runtime, tenant_id, place, author)
    done = await _join(runtime, tenant_id, place, author)
    retired = await retire(runtime, tenant_id, place, author)
    pairs = tuple(
        (result.key or "", bullet.id) for result in done.results for bullet in result.absorbed
    )
    return Tidied(pairs, quarantined, retired, done.proposal_id is not None)


async def _join(runtime: Runtime, tenant_id: UUID, place: Place, author: Author) -> Merged:
    """Make one of bullets that say the same, where one of them changed since the last tidying."""
    async with runtime.sessions.tenant(tenant_id) as session:
        playbook = await find_playbook(session, place)
        version = playbook.version
        if version <= playbook.tidied_version:
            return Merged(version, changed=False)
        rows = await live_bullets(session, playbook.scope, playbook.tidied_version)
        known = await decided_merges(session, playbook.scope)
    pairs = _Pairs(known)
    embedder = await runtime.embedder_of(tenant_id)
    for start in range(0, len(rows), BATCH):
        bullets = [near_of(row) for row in rows[start : start + BATCH]]
        asked = await questions_of(embedder, [near.bullet.searchable_text for near in bullets])
        async with runtime.sessions.tenant(tenant_id) as session:
            for near, question in zip(bullets, asked, strict=True):
                pairs.add(near, await nearest_to(session, place, question))
        if len(pairs.found) > MAX_DELTAS:
            break

    async def settle(session: AsyncSession, merged: Merged) -> None:
        if len(pairs.found) > MAX_DELTAS:
            return  # there is more to do
        tidied = await get_playbook(session, place)
        assert tidied is not None, "it was there a moment ago, and playbooks are never removed"
        tidied.tidied_version = merged.version if merged.changed else version

    candidates = [Candidate(delta=merging(*pair)) for pair in pairs.found[:MAX_DELTAS]]
    curation = Curation(version=version, candidates=candidates)
    return await merge(runtime, tenant_id, place, curation, author, settle=settle)


@dataclass
class _Pairs:
    """Pairs of bullets that say the same, each bullet in one at most, but for those that somebody
    was asked about already.
    """

    known: Collection[frozenset[str]]
    found: list[tuple[Near, Near]] = field(default_factory=list[tuple[Near, Near]])
    taken: set[str] = field(default_factory=set[str])

    def add(self, near: Near, others: Sequence[Near]) -> None:
        for other in others:
            keys = frozenset((near.bullet.id, other.bullet.id))
            if len(keys) < 2 or keys & self.taken or keys in self.known or other.bullet.pinned:
                continue
            if same(near.bullet.content, other.bullet.content, other.cosine):
                self.found.append((near, other))
                self.taken |= keys
                return


async def run_tidy(runtime: Runtime, run: Run) -> None:
    """The worker's handler of `tidy`: tidies the playbook that the run names, and finishes it."""
    place = Place(run.project_id, run.input["playbook"])
    done = await tidy(runtime, run.tenant_id, place, run.id)
    async with runtime.sessions.tenant(run.tenant_id) as session:
        await runs.finish(session, run, asdict(done), engine="rules")


async def queue_untidy(runtime: Runtime, session: AsyncSession) -> int:
    """Queue a run for each playbook that has something to be tidied, unless some are waiting."""
    if await is_queued(session, KIND, datetime.now(UTC) - PATIENCE):
        return 0
    due = {row.scope: row for row in await changed_playbooks(session)}
    for row in await suspected_playbooks(session):
        if row.scope not in due and await find_harmful(session, row.scope):
            due[row.scope] = row
    for row in await playbooks_over_cap(session):
        if row.scope not in due and await find_spare(session, row):
            due[row.scope] = row
    await _queue(runtime, session, list(due.values()))
    return len(due)


async def _queue(runtime: Runtime, session: AsyncSession, playbooks: Sequence[PlaybookRow]) -> None:
    made = [
        runs.new_run(session, KIND, project_id=row.project_id, input={"playbook": row.name})
        for row in playbooks
    ]
    await session.flush()
    await runtime.queue.enqueue(session, [Ticket(run.tenant_id, run.id) for run in made])
