"""What waits for a person in a playbook: proposals and quarantined bullets."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from hansei.nothing_learned import CONFIRMATION_RULE
from memory_api.api.deps import Admin, Reader, RuntimeDep, Writer
from memory_api.console.forms import validate_body
from memory_api.console.pages import ConsoleRoute, CurrentVisit, Form
from memory_api.console.paging import PlaceQuery
from memory_api.console.queries import count_waiting
from memory_api.console.rendering import render_page
from memory_api.console.review.waiting import (
    MAX_PROPOSALS,
    MAX_QUARANTINED,
    load_quarantined,
    load_waiting_proposals,
)
from memory_api.core.errors import InvalidRequest
from memory_api.playbooks.bullets.router import delete_bullet, update_bullet
from memory_api.playbooks.bullets.schemas import UpdateBulletRequest
from memory_api.playbooks.proposals.router import accept_proposal, reject_proposal
from memory_api.playbooks.queries import count_reviews
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
    place: PlaceQuery,
    done: str = "",
) -> Response:
    ref = PlaybookRef(visit.project, name)
    waiting = await load_waiting_proposals(runtime, caller.tenant_id, ref, place.cursor)
    bullets = await load_quarantined(runtime, caller.tenant_id, ref)
    async with runtime.sessions.for_tenant(caller.tenant_id) as session:
        waiting_count = await count_waiting(session, visit.project, name)
        counts = await count_reviews(session, visit.project)
    total = next((row.proposal_count for row in counts if row.name == name), 0)
    return render_page(
        visit,
        "review/review.html",
        name=name,
        waiting=waiting,
        bullets=bullets,
        confirmation_rule=CONFIRMATION_RULE,
        waiting_count=waiting_count,
        paging=place.followed_by(waiting.next_cursor, total, MAX_PROPOSALS),
        done=done,
    )


@router.post("/bullets")
async def decide_bullets(
    name: str, visit: CurrentVisit, runtime: RuntimeDep, caller: Writer, form: Form
) -> Response:
    """Confirm, archive or delete the checked bullets."""
    keys = list(dict.fromkeys(form.texts("bullet")))[:MAX_QUARANTINED]
    if not keys:
        raise InvalidRequest("Check at least one bullet.", field="bullet")
    reason = form.text("reason")[:2_000]
    if form.text("status") == "deleted" and not reason:
        raise InvalidRequest("Enter a reason. It becomes part of the history.", field="reason")
    for key in keys:
        if form.text("status") == "deleted":
            await delete_bullet(name, key, runtime, caller, visit.project, None, reason)
        else:
            values = {"project_id": visit.project, "reason": reason or None}
            body = validate_body(UpdateBulletRequest, values | {"status": form.text("status")})
            await update_bullet(name, key, body, Response(), runtime, caller, None, False)
    return RedirectResponse(visit.link("playbooks", name, "review", done="changed"), 303)


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
