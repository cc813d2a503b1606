"""What waits for a person in a playbook: proposals and quarantined bullets."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from memory_api.api.deps import Admin, CursorQuery, Reader, RuntimeDep
from memory_api.console.forms import validate_body
from memory_api.console.pages import ConsoleRoute, CurrentVisit, Form
from memory_api.console.rendering import render_page
from memory_api.console.review.waiting import load_quarantined, load_waiting_proposals
from memory_api.core.errors import InvalidRequest
from memory_api.playbooks.proposals.router import accept_proposal, reject_proposal
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.schemas import DecideProposalRequest

router = APIRouter(
    prefix="/console/playbooks/{name}/review", route_class=ConsoleRoute, include_in_schema=False
)


@router.get("")
async def show_review(
    name: str,
    visit: CurrentVisit,
    runtime: RuntimeDep,
    caller: Reader,
    cursor: CursorQuery,
    done: str = "",
) -> Response:
    ref = PlaybookRef(visit.project, name)
    waiting = await load_waiting_proposals(runtime, caller.tenant_id, ref, cursor)
    bullets = await load_quarantined(runtime, caller.tenant_id, ref)
    return render_page(
        visit,
        "review/review.html",
        name=name,
        waiting=waiting,
        bullets=bullets,
        is_first=cursor is None,
        done=done,
    )


@router.post("/{proposal_id}")
async def decide_proposal(
    name: str,
    proposal_id: UUID,
    visit: CurrentVisit,
    runtime: RuntimeDep,
    caller: Admin,
    form: Form,
) -> Response:
    body = validate_body(
        DecideProposalRequest,
        {"project_id": visit.project, "reason": form.text("reason") or None},
    )
    decision = form.text("decision")
    if decision == "accept":
        await accept_proposal(name, proposal_id, body, Response(), runtime, caller)
    elif decision == "reject":
        await reject_proposal(name, proposal_id, body, runtime, caller)
    else:
        raise InvalidRequest("`decision` must be `accept` or `reject`.", field="decision")
    return RedirectResponse(visit.link("playbooks", name, "review", done=f"{decision}ed"), 303)
