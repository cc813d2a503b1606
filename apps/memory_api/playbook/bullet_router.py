"""Single bullets over HTTP, the verdicts on them, and where they come from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from apps.memory_api.api_route import SecretlessRoute
from apps.memory_api.core.cursor import page
from apps.memory_api.core.openapi import example
from apps.memory_api.core.schemas import Page
from apps.memory_api.deps import (
    Cleaned,
    CursorQuery,
    Limit,
    ProjectQuery,
    Reader,
    RuntimeDep,
    Session,
    Writer,
)
from apps.memory_api.memory.tables import Memory
from apps.memory_api.playbook.edit import (
    add_bullet,
    delete_bullet,
    edit_bullet,
    find_playbook,
    no_bullet,
)
from apps.memory_api.playbook.evaluate import Verdict
from apps.memory_api.playbook.queries import (
    find_bullets,
    find_origins,
    list_bullets,
    list_verdicts,
    section_labels,
)
from apps.memory_api.playbook.requests import (
    IfMatch,
    Servings,
    author_of,
    decode_cursor,
    encode_cursor,
    tag,
)
from apps.memory_api.playbook.rows import Place, sections_of, to_bullet
from apps.memory_api.playbook.schemas import DeltaContextItem
from apps.memory_api.playbook.sections import spellings
from apps.memory_api.playbook.tables import BulletEvaluation, PlaybookRow
from apps.memory_api.playbook.vote import judge_of, vote
from apps.memory_api.playbook.wire import (
    BulletIn,
    BulletPatch,
    BulletStored,
    BulletView,
    EvaluationAnswer,
    EvaluationIn,
    EvaluationView,
)
from apps.memory_api.playbook.wire_history import Origin, Provenance

router = APIRouter(prefix="/{name}/bullets", route_class=SecretlessRoute)

NEW_BULLET = {
    "section": "MISTAKES TO AVOID",
    "content": "Do not close a ticket before the customer has answered.",
    "when_to_use": "closing tickets",
    "tags": ["support"],
}
PATCH = {"pinned": True, "reason": "Legal asked for it."}
KNOWN: dict[int | str, dict[str, Any]] = {
    200: {"description": "It was said before, or says something else now.",
          "model": EvaluationAnswer}
}  # fmt: skip
EVALUATION = {"tag": "helpful", "reason": "It kept the agent from charging twice."}


@router.get("")
async def list_all(
    name: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    section: Annotated[str | None, Query(max_length=128)] = None,
    status: Literal["active", "quarantined", "archived"] | None = None,
    tag: Annotated[str | None, Query(max_length=64)] = None,
    cursor: str | None = None,
    limit: Limit = 50,
) -> Page[BulletView]:
    """The bullets of a playbook, by key; those that are not deleted unless `status` says which.
    `section` in any spelling, or by slug.
    """
    playbook = await find_playbook(session, Place(caller.project(project_id), name))
    rows = await list_bullets(
        session,
        playbook.scope,
        sections=None if section is None else await _spelled(session, playbook, section),
        status=status,
        tag=tag,
        behind=decode_cursor(cursor),
        limit=limit,
    )
    shown = rows[:limit]
    following = encode_cursor(shown[-1].key or "") if len(rows) > limit else None
    return Page[BulletView](items=[show(row) for row in shown], next_cursor=following)


async def _spelled(session: Session, playbook: PlaybookRow, section: str) -> list[str]:
    """The names under which bullets of this section may stand."""
    defined = sections_of(playbook)
    names = {section, *(d.name for d in defined), *await section_labels(session)}
    return spellings(defined, names, section)


def show(row: Memory) -> BulletView:
    return BulletView(
        **to_bullet(row).model_dump(exclude={"confidence_score"}),
        memory_id=row.id,
        usefulness=row.usefulness,
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


@router.post("", status_code=201, openapi_extra=example(NEW_BULLET))
async def add(
    name: str,
    body: BulletIn,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    if_match: IfMatch,
    cleaned: Cleaned,
) -> BulletStored:
    """A bullet of your own; its key is made. Another with the same words is a 409."""
    place = Place(caller.project(body.project_id), name)
    texts = body.model_dump(
        include={"section", "content", "when_to_use", "title", "keywords", "tags"}
    )
    outcome = await add_bullet(
        runtime,
        caller.tenant_id,
        place,
        DeltaContextItem(type="ADD", **texts),
        author_of(caller, body.reason),
        pinned=body.pinned,
        if_match=if_match,
    )
    bullet = outcome.results[0].after
    assert bullet is not None, "added"
    tag(response, outcome.version)
    response.headers["Location"] = f"/api/v1/playbooks/{name}/bullets/{bullet.id}"
    return BulletStored(version=outcome.version, bullet=bullet, cleaned=cleaned)


@router.get("/{key}")
async def read(
    name: str, key: str, session: Session, caller: Reader, project_id: ProjectQuery
) -> BulletView:
    """One bullet. A key that was merged is a 404 that says into which."""
    return show(await _find(session, Place(caller.project(project_id), name), key))


async def _find(session: Session, place: Place, key: str) -> Memory:
    playbook = await find_playbook(session, place)
    row = (await find_bullets(session, playbook.scope, [key])).get(key)
    if row is None or row.status == "deleted":
        raise no_bullet(playbook, key)
    return row


@router.patch("/{key}", openapi_extra=example(PATCH))
async def patch(
    name: str,
    key: str,
    body: BulletPatch,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    if_match: IfMatch,
    cleaned: Cleaned,
) -> BulletStored:
    """Change the fields that are sent, of a pinned bullet too. What is quarantined or archived is
    kept and not served.
    """
    outcome = await edit_bullet(
        runtime,
        caller.tenant_id,
        Place(caller.project(body.project_id), name),
        key,
        body.fields(),
        author_of(caller, body.reason),
        if_match=if_match,
    )
    bullet = outcome.results[0].after
    assert bullet is not None, "edited"
    tag(response, outcome.version)
    return BulletStored(version=outcome.version, bullet=bullet, cleaned=cleaned)


@router.delete("/{key}", status_code=204)
async def delete(
    name: str,
    key: str,
    runtime: RuntimeDep,
    caller: Writer,
    project_id: ProjectQuery,
    if_match: IfMatch,
    reason: Annotated[str | None, Query(max_length=2_000)] = None,
) -> None:
    """Take a bullet out. Its history stays; its key is never given again."""
    place = Place(caller.project(project_id), name)
    author = author_of(caller, reason)
    await delete_bullet(runtime, caller.tenant_id, place, key, author, if_match=if_match)


@router.post(
    "/{key}/evaluations", status_code=201, responses=KNOWN, openapi_extra=example(EVALUATION)
)
async def judge(
    name: str,
    key: str,
    body: EvaluationIn,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    servings: Servings,
    cleaned: Cleaned,
) -> EvaluationAnswer:
    """A verdict on a bullet: a person's with an admin key, which wins over every other judge of the
    run (`trace_id`); else an agent's (`llm`), which tests and persons overrule.

    Saying it again replaces it (200): a key has one verdict per bullet and trace, and one without a
    trace. It raises no version; for a merged key it goes to the survivor.
    """
    verdict = Verdict(
        key=key,
        tag=body.tag,
        judge=judge_of(caller, body.judge),
        reason=body.reason,
        trace_id=body.trace_id,
        render_id=body.render_id,
        actor=caller.actor,
    )
    place = Place(caller.project(body.project_id), name)
    counted = await vote(runtime, servings, caller.tenant_id, place, verdict)
    response.status_code = 201 if counted.new else 200
    bullet = to_bullet(counted.bullet)
    if counted.quarantined:
        bullet = bullet.model_copy(update={"status": "quarantined"})
    return EvaluationAnswer(
        evaluation=show_evaluation(counted.evaluation),
        key=counted.key,
        counts=counted.counts,
        quarantined=counted.quarantined,
        bullet=bullet,
        cleaned=cleaned,
    )


def show_evaluation(row: BulletEvaluation) -> EvaluationView:
    return EvaluationView(**{name: getattr(row, name) for name in EvaluationView.model_fields})


@router.get("/{key}/evaluations")
async def verdicts(
    name: str,
    key: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    cursor: CursorQuery,
    limit: Limit = 50,
) -> Page[EvaluationView]:
    """The verdicts on a bullet, newest first."""
    row = await _find(session, Place(caller.project(project_id), name), key)
    rows = await list_verdicts(session, row.id, cursor, limit)
    return page(rows, limit, show_evaluation)


@router.get("/{key}/provenance")
async def provenance(
    name: str, key: str, session: Session, caller: Reader, project_id: ProjectQuery
) -> Provenance:
    """From the bullet back to the lessons it was made of, their traces and the events that told."""
    row = await _find(session, Place(caller.project(project_id), name), key)
    origins = await find_origins(session, row.id)
    links = [
        Origin(
            **{name: getattr(origin, name) for name in set(Origin.model_fields) - _LISTS},
            source_event_ids=origin.source_event_ids or [],
            events=origin.events or [],
        )
        for origin in origins
    ]
    return Provenance(key=key, memory_id=row.id, links=links)


_LISTS = {"source_event_ids", "events"}
