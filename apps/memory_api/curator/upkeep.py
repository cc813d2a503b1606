"""Tidying a playbook in the background: what harms is quarantined, bullets that say the same become
one, and what is over the cap is retired. Safe to repeat; worker kind `tidy`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.curator.duplicates import WORDING, Near, same
from apps.memory_api.curator.merging import merge
from apps.memory_api.curator.quarantine import find_harmful, quarantine
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
from apps.memory_api.curator.view import near_of
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.port import Ticket
from apps.memory_api.jobs.queries import get_run, is_queued
from apps.memory_api.playbook.deltas import MAX_DELTAS
from apps.memory_api.playbook.edit import find_playbook
from apps.memory_api.playbook.queries import get_playbook
from apps.memory_api.playbook.rows import Author, Place
from apps.memory_api.playbook.similar import SimilarPair, near_duplicates
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.runtime import Runtime

KIND = "tidy"
ACTOR = "curator"
LOOKED_AT = 20_000
"""Bullets compared with each other at most: the newest."""
PATIENCE = timedelta(minutes=30)
"""A tidying that waits for longer has lost its ticket."""
COMPARED = 200
"""Pairs whose meaning is compared in one tidying."""


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
    """Make one of bullets that say the same."""
    async with runtime.sessions.tenant(tenant_id) as session:
        playbook = await find_playbook(session, place)
        version, scope = playbook.version, playbook.scope
        if version <= playbook.tidied_version:
            return Merged(version, changed=False)
        rows = await live_bullets(session, scope, LOOKED_AT)
        known = await decided_merges(session, scope)
    bullets = {row.key or "": near_of(row) for row in rows}
    found = await asyncio.to_thread(_alike, bullets)
    unasked = [pair for pair in found if frozenset((pair.first, pair.second)) not in known]
    candidates = await _sure(runtime, tenant_id, bullets, unasked[:COMPARED])
    complete = len(candidates) <= MAX_DELTAS and len(unasked) <= COMPARED

    async def settle(session: AsyncSession, merged: Merged) -> None:
        if complete:
            tidied = await get_playbook(session, place)
            assert tidied is not None, "it was there a moment ago, and playbooks are never removed"
            tidied.tidied_version = merged.version if merged.changed else version

    curation = Curation(version=version, candidates=candidates[:MAX_DELTAS])
    return await merge(runtime, tenant_id, place, curation, author, settle=settle)


def _alike(bullets: Mapping[str, Near]) -> list[SimilarPair]:
    """Pairs whose wording says the same."""
    texts = {key: near.bullet.content for key, near in bullets.items()}
    pairs = near_duplicates(texts, WORDING)
    return [pair for pair in pairs if same(texts[pair.first], texts[pair.second])]


async def _sure(
    runtime: Runtime, tenant_id: UUID, bullets: Mapping[str, Near], pairs: Sequence[SimilarPair]
) -> list[Candidate]:
    """Those of the pairs whose meaning is near too, each bullet in one pair at most."""
    if not pairs:
        return []
    embedder = await runtime.embedder_of(tenant_id)
    keys = list(dict.fromkeys(key for pair in pairs for key in (pair.first, pair.second)))
    texts = [bullets[key].bullet.searchable_text for key in keys]
    vectors = dict(zip(keys, await embedder.embed_documents(texts), strict=True))
    taken: set[str] = set()
    found: list[Candidate] = []
    for pair in pairs:
        first, second = bullets[pair.first], bullets[pair.second]
        cosine = float(vectors[pair.first] @ vectors[pair.second])
        if {pair.first, pair.second} & taken:
            continue
        if same(first.bullet.content, second.bullet.content, cosine):
            taken |= {pair.first, pair.second}
            found.append(Candidate(delta=merging(first, second)))
    return found


async def run_tidy(runtime: Runtime, tenant_id: UUID, run_id: UUID, owner: str) -> None:
    """The worker's handler of `tidy`: tidies the playbook that the run names, and finishes it."""
    async with runtime.sessions.tenant(tenant_id) as session:
        run = await get_run(session, run_id)
    assert run is not None, "the worker claimed it"
    place = Place(run.project_id, run.input["playbook"])
    done = await tidy(runtime, tenant_id, place, run_id)
    async with runtime.sessions.tenant(tenant_id) as session:
        await runs.finish(session, run_id, owner, asdict(done), engine="rules")


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
