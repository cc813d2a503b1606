"""How a playbook evolved, over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from apps.memory_api.api_route import SecretlessRoute
from apps.memory_api.core.errors import Invalid
from apps.memory_api.core.openapi import example
from apps.memory_api.core.schemas import Page
from apps.memory_api.deps import Limit, ProjectQuery, Reader, RuntimeDep, Session, Writer
from apps.memory_api.playbook.edit import find_playbook
from apps.memory_api.playbook.history import compare, read_moment, restore
from apps.memory_api.playbook.queries import list_versions
from apps.memory_api.playbook.requests import IfMatch, author_of, decode_cursor, encode_cursor, tag
from apps.memory_api.playbook.rows import Place
from apps.memory_api.playbook.tables import PlaybookVersion
from apps.memory_api.playbook.wire_history import (
    DiffAnswer,
    RestoreAnswer,
    RestoreIn,
    VersionView,
    show_diff,
)

router = APIRouter(prefix="/{name}", route_class=SecretlessRoute)

RESTORE = {"version": 0, "reason": "Started from the wrong file."}


@router.get("/history")
async def history(
    name: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    cursor: str | None = None,
    limit: Limit = 50,
) -> Page[VersionView]:
    """Every version: who changed how much, when and why; newest first. A deleted playbook still
    has its history.
    """
    playbook = await find_playbook(session, Place(caller.project(project_id), name), deleted=True)
    behind = decode_cursor(cursor)
    if behind is not None and not (behind.isascii() and behind.isdigit() and len(behind) < 10):
        raise Invalid("This cursor did not come from this list.", field="cursor")
    below = int(behind) if behind else None
    rows = await list_versions(session, playbook.scope, below=below, limit=limit)
    shown = rows[:limit]
    following = encode_cursor(str(shown[-1].version)) if len(rows) > limit else None
    return Page[VersionView](items=[_version(row) for row in shown], next_cursor=following)


def _version(row: PlaybookVersion) -> VersionView:
    return VersionView(**{name: getattr(row, name) for name in VersionView.model_fields})


FROM = Annotated[str, Query(alias="from", description="A version or a time.")]


@router.get("/diff")
async def diff(
    name: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    first: FROM,
    to: str | None = None,
) -> DiffAnswer:
    """What changed between two versions or times; `to` is now unless it says otherwise."""
    playbook = await find_playbook(session, Place(caller.project(project_id), name), deleted=True)
    last = playbook.version if to is None else read_moment(to, "to")
    return show_diff(await compare(session, playbook, read_moment(first, "from"), last))


@router.post("/restore", openapi_extra=example(RESTORE))
async def go_back(
    name: str,
    body: RestoreIn,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    if_match: IfMatch,
) -> RestoreAnswer:
    """Make texts, status and sections what they were at a version or a time, as a new version.

    Evidence stays. A deleted playbook comes back. With `apply: false` nothing is written.
    """
    moment = body.moment()
    if moment is None:
        raise Invalid("Say either `version` or `time`.", field="version")
    outcome = await restore(
        runtime,
        caller.tenant_id,
        Place(caller.project(body.project_id), name),
        moment,
        author_of(caller, body.reason),
        if_match=if_match,
        dry=not body.apply,
    )
    tag(response, outcome.version)
    return RestoreAnswer(
        version=outcome.version,
        changed=outcome.changed,
        applied=body.apply,
        diff=show_diff(outcome.diff) if outcome.diff else None,
    )
