"""The time slider: a playbook as of any version or time, the difference of two, and restore."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import RedirectResponse

from memory_api.api.deps import Reader, RuntimeDep, Session, Writer
from memory_api.console.forms import validate_body
from memory_api.console.pages import ConsoleRoute, CurrentVisit, Form
from memory_api.console.paging import PlaceQuery
from memory_api.console.queries import count_waiting
from memory_api.console.rendering import render_page
from memory_api.console.timeline.moment import VERSIONS_OF_PAGE, compare_diff, load_moment
from memory_api.core.errors import InvalidRequest
from memory_api.playbooks.history.router import restore_playbook
from memory_api.playbooks.history.schemas import RestorePlaybookRequest
from memory_api.playbooks.ref import PlaybookRef

router = APIRouter(
    prefix="/console/playbooks/{name}", route_class=ConsoleRoute, include_in_schema=False
)

Moment = Annotated[str, Query(max_length=64, description="A version number or a time.")]


@router.get("/timeline")
async def show_timeline(
    name: str,
    visit: CurrentVisit,
    session: Session,
    caller: Reader,
    place: PlaceQuery,
    at: Moment = "",
    since: Moment = "",
    done: str = "",
) -> Response:
    """`at` is the moment that is shown (default: now); `since` is the one that it is compared with
    (default: the version before).
    """
    ref = PlaybookRef(visit.project, name)
    # A comparison of distant versions takes long and loads later.
    is_later = bool(since) and not (visit.later or visit.is_partial)
    first = "" if is_later else since.strip()
    moment = await load_moment(session, ref, at.strip(), first, place.cursor)
    return render_page(
        visit,
        "timeline/moment.html" if visit.is_partial else "timeline/timeline.html",
        name=name,
        moment=moment,
        waiting_count=await count_waiting(session, visit.project, name),
        since=since.strip() or moment.compared_with,
        is_later=is_later,
        paging=place.followed_by(moment.next_cursor, moment.playbook.version, VERSIONS_OF_PAGE),
        done=done,
    )


@router.post("/restore")
async def restore(
    name: str, visit: CurrentVisit, runtime: RuntimeDep, caller: Writer, form: Form
) -> Response:
    """First shows what would change; `confirmed` restores the version, unless the playbook changed
    meanwhile.
    """
    version = form.integer("version")
    if version is None:
        raise InvalidRequest("Choose a version to restore.", field="version")
    body = validate_body(
        RestorePlaybookRequest,
        {
            "project_id": visit.project,
            "version": version,
            "reason": form.text("reason") or None,
        },
    )
    is_confirmed = form.is_set("confirmed")
    if_match = form.integer("current") if is_confirmed else None
    outcome = await restore_playbook(
        name, body, Response(), runtime, caller, if_match, not is_confirmed
    )
    if not is_confirmed:
        return render_page(
            visit,
            "timeline/restore.html",
            name=name,
            version=version,
            current=outcome.version,
            comparisons=compare_diff(outcome.diff) if outcome.diff else (),
            reason=form.text("reason"),
        )
    return RedirectResponse(visit.link("playbooks", name, "timeline", done="restored"), 303)
