"""Playbooks over HTTP: whole ones, their edits, how they evolved, and handing them out."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from apps.memory_api.api_route import SecretlessRoute
from apps.memory_api.core.body import read
from apps.memory_api.core.errors import Invalid
from apps.memory_api.core.openapi import example
from apps.memory_api.core.schemas import Page
from apps.memory_api.deps import (
    Cleaned,
    Limit,
    ProjectQuery,
    Reader,
    RuntimeDep,
    Session,
    Writer,
)
from apps.memory_api.playbook import wire
from apps.memory_api.playbook.bullet_router import router as bullets
from apps.memory_api.playbook.configure import configure
from apps.memory_api.playbook.edit import delete_playbook, find_playbook
from apps.memory_api.playbook.effect_router import router as effects
from apps.memory_api.playbook.formats import Form, export_bytes
from apps.memory_api.playbook.history import read_as_of, read_moment
from apps.memory_api.playbook.history_router import router as history
from apps.memory_api.playbook.import_export import put_playbook, read_playbook
from apps.memory_api.playbook.proposal_router import router as proposals
from apps.memory_api.playbook.queries import list_playbooks
from apps.memory_api.playbook.requests import (
    IfMatch,
    author_of,
    decode_cursor,
    encode_cursor,
    lifespan,
    tag,
)
from apps.memory_api.playbook.review import Proposed, propose
from apps.memory_api.playbook.rows import Place, sections_of
from apps.memory_api.playbook.serve_router import router as serving
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.playbook.wire import PlaybookView
from apps.memory_api.playbook.wire_history import Imported, show_diff
from apps.memory_api.tenants.identity import Access

router = APIRouter(
    prefix="/api/v1/playbooks", tags=["playbooks"], route_class=SecretlessRoute, lifespan=lifespan
)

BULLETS = {
    "bullets": [
        {"id": "shr-00001", "section": "strategies_and_hard_rules",
         "content": "Look up an order before changing it.", "helpful": 3, "harmful": 0}
    ]
}  # fmt: skip
ACE = {"text/plain": "ACE's lines: `[id] helpful=H harmful=M :: text` under `## SECTION`."}
DELTAS = {
    "deltas": [
        {"type": "ADD", "section": "MISTAKES TO AVOID",
         "content": "Do not retry a payment that timed out before looking it up.",
         "reasoning": "Two customers were charged twice."}
    ],
    "apply": True,
}  # fmt: skip
SETTINGS = {"token_budget": 2000, "max_bullets": 500}
DOCUMENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The playbook; ACE's form is text.",
        "content": {
            "application/json": {"schema": {"type": "object"}, "example": BULLETS},
            "text/plain": {"schema": {"type": "string"}},
        },
    }
}
HELD: dict[int | str, dict[str, Any]] = {
    202: {"description": "Held for review.", "model": wire.DeltasAnswer}
}

Reason = Annotated[str | None, Query(max_length=2_000)]


def show(playbook: PlaybookRow) -> PlaybookView:
    names = set(PlaybookView.model_fields) - {"sections"}
    sections = list(sections_of(playbook))
    return PlaybookView(sections=sections, **{name: getattr(playbook, name) for name in names})


@router.get("")
async def list_all(
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    deleted: bool = False,
    cursor: str | None = None,
    limit: Limit = 50,
) -> Page[PlaybookView]:
    """The playbooks of a project, by name; with `deleted` those that `restore` can bring back."""
    behind = decode_cursor(cursor)
    project = caller.project(project_id)
    rows = await list_playbooks(session, project, deleted=deleted, behind=behind, limit=limit)
    shown = rows[:limit]
    following = encode_cursor(shown[-1].name) if len(rows) > limit else None
    return Page[PlaybookView](items=[show(row) for row in shown], next_cursor=following)


@router.get("/{name}", response_model=None, responses=DOCUMENT)
async def read_one(
    name: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    as_of: str | None = None,
    form: Form = "spec2",
) -> Response:
    """A playbook with its bullets, as spec 2's JSON (default), spec 4's, or ACE's lines.

    `as_of` is a version or a time: the texts are of then, the counters of today. The ETag is the
    version, for If-Match.
    """
    place = Place(caller.project(project_id), name)
    row = await find_playbook(session, place, deleted=as_of is not None)
    if as_of is None:
        version, playbook = row.version, await read_playbook(session, row)
    else:
        version, playbook = await read_as_of(session, row, read_moment(as_of, "as_of"))
    try:
        body = export_bytes(playbook, form, sections_of(row))
    except ValueError as error:
        raise Invalid(str(error), field="form") from error
    response = Response(body, media_type="text/plain" if form == "ace" else "application/json")
    tag(response, version)
    return response


@router.put("/{name}", openapi_extra=example(BULLETS, also=ACE))
async def put_one(
    name: str,
    request: Request,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    project_id: ProjectQuery,
    if_match: IfMatch,
    apply: Annotated[bool, Query(description=wire.APPLY)] = True,
    reason: Reason = None,
) -> Imported:
    """Make the playbook what the body says: spec 2's JSON, spec 4's playbook.json, or ACE's lines.

    Bullets that are not in it go; a restore brings them back. What is no playbook changes nothing
    and is a 422 that names the place. With `apply=false` nothing is written.
    """
    place = Place(caller.project(project_id), name)
    text = (await read(request)).raw
    author = author_of(caller, reason)
    outcome, notes = await put_playbook(
        runtime, caller.tenant_id, place, text, author, if_match=if_match, dry=not apply
    )
    tag(response, outcome.version)
    return Imported(
        version=outcome.version,
        active=outcome.active,
        notes=list(notes),
        applied=apply,
        diff=show_diff(outcome.diff) if outcome.diff else None,
    )


@router.patch("/{name}", openapi_extra=example(SETTINGS))
async def set_up(
    name: str,
    body: wire.PlaybookPatch,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    if_match: IfMatch,
) -> PlaybookView:
    """Sections, limits, and whether deltas wait for a person (`review`, an admin's to say)."""
    if "review" in body.model_fields_set:
        caller.require(Access.ADMIN)
    place = Place(caller.project(body.project_id), name)
    author = author_of(caller, body.reason)
    await configure(runtime, caller.tenant_id, place, body.fields(), author, if_match=if_match)
    async with runtime.sessions.tenant(caller.tenant_id) as session:
        playbook = await find_playbook(session, place)
    tag(response, playbook.version)
    return show(playbook)


@router.delete("/{name}", status_code=204)
async def delete_one(
    name: str,
    runtime: RuntimeDep,
    caller: Writer,
    project_id: ProjectQuery,
    if_match: IfMatch,
    reason: Reason = None,
) -> None:
    """Take a playbook and its bullets away; `restore` brings both back."""
    place = Place(caller.project(project_id), name)
    author = author_of(caller, reason)
    await delete_playbook(runtime, caller.tenant_id, place, author, if_match=if_match)


@router.post("/{name}/deltas", responses=HELD, openapi_extra=example(DELTAS))
async def edit(
    name: str,
    body: wire.DeltasIn,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    if_match: IfMatch,
    cleaned: Cleaned,
) -> wire.DeltasAnswer:
    """ADD, UPDATE, MERGE, DELETE, KEEP: all or none, one version.

    A delta that makes no sense is a 422 that names it. One that is refused (a pinned bullet, the
    same words again) is `rejected` in the results and the rest goes on. With `apply: false` nothing
    is written. Where the playbook asks for review, they are held (202).
    """
    place = Place(caller.project(body.project_id), name)
    done = await propose(
        runtime,
        caller.tenant_id,
        place,
        body.deltas,
        author_of(caller, body.reason),
        if_match=if_match,
        dry=not body.apply,
    )
    tag(response, done.version)
    answer = wire.DeltasAnswer(
        version=done.version, applied=False, results=list(done.results), cleaned=cleaned
    )
    if isinstance(done, Proposed):
        response.status_code = 202
        return answer.model_copy(update={"held": True, "proposal_id": done.proposal_id})
    return answer.model_copy(update={"applied": body.apply})


for part in (serving, history, effects, bullets, proposals):
    router.include_router(part)
