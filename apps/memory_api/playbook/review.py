"""Deltas that wait for a person, where a playbook asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.errors import Conflict, NotFound
from apps.memory_api.core.ids import new_id
from apps.memory_api.playbook.change import change_playbook
from apps.memory_api.playbook.edit import (
    Sources,
    apply_to_rows,
    deltas_planner,
    find_playbook,
)
from apps.memory_api.playbook.plan import Outcome, Plan, Terms
from apps.memory_api.playbook.queries import get_playbook, get_proposal
from apps.memory_api.playbook.rows import Author, Place
from apps.memory_api.playbook.schemas import DeltaContextItem, DeltaResult
from apps.memory_api.playbook.tables import PlaybookRow, Proposal
from apps.memory_api.runtime import Runtime


@dataclass(frozen=True)
class Proposed:
    """Deltas that were held: what they would do today, and where they wait."""

    proposal_id: UUID
    version: int
    results: Sequence[DeltaResult]


async def propose(
    runtime: Runtime,
    tenant_id: UUID,
    place: Place,
    deltas: Sequence[DeltaContextItem],
    author: Author,
    *,
    sources: Sources | None = None,
    if_match: int | None = None,
    dry: bool = False,
) -> Outcome | Proposed:
    """Apply deltas, or hold them where the playbook has `review = required`. A dry run does neither
    and says what they would do.

    Raises `Invalid` naming the delta, also for an ADD to a section that is not there, `Stale`,
    `Full`.
    """
    async with runtime.sessions.tenant(tenant_id) as session:
        playbook = await get_playbook(session, place)
        if playbook is not None and playbook.deleted_at is None and playbook.review == "required":
            Terms(if_match).check(playbook, Author())
            plan = await deltas_planner(deltas, {}, named=True)(session, playbook)
            if dry:
                return Outcome(playbook.version, False, playbook.active, plan.results)
            held = hold(session, playbook, deltas, author, sources or {})
            return Proposed(held.id, playbook.version, plan.results)
    return await apply_to_rows(
        runtime, tenant_id, place, deltas, author, sources=sources, if_match=if_match, dry=dry
    )


def hold(
    session: AsyncSession,
    playbook: PlaybookRow,
    deltas: Sequence[DeltaContextItem],
    author: Author,
    sources: Sources,
) -> Proposal:
    """A proposal that waits for a person, added to the session."""
    held = Proposal(
        tenant_id=tenant_of(session),
        id=new_id(),
        scope=playbook.scope,
        deltas=[delta.model_dump(mode="json", exclude_defaults=True) for delta in deltas],
        sources={str(index): [str(source) for source in ids] for index, ids in sources.items()},
        reason=author.reason,
        actor=author.actor,
        run_id=author.run_id,
    )
    session.add(held)
    return held


def deltas_of(proposal: Proposal) -> list[DeltaContextItem]:
    return [DeltaContextItem.model_validate(delta) for delta in proposal.deltas]


async def accept(
    runtime: Runtime,
    tenant_id: UUID,
    place: Place,
    proposal_id: UUID,
    decider: str,
    reason: str | None = None,
    *,
    dry: bool = False,
) -> Outcome:
    """Apply a proposal as one version, in the name of who made it, decided by who accepts it.

    Raises `NotFound`, `Conflict` when it was decided before, and `Invalid` when its deltas do not
    fit the playbook any more: it then waits on.
    """
    async with runtime.sessions.tenant(tenant_id) as session:
        playbook = await find_playbook(session, place)
        proposal = await _waiting(session, playbook, proposal_id)
    author = Author(proposal.actor, reason or proposal.reason, proposal.run_id)
    sources = {int(i): [UUID(source) for source in ids] for i, ids in proposal.sources.items()}
    plan_deltas = deltas_planner(deltas_of(proposal), sources)

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> Plan:
        waiting = await _waiting(session, playbook, proposal_id)

        async def settle(outcome: Outcome) -> None:
            _decide(waiting, "accepted", decider, reason)
            waiting.version = outcome.version

        return replace(await plan_deltas(session, playbook), change="proposal", settle=settle)

    return await change_playbook(runtime, tenant_id, place, plan, author, Terms(dry=dry))


async def reject(
    runtime: Runtime,
    tenant_id: UUID,
    place: Place,
    proposal_id: UUID,
    decider: str,
    reason: str | None = None,
) -> None:
    """Put a proposal away. Raises `NotFound`, and `Conflict` when it was decided before."""
    async with runtime.sessions.tenant(tenant_id) as session:
        playbook = await find_playbook(session, place)
        _decide(await _waiting(session, playbook, proposal_id), "rejected", decider, reason)


def _decide(proposal: Proposal, state: str, decider: str, reason: str | None) -> None:
    proposal.state, proposal.decided_by, proposal.decided_reason = state, decider, reason
    proposal.decided_at = datetime.now(UTC)


async def _waiting(session: AsyncSession, playbook: PlaybookRow, proposal_id: UUID) -> Proposal:
    proposal = await get_proposal(session, playbook.scope, proposal_id, lock=True)
    if proposal is None:
        raise NotFound("There is no such proposal.")
    if proposal.state != "waiting":
        raise Conflict(f"This proposal was {proposal.state}.", state=proposal.state)
    return proposal
