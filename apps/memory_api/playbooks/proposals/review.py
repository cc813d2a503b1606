"""Proposals: deltas that wait for a person, if the playbook requires review."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.errors import Conflict, NotFound
from memory_api.core.ids import new_id
from memory_api.playbooks.editing.edits import (
    apply_deltas_to_playbook,
    plan_deltas,
    require_playbook,
)
from memory_api.playbooks.editing.plan import (
    ChangeConditions,
    ChangePlan,
    ChangeResult,
    DeltaSources,
)
from memory_api.playbooks.editing.transaction import change_playbook
from memory_api.playbooks.models import DeltaContextItem, DeltaResult
from memory_api.playbooks.queries import get_playbook, get_proposal
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.tables import PlaybookRow, ProposalRow
from memory_api.runtime import Runtime
from memory_api.tenants.audit_log import record_audit_event
from memory_api.webhooks.outbox import WebhookEvent, add_event


@dataclass(frozen=True)
class NewProposal:
    """A new proposal, with the results that its deltas would have at this version."""

    proposal_id: UUID
    version: int
    results: Sequence[DeltaResult]


async def apply_or_propose(
    runtime: Runtime,
    tenant_id: UUID,
    ref: PlaybookRef,
    deltas: Sequence[DeltaContextItem],
    author: ChangeAuthor,
    *,
    sources: DeltaSources | None = None,
    if_match: int | None = None,
    dry_run: bool = False,
) -> ChangeResult | NewProposal:
    """Applies deltas, or stores them as a proposal if `review_mode` is `required`. A dry run does
    neither and returns the results that the deltas would have.

    Raises `InvalidRequest` with the index of the delta (also for an ADD to an unknown section),
    `VersionMismatch` and `PlaybookFull`.
    """
    async with runtime.sessions.for_tenant(tenant_id) as session:
        playbook = await get_playbook(session, ref)
        if (
            playbook is not None
            and playbook.deleted_at is None
            and playbook.review_mode == "required"
        ):
            ChangeConditions(if_match).check(playbook, ChangeAuthor())
            plan = await plan_deltas(deltas, {}, require_sections=True)(session, playbook)
            if dry_run:
                return ChangeResult(playbook.version, False, playbook.active_count, plan.results)
            proposal = add_proposal(session, playbook, deltas, author, sources or {})
            return NewProposal(proposal.id, playbook.version, plan.results)
    return await apply_deltas_to_playbook(
        runtime, tenant_id, ref, deltas, author, sources=sources, if_match=if_match, dry_run=dry_run
    )


def add_proposal(
    session: AsyncSession,
    playbook: PlaybookRow,
    deltas: Sequence[DeltaContextItem],
    author: ChangeAuthor,
    sources: DeltaSources,
) -> ProposalRow:
    proposal = ProposalRow(
        tenant_id=current_tenant_id(session),
        id=new_id(),
        scope_id=playbook.scope_id,
        deltas=[delta.model_dump(mode="json", exclude_defaults=True) for delta in deltas],
        sources={str(index): [str(source) for source in ids] for index, ids in sources.items()},
        reason=author.reason,
        actor=author.actor,
        run_id=author.run_id,
    )
    session.add(proposal)
    data = {"playbook": playbook.name, "proposal_id": str(proposal.id), "reason": author.reason}
    add_event(session, WebhookEvent("proposal.created", playbook.project_id, data))
    return proposal


def proposal_deltas(proposal: ProposalRow) -> list[DeltaContextItem]:
    return [DeltaContextItem.model_validate(delta) for delta in proposal.deltas]


async def accept_proposal(
    runtime: Runtime,
    tenant_id: UUID,
    ref: PlaybookRef,
    proposal_id: UUID,
    decider: str,
    reason: str | None = None,
    *,
    dry_run: bool = False,
) -> ChangeResult:
    """Applies a proposal as one version. The author of the version is the author of the proposal;
    `decider` is stored with the proposal.

    Raises `NotFound`, `Conflict` if the proposal is already decided, and `InvalidRequest` if its
    deltas no longer fit the playbook. The proposal then continues to wait.
    """
    async with runtime.sessions.for_tenant(tenant_id) as session:
        playbook = await require_playbook(session, ref)
        proposal = await _lock_waiting_proposal(session, playbook, proposal_id)
    author = ChangeAuthor(proposal.actor, reason or proposal.reason, proposal.run_id)
    sources = {int(i): [UUID(source) for source in ids] for i, ids in proposal.sources.items()}
    planner = plan_deltas(proposal_deltas(proposal), sources)

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> ChangePlan:
        waiting = await _lock_waiting_proposal(session, playbook, proposal_id)

        async def accept(result: ChangeResult) -> None:
            await _decide(session, ref, waiting, "accepted", decider, reason)
            waiting.accepted_version = result.version

        planned = await planner(session, playbook)
        return replace(planned, change_type="proposal", after_write=accept)

    return await change_playbook(
        runtime, tenant_id, ref, plan, author, ChangeConditions(dry_run=dry_run)
    )


async def reject_proposal(
    runtime: Runtime,
    tenant_id: UUID,
    ref: PlaybookRef,
    proposal_id: UUID,
    decider: str,
    reason: str | None = None,
) -> None:
    """Rejects a proposal. Raises `NotFound`, and `Conflict` if it is already decided."""
    async with runtime.sessions.for_tenant(tenant_id) as session:
        playbook = await require_playbook(session, ref)
        proposal = await _lock_waiting_proposal(session, playbook, proposal_id)
        await _decide(session, ref, proposal, "rejected", decider, reason)


async def _decide(
    session: AsyncSession,
    ref: PlaybookRef,
    proposal: ProposalRow,
    state: str,
    decider: str,
    reason: str | None,
) -> None:
    proposal.state, proposal.decided_by, proposal.decision_reason = state, decider, reason
    proposal.decided_at = datetime.now(UTC)
    details = {"project_id": ref.project_id, "playbook": ref.name, "reason": reason}
    await record_audit_event(session, f"proposal.{state}", f"proposal:{proposal.id}", details)


async def _lock_waiting_proposal(
    session: AsyncSession, playbook: PlaybookRow, proposal_id: UUID
) -> ProposalRow:
    proposal = await get_proposal(session, playbook.scope_id, proposal_id, lock=True)
    if proposal is None:
        raise NotFound("Proposal not found.")
    if proposal.state != "waiting":
        raise Conflict(f"The proposal is already {proposal.state}.", state=proposal.state)
    return proposal
