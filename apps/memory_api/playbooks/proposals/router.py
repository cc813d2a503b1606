"""Proposals over HTTP: list, accept, reject."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response

from memory_api.api.deps import (
    Admin,
    CursorQuery,
    Limit,
    ProjectQuery,
    Reader,
    RuntimeDep,
    Session,
)
from memory_api.api.problems import problems
from memory_api.api.route import RedactingRoute
from memory_api.core.pagination import to_page
from memory_api.core.schemas import body_example
from memory_api.playbooks import queries
from memory_api.playbooks.deps import set_etag
from memory_api.playbooks.editing.edits import require_playbook
from memory_api.playbooks.proposals import review
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.schemas import (
    ApplyDeltasResponse,
    DecideProposalRequest,
    DryRun,
    ProposalPage,
    ProposalState,
)

router = APIRouter(
    prefix="/api/v1/playbooks/{playbook}/proposals", tags=["playbooks"], route_class=RedactingRoute
)

DECISION = {"reason": "Checked against the refund policy."}


@router.get("", summary="List proposals", responses=problems(404))
async def list_proposals(
    playbook: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    cursor: CursorQuery,
    state: Annotated[ProposalState, Query(description="Only proposals in this state.")] = "waiting",
    limit: Limit = 50,
) -> ProposalPage:
    """Lists the proposals of a playbook in one state, newest first."""
    row = await require_playbook(session, PlaybookRef(caller.resolve_project(project_id), playbook))
    rows = await queries.list_proposals(session, row.scope_id, state, cursor, limit)
    return to_page(ProposalPage, rows, limit)


@router.post(
    "/{proposal_id}/accept",
    summary="Accept a proposal",
    responses=problems(404, 409, "playbook_full"),
    openapi_extra=body_example(DECISION),
)
async def accept_proposal(
    playbook: str,
    proposal_id: UUID,
    body: DecideProposalRequest,
    response: Response,
    runtime: RuntimeDep,
    caller: Admin,
    dry_run: DryRun = False,
) -> ApplyDeltasResponse:
    """Applies the deltas of a proposal as one version. Needs an admin key.

    If the deltas no longer fit the playbook, answers 422 and the proposal stays open. Answers 409
    if it was decided before.
    """
    place = PlaybookRef(caller.resolve_project(body.project_id), playbook)
    outcome = await review.accept_proposal(
        runtime,
        caller.tenant_id,
        place,
        proposal_id,
        caller.actor,
        body.reason,
        dry_run=dry_run,
    )
    set_etag(response, outcome.version)
    results = list(outcome.results)
    return ApplyDeltasResponse(version=outcome.version, applied=not dry_run, results=results)


@router.post(
    "/{proposal_id}/reject",
    status_code=204,
    summary="Reject a proposal",
    responses=problems(404, 409),
    openapi_extra=body_example(DECISION),
)
async def reject_proposal(
    playbook: str,
    proposal_id: UUID,
    body: DecideProposalRequest,
    runtime: RuntimeDep,
    caller: Admin,
) -> None:
    """Rejects a proposal; its deltas are not applied. Needs an admin key."""
    place = PlaybookRef(caller.resolve_project(body.project_id), playbook)
    await review.reject_proposal(
        runtime, caller.tenant_id, place, proposal_id, caller.actor, body.reason
    )
