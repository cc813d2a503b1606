"""The playbooks of a project; one playbook with its bullets, a search in it, and a new bullet."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import RedirectResponse

from memory_api.api.deps import Reader, RuntimeDep, Session, Writer
from memory_api.console.forms import SentForm, validate_body
from memory_api.console.overview.summary import load_trends
from memory_api.console.pages import ConsoleRoute, CurrentVisit, Form
from memory_api.console.paging import PlaceQuery
from memory_api.console.queries import (
    count_bullets_by_verdict,
    count_rows,
    count_waiting,
    list_harmful_bullets,
    sum_verdicts,
)
from memory_api.console.rendering import render_page
from memory_api.console.visit import Visit
from memory_api.core.errors import HanseiError
from memory_api.core.pagination import to_page
from memory_api.memories.schemas import SettableStatus
from memory_api.playbooks import queries
from memory_api.playbooks.bullet_rows import BulletOrder, bullet_cursor, to_bullets
from memory_api.playbooks.bullets.router import (
    bullet_response,
    create_bullet,
)
from memory_api.playbooks.bullets.schemas import BulletPage, CreateBulletRequest
from memory_api.playbooks.editing.edits import require_playbook
from memory_api.playbooks.queries import count_reviews
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.retrieval.retrieve import DEFAULT_TOP_K, RenderOptions, preview_render
from memory_api.playbooks.retrieval.schemas import RenderPlaybookRequest
from memory_api.playbooks.router import list_playbooks, update_playbook
from memory_api.playbooks.schemas import PlaybookSummary, UpdatePlaybookRequest
from memory_api.runtime import Runtime

router = APIRouter(prefix="/console/playbooks", route_class=ConsoleRoute, include_in_schema=False)

PAGE_SIZE = 50
SHOWN_HITS = 20
SHOWN_HARMFUL = 5
Text = Annotated[str, Query(max_length=10_000)]


@router.get("")
async def show_playbooks(
    visit: CurrentVisit, session: Session, caller: Reader, place: PlaceQuery
) -> Response:
    page = await list_playbooks(session, caller, visit.project, place.cursor, limit=PAGE_SIZE)
    reviews = {r.name: r for r in await count_reviews(session, visit.project)}
    paging = place.followed_by(page.next_cursor, len(reviews), PAGE_SIZE)
    return render_page(
        visit,
        "playbooks/list.html",
        page=page,
        reviews=reviews,
        trends=await load_trends(session, visit.project),
        verdicts=await sum_verdicts(session, visit.project),
        paging=paging,
    )


@router.get("/{name}")
async def show_playbook(
    name: str,
    visit: CurrentVisit,
    session: Session,
    caller: Reader,
    place: PlaceQuery,
    section: Text = "",
    status: SettableStatus | None = None,
    tag: Text = "",
    words: Text = "",
    sort: BulletOrder = BulletOrder.KEY,
) -> Response:
    playbook = await require_playbook(session, PlaybookRef(visit.project, name))
    words = words.strip()
    query = await queries.select_in_section(
        session, playbook, section or None, status=status, tag=tag or None, words=words
    )
    rows = await queries.list_bullets(
        session, query, order=sort, cursor=place.cursor, limit=PAGE_SIZE
    )
    page = to_page(BulletPage, rows, PAGE_SIZE, bullet_response, partial(bullet_cursor, order=sort))
    filters = {"section": section, "status": status or "", "tag": tag, "words": words}
    is_whole = place.is_first and not any(filters.values()) and sort is BulletOrder.KEY
    harmful = await list_harmful_bullets(session, playbook.scope_id, SHOWN_HARMFUL)
    return render_page(
        visit,
        "playbooks/bullets.html",
        harmful=harmful if is_whole else (),
        playbook=PlaybookSummary.from_row(playbook),
        page=page,
        counts=await count_bullets_by_verdict(session, playbook.scope_id),
        waiting_count=await count_waiting(session, visit.project, name),
        filters=filters,
        sort=sort if sort is not BulletOrder.KEY else "",
        paging=place.followed_by(page.next_cursor, await count_rows(session, query), PAGE_SIZE),
    )


@router.get("/{name}/search")
async def show_search(
    name: str,
    visit: CurrentVisit,
    runtime: RuntimeDep,
    session: Session,
    caller: Reader,
    q: Text = "",
    top_k: Annotated[int, Query(ge=1, le=DEFAULT_TOP_K)] = SHOWN_HITS,
) -> Response:
    """What an agent would get: each bullet that was considered, how well it matches, and the prompt
    block. It is not counted as a retrieval.
    """
    body = validate_body(RenderPlaybookRequest, {"query_text": q})
    options = RenderOptions(body.query_text, top_k=body.top_k)
    ref = PlaybookRef(visit.project, name)
    preview = await preview_render(runtime, caller.tenant_id, ref, options)
    shown = preview.decisions[:top_k]
    bullets = to_bullets(hit.memory._asdict() for hit, _ in shown)
    scope = (await require_playbook(session, ref)).scope_id
    quarantined = queries.select_bullets(session, scope, status="quarantined")
    waiting = await queries.list_bullets(session, quarantined, limit=SHOWN_HITS)
    return render_page(
        visit,
        "playbooks/hits.html" if visit.is_partial else "playbooks/search.html",
        name=name,
        waiting_count=await count_waiting(session, visit.project, name),
        q=q,
        block=preview.block,
        considered_count=len(preview.decisions),
        fitting_count=sum(
            hit.match in ("strong", "weak") and decision == "rendered"
            for hit, decision in preview.decisions
        ),
        quarantined=[row.key for row in waiting[:SHOWN_HITS]],
        hits=[
            (bullet, hit, decision) for bullet, (hit, decision) in zip(bullets, shown, strict=True)
        ],
    )


@router.get("/{name}/new")
async def show_new_bullet(
    name: str, visit: CurrentVisit, runtime: RuntimeDep, caller: Writer
) -> Response:
    return await _new_bullet_page(visit, runtime, name, SentForm({}))


@router.post("/{name}/new")
async def add_new_bullet(
    name: str, visit: CurrentVisit, runtime: RuntimeDep, caller: Writer, form: Form
) -> Response:
    try:
        body = validate_body(
            CreateBulletRequest,
            {
                "project_id": visit.project,
                "content": form.text("content"),
                "section": form.text("section") or "OTHERS",
                "when_to_use": form.text("when_to_use"),
                "tags": form.words("tags"),
                "pinned": form.is_set("pinned"),
                "reason": form.text("reason") or None,
            },
        )
        made = await create_bullet(name, body, Response(), runtime, caller, None, False)
    except HanseiError as error:
        return await _new_bullet_page(visit, runtime, name, form, error)
    target = visit.link("playbooks", name, "bullets", made.bullet.id, done="created")
    return RedirectResponse(target, 303)


@router.get("/{name}/focus")
async def show_focus(
    name: str, visit: CurrentVisit, runtime: RuntimeDep, caller: Writer
) -> Response:
    return await _focus_page(visit, runtime, name)


@router.post("/{name}/focus")
async def change_focus(
    name: str, visit: CurrentVisit, runtime: RuntimeDep, caller: Writer, form: Form
) -> Response:
    try:
        fields = {"project_id": visit.project, "focus": form.text("focus") or None}
        body = validate_body(
            UpdatePlaybookRequest, fields | {"reason": form.text("reason") or None}
        )
        await update_playbook(name, body, Response(), runtime, caller, None)
    except HanseiError as error:
        return await _focus_page(visit, runtime, name, form, error)
    return RedirectResponse(visit.link("playbooks", name), 303)


async def _focus_page(
    visit: Visit,
    runtime: Runtime,
    name: str,
    form: SentForm | None = None,
    error: HanseiError | None = None,
) -> Response:
    async with runtime.sessions.for_tenant(visit.caller.tenant_id) as session:
        playbook = await require_playbook(session, PlaybookRef(visit.project, name))
    return render_page(
        visit,
        "playbooks/focus.html",
        error.status if error else 200,
        name=name,
        focus=form.text("focus") if form else playbook.focus or "",
        form=form or SentForm({}),
        error=error,
    )


async def _new_bullet_page(
    visit: Visit, runtime: Runtime, name: str, form: SentForm, error: HanseiError | None = None
) -> Response:
    async with runtime.sessions.for_tenant(visit.caller.tenant_id) as session:
        playbook = await require_playbook(session, PlaybookRef(visit.project, name))
    return render_page(
        visit,
        "playbooks/new.html",
        error.status if error else 200,
        name=name,
        sections=PlaybookSummary.from_row(playbook).sections,
        form=form,
        error=error,
    )
