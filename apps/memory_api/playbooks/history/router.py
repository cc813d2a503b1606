"""Versions, differences, restore and provenance over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from memory_api.api.deps import (
    CursorQuery,
    Limit,
    ProjectQuery,
    Reader,
    RuntimeDep,
    Session,
    Writer,
)
from memory_api.api.problems import problems
from memory_api.api.route import RedactingRoute
from memory_api.core.errors import InvalidRequest
from memory_api.core.pagination import Cursor, to_page
from memory_api.core.schemas import body_example
from memory_api.playbooks import queries
from memory_api.playbooks.deps import IfMatch, change_author, set_etag
from memory_api.playbooks.editing.edits import require_bullet, require_playbook
from memory_api.playbooks.history import versions
from memory_api.playbooks.history.schemas import (
    BulletVersionPage,
    PlaybookDiff,
    PlaybookVersionPage,
    Provenance,
    ProvenanceLink,
    RestorePlaybookRequest,
    RestorePlaybookResponse,
    diff_response,
)
from memory_api.playbooks.history.versions import diff_versions, parse_version_or_time
from memory_api.playbooks.queries import list_provenance_links, list_versions
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.schemas import DryRun

router = APIRouter(prefix="/api/v1/playbooks/{playbook}", route_class=RedactingRoute)


@router.get(
    "/bullets/{key}/provenance",
    tags=["bullets"],
    summary="Trace a bullet to its source events",
    responses=problems(404),
)
async def get_bullet_provenance(
    playbook: str, key: str, session: Session, caller: Reader, project_id: ProjectQuery
) -> Provenance:
    """Returns the lessons that a bullet was made of, their traces and the source events."""
    row = await require_bullet(
        session, PlaybookRef(caller.resolve_project(project_id), playbook), key
    )
    rows = await list_provenance_links(session, row.id)
    links = [ProvenanceLink.from_row(link) for link in rows]
    return Provenance(key=key, memory_id=row.id, links=links)


@router.get(
    "/bullets/{key}/versions",
    tags=["bullets"],
    summary="List the versions of a bullet",
    responses=problems(404),
)
async def list_bullet_versions(
    playbook: str,
    key: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    cursor: CursorQuery,
    limit: Limit = 50,
) -> BulletVersionPage:
    """Lists what changed in a bullet, when, by whom and why, oldest first.

    Works for bullets that were deleted or merged into another, and in deleted playbooks.
    """
    ref = PlaybookRef(caller.resolve_project(project_id), playbook)
    row = await require_bullet(session, ref, key, deleted=True)
    after = cursor.integer("bullet_versions") if cursor else 0
    rows = await queries.list_bullet_versions(session, row.id, after=after, limit=limit)
    return to_page(
        BulletVersionPage,
        rows,
        limit,
        to_cursor=lambda row: Cursor("bullet_versions", (str(row.revision),)),
    )


RESTORE = {"version": 0, "reason": "Started from the wrong file."}


@router.get(
    "/versions",
    tags=["playbooks"],
    summary="List the versions of a playbook",
    responses=problems(404),
)
async def list_playbook_versions(
    playbook: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    cursor: CursorQuery,
    limit: Limit = 50,
) -> PlaybookVersionPage:
    """Lists the changes of a playbook with author and reason, newest first. Works for deleted
    playbooks.
    """
    row = await require_playbook(
        session, PlaybookRef(caller.resolve_project(project_id), playbook), deleted=True
    )
    below = cursor.integer("playbook_versions") if cursor else None
    rows = await list_versions(session, row.scope_id, below=below, limit=limit)
    return to_page(
        PlaybookVersionPage,
        rows,
        limit,
        to_cursor=lambda row: Cursor("playbook_versions", (str(row.version),)),
    )


FromQuery = Annotated[str, Query(alias="from", description="A version number or an ISO 8601 time.")]


@router.get(
    "/diff",
    tags=["playbooks"],
    summary="Compare two versions",
    responses=problems(404),
)
async def diff_playbook(
    playbook: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    first: FromQuery,
    to: Annotated[
        str | None, Query(description="A version number or an ISO 8601 time. Default: now.")
    ] = None,
) -> PlaybookDiff:
    """Returns the bullets and sections that differ between two versions or times."""
    row = await require_playbook(
        session, PlaybookRef(caller.resolve_project(project_id), playbook), deleted=True
    )
    last = row.version if to is None else parse_version_or_time(to, "to")
    return diff_response(
        await diff_versions(session, row, parse_version_or_time(first, "from"), last)
    )


@router.post(
    "/restore",
    tags=["playbooks"],
    summary="Restore a version",
    responses=problems(404, "playbook_full", 412, "under_review"),
    openapi_extra=body_example(RESTORE),
)
async def restore_playbook(
    playbook: str,
    body: RestorePlaybookRequest,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    if_match: IfMatch,
    dry_run: DryRun = False,
) -> RestorePlaybookResponse:
    """Restores texts, statuses and sections of a version or time, as a new version.

    Verdicts and counters stay as they are. Restores deleted playbooks too.
    """
    moment = body.moment()
    if moment is None:
        raise InvalidRequest("Set exactly one of `version` and `time`.", field="version")
    outcome = await versions.restore_playbook(
        runtime,
        caller.tenant_id,
        PlaybookRef(caller.resolve_project(body.project_id), playbook),
        moment,
        change_author(caller, body.reason),
        if_match=if_match,
        dry_run=dry_run,
    )
    set_etag(response, outcome.version)
    return RestorePlaybookResponse(
        version=outcome.version,
        changed=outcome.changed,
        applied=not dry_run,
        diff=diff_response(outcome.diff) if outcome.diff else None,
    )
