"""Proposals with what they would change, and quarantined bullets with their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.console.comparison import Comparison, Part, TextComparer, mark_passages
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


@dataclass(frozen=True)
class DeltaPreview:
    """One delta of a proposal, and the text of the bullet before and after it."""

    result: DeltaResult
    comparison: Comparison
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
    before = result.before.content if result.before else ""
    after = result.after.content if result.after else ""
    absorbed = [f"{bullet.id}: {bullet.content}" for bullet in result.absorbed]
    return DeltaPreview(result, comparer.compare(before, after), absorbed)


@dataclass(frozen=True)
class QuarantinedBullet:
    """A bullet that is not served, and its latest verdicts. The changed parts of its text are those
    that a lesson copied from outside text. `trace_ids` are the runs that taught it.
    """

    row: MemoryRow
    verdicts: Sequence[BulletVerdictRow]
    parts: Sequence[Part]
    trace_ids: Sequence[UUID]

    @property
    def was_served(self) -> bool:
        """Whether it was active before. A new bullet that quotes a tool never was."""
        return not self.row.awaiting_confirmation


async def load_quarantined(
    runtime: Runtime, tenant_id: UUID, ref: PlaybookRef
) -> Sequence[QuarantinedBullet]:
    """At most `MAX_QUARANTINED` bullets by key. Raises `PlaybookNotFound`."""
    async with runtime.sessions.for_tenant(tenant_id) as session:
        playbook = await require_playbook(session, ref)
        rows = await queries.list_bullets(
            session, playbook.scope_id, status="quarantined", limit=MAX_QUARANTINED
        )
        return [await _load_quarantined(session, row) for row in rows[:MAX_QUARANTINED]]


async def _load_quarantined(session: AsyncSession, row: MemoryRow) -> QuarantinedBullet:
    verdicts = await queries.list_verdicts(session, row.id, None, MAX_SHOWN_VERDICTS)
    links = await queries.list_provenance_links(session, row.id)
    lessons = await get_memories(session, [link.target_id for link in links])
    quotations = {q for lesson in lessons.values() for q in lesson.metadata_.get(QUOTATIONS) or ()}
    parts = mark_passages(row.content, quotations)
    traces = dict.fromkeys(link.trace_id for link in links if link.trace_id)
    return QuarantinedBullet(
        row, verdicts[:MAX_SHOWN_VERDICTS], parts, list(traces)[:MAX_SHOWN_TRACES]
    )
