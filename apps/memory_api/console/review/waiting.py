"""Proposals with what they would change, and quarantined bullets with their verdicts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.console.comparison import FieldChange, Part, TextComparer, mark_passages
from memory_api.core.errors import HanseiError
from memory_api.core.pagination import Cursor, time_and_id_cursor
from memory_api.memories.queries import get_memories
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks import queries
from memory_api.playbooks.editing.edits import require_playbook
from memory_api.playbooks.models import DeltaResult
from memory_api.playbooks.proposals.review import accept_proposal
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.tables import BulletVerdictRow, ProposalRow
from memory_api.runtime import Runtime
from memory_api.text.quotations import QUOTATIONS

MAX_PROPOSALS = 10
"""Proposals of a page. Each one is tried on the playbook as it is now."""
MAX_QUARANTINED = 20
MAX_SHOWN_VERDICTS = 5
MAX_SHOWN_TRACES = 3
WhyWaiting = Literal["harmful", "contradicts", "contradicted", "quotes", "decided"]
_HARMFUL = re.compile(r"Harmful verdicts: (\d+)\. Helpful verdicts: (\d+)\.")
_CONTRADICTS = re.compile(r"Contradicts bullet (\S+)\.")
"""The reasons of a quarantine, as `quarantine_reason` and `quarantine_losers` write them."""


@dataclass(frozen=True)
class DeltaPreview:
    """One delta of a proposal, and all fields of the bullet that it changes."""

    result: DeltaResult
    changes: Sequence[FieldChange]
    absorbed: Sequence[str]
    """The bullets that a merge would remove: key and text."""


@dataclass(frozen=True)
class WaitingProposal:
    """A proposal. `problem` states why it no longer fits the playbook."""

    row: ProposalRow
    previews: Sequence[DeltaPreview]
    problem: str = ""


@dataclass(frozen=True)
class WaitingProposals:
    """A page of proposals, newest first."""

    items: Sequence[WaitingProposal]
    next_cursor: str | None


async def load_waiting_proposals(
    runtime: Runtime, tenant_id: UUID, ref: PlaybookRef, cursor: Cursor | None
) -> WaitingProposals:
    """Raises `PlaybookNotFound`."""
    async with runtime.sessions.for_tenant(tenant_id) as session:
        playbook = await require_playbook(session, ref)
        rows = await queries.list_proposals(
            session, playbook.scope_id, "waiting", cursor, MAX_PROPOSALS
        )
    shown = rows[:MAX_PROPOSALS]
    comparer = TextComparer()
    items = [await _preview(runtime, tenant_id, ref, row, comparer) for row in shown]
    has_more = len(rows) > MAX_PROPOSALS
    return WaitingProposals(items, time_and_id_cursor(shown[-1]).encode() if has_more else None)


async def _preview(
    runtime: Runtime, tenant_id: UUID, ref: PlaybookRef, row: ProposalRow, comparer: TextComparer
) -> WaitingProposal:
    try:
        outcome = await accept_proposal(runtime, tenant_id, ref, row.id, "", dry_run=True)
    except HanseiError as error:
        return WaitingProposal(row, (), error.detail)
    return WaitingProposal(row, [_to_preview(result, comparer) for result in outcome.results])


def _to_preview(result: DeltaResult, comparer: TextComparer) -> DeltaPreview:
    absorbed = [f"{bullet.id}: {bullet.content}" for bullet in result.absorbed]
    return DeltaPreview(result, comparer.compare_bullets(result.before, result.after), absorbed)


@dataclass(frozen=True)
class QuarantinedBullet:
    """A bullet that is not served, and its latest verdicts. The changed parts of its text are those
    that a lesson copied from outside text. `trace_ids` are the agent runs that taught it.
    """

    row: MemoryRow
    verdicts: Sequence[BulletVerdictRow]
    parts: Sequence[Part]
    trace_ids: Sequence[UUID]
    why: WhyWaiting
    counts_then: tuple[int, int]
    """Harmful and helpful verdicts when it was quarantined because of them."""
    rival: MemoryRow | None
    """The bullet that says the opposite, if that is why it waits."""


async def load_quarantined(
    runtime: Runtime, tenant_id: UUID, ref: PlaybookRef
) -> Sequence[QuarantinedBullet]:
    """At most `MAX_QUARANTINED` bullets by key. Raises `PlaybookNotFound`."""
    async with runtime.sessions.for_tenant(tenant_id) as session:
        playbook = await require_playbook(session, ref)
        query = queries.select_bullets(session, playbook.scope_id, status="quarantined")
        rows = await queries.list_bullets(session, query, limit=MAX_QUARANTINED)
        shown = rows[:MAX_QUARANTINED]
        rival_keys = {match[1] for row in shown if (match := _match(_CONTRADICTS, row))}
        rivals = await queries.find_bullets(session, playbook.scope_id, rival_keys)
        return [await _load_quarantined(session, row, rivals) for row in shown]


async def _load_quarantined(
    session: AsyncSession, row: MemoryRow, rivals: Mapping[str, MemoryRow]
) -> QuarantinedBullet:
    verdicts = await queries.list_verdicts(session, row.id, None, MAX_SHOWN_VERDICTS)
    links = await queries.list_provenance_links(session, row.id)
    lessons = await get_memories(session, [link.target_id for link in links])
    quotations = {q for lesson in lessons.values() for q in lesson.metadata_.get(QUOTATIONS) or ()}
    traces = dict.fromkeys(link.trace_id for link in links if link.trace_id)
    contradicts, harmful = _match(_CONTRADICTS, row), _match(_HARMFUL, row)
    return QuarantinedBullet(
        row,
        verdicts[:MAX_SHOWN_VERDICTS],
        mark_passages(row.content, quotations),
        list(traces),
        _why(row, contradicts, harmful),
        (int(harmful[1]), int(harmful[2])) if harmful else (0, 0),
        rivals.get(contradicts[1]) if contradicts else None,
    )


def _match(pattern: re.Pattern[str], row: MemoryRow) -> re.Match[str] | None:
    return pattern.fullmatch(row.change_reason or "")


def _why(row: MemoryRow, contradicts: object, harmful: object) -> WhyWaiting:
    if contradicts:
        return "contradicts" if row.awaiting_confirmation else "contradicted"
    if row.awaiting_confirmation:
        return "quotes"
    return "harmful" if harmful else "decided"
