"""Deltas that wait for a person, over HTTP."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from fastapi import APIRouter, Response

from apps.memory_api.api_route import SecretlessRoute
from apps.memory_api.core.cursor import page
from apps.memory_api.core.openapi import example
from apps.memory_api.core.schemas import Page
from apps.memory_api.deps import (
    Admin,
    CursorQuery,
    Limit,
    ProjectQuery,
    Reader,
    RuntimeDep,
    Session,
)
from apps.memory_api.playbook.edit import find_playbook
from apps.memory_api.playbook.queries import list_proposals
from apps.memory_api.playbook.requests import tag
from apps.memory_api.playbook.review import accept, deltas_of, reject
from apps.memory_api.playbook.rows import Place
from apps.memory_api.playbook.tables import Proposal
from apps.memory_api.playbook.wire import AcceptIn, DecideIn, DeltasAnswer, ProposalView

router = APIRouter(prefix="/{name}/proposals", route_class=SecretlessRoute)

DECISION = {"reason": "Checked against the refund policy."}


def show(row: Proposal) -> ProposalView:
    names = set(ProposalView.model_fields) - {"deltas"}
    return ProposalView(deltas=deltas_of(row), **{name: getattr(row, name) for name in names})


@router.get("")
async def list_all(
    name: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    cursor: CursorQuery,
    state: Literal["waiting", "accepted", "rejected"] = "waiting",
    limit: Limit = 50,
) -> Page[ProposalView]:
    """Deltas that were held for review, newest first."""
    playbook = await find_playbook(session, Place(caller.project(project_id), name))
    rows = await list_proposals(session, playbook.scope, state, cursor, limit)
    return page(rows, limit, show)


@router.post("/{proposal_id}/accept", openapi_extra=example(DECISION))
async def take(
    name: str,
    proposal_id: UUID,
    body: AcceptIn,
    response: Response,
    runtime: RuntimeDep,
    caller: Admin,
) -> DeltasAnswer:
    """Apply a proposal, as one version. When it does not fit any more (422) it waits on. With
    `apply: false` nothing is written.
    """
    place = Place(caller.project(body.project_id), name)
    outcome = await accept(
        runtime,
        caller.tenant_id,
        place,
        proposal_id,
        caller.actor,
        body.reason,
        dry=not body.apply,
    )
    tag(response, outcome.version)
    results = list(outcome.results)
    return DeltasAnswer(version=outcome.version, applied=body.apply, results=results)


@router.post("/{proposal_id}/reject", status_code=204, openapi_extra=example(DECISION))
async def refuse(
    name: str, proposal_id: UUID, body: DecideIn, runtime: RuntimeDep, caller: Admin
) -> None:
    """Put a proposal away."""
    place = Place(caller.project(body.project_id), name)
    await reject(runtime, caller.tenant_id, place, proposal_id, caller.actor, body.reason)
