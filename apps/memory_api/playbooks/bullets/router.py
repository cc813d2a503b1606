"""Single bullets over HTTP: list, create, read, update, delete."""

from __future__ import annotations

from functools import partial
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Response

from memory_api.api.deps import (
    CursorQuery,
    Limit,
    ProjectQuery,
    Reader,
    RuntimeDep,
    Sanitized,
    Session,
    Writer,
)
from memory_api.api.problems import problems
from memory_api.api.route import RedactingRoute
from memory_api.core.pagination import to_page
from memory_api.core.schemas import body_example
from memory_api.memories.schemas import SettableStatus
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks import queries
from memory_api.playbooks.bullet_rows import BulletOrder, bullet_cursor, to_bullet
from memory_api.playbooks.bullets.schemas import (
    BulletPage,
    BulletReceipt,
    CreateBulletRequest,
    StoredBullet,
    UpdateBulletRequest,
)
from memory_api.playbooks.deps import IfMatch, change_author, set_etag
from memory_api.playbooks.editing import edits
from memory_api.playbooks.editing.edits import (
    add_bullet,
    edit_bullet,
    require_bullet,
    require_playbook,
)
from memory_api.playbooks.models import DeltaContextItem
from memory_api.playbooks.ref import PlaybookRef

router = APIRouter(
    prefix="/api/v1/playbooks/{playbook}/bullets", tags=["bullets"], route_class=RedactingRoute
)

NEW_BULLET = {
    "section": "MISTAKES TO AVOID",
    "content": "Do not close a ticket before the customer has answered.",
    "when_to_use": "closing tickets",
    "tags": ["support"],
}
CHANGES = {"pinned": True, "reason": "Legal asked for it."}


@router.get("", summary="List bullets", responses=problems(404))
async def list_bullets(
    playbook: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    cursor: CursorQuery,
    section: Annotated[
        str | None, Query(max_length=128, description="Name in any case, or slug.")
    ] = None,
    status: Annotated[
        SettableStatus | None,
        Query(description="Default: all bullets that are not deleted."),
    ] = None,
    tag: Annotated[str | None, Query(max_length=64)] = None,
    limit: Limit = 50,
    sort: Annotated[
        BulletOrder,
        Query(description="`usefulness` lists the least useful first, `-usefulness` the most."),
    ] = BulletOrder.KEY,
) -> BulletPage:
    """Lists the bullets of a playbook, by key unless `sort` is given."""
    row = await require_playbook(session, PlaybookRef(caller.resolve_project(project_id), playbook))
    query = await queries.select_in_section(session, row, section, status=status, tag=tag)
    rows = await queries.list_bullets(session, query, order=sort, cursor=cursor, limit=limit)
    return to_page(BulletPage, rows, limit, bullet_response, partial(bullet_cursor, order=sort))


def bullet_response(row: MemoryRow) -> StoredBullet:
    return StoredBullet(
        **to_bullet(row).model_dump(exclude={"confidence_score"}),
        memory_id=row.id,
        usefulness=row.usefulness,
        version=row.playbook_version,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


@router.post(
    "",
    status_code=201,
    summary="Create a bullet",
    responses=problems(409, "playbook_full", 412, "under_review"),
    openapi_extra=body_example(NEW_BULLET),
)
async def create_bullet(
    playbook: str,
    body: CreateBulletRequest,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    if_match: IfMatch,
    sanitized: Sanitized,
) -> BulletReceipt:
    """Creates a bullet. The service assigns its key. Creates the playbook if it does not exist.

    Answers 409 if another bullet has the same content; `key` of the error names it.
    """
    place = PlaybookRef(caller.resolve_project(body.project_id), playbook)
    texts = body.model_dump(
        include={"section", "content", "when_to_use", "title", "keywords", "tags"}
    )
    outcome = await add_bullet(
        runtime,
        caller.tenant_id,
        place,
        DeltaContextItem(type="ADD", **texts),
        change_author(caller, body.reason),
        pinned=body.pinned,
        if_match=if_match,
    )
    bullet = outcome.results[0].after
    assert bullet is not None
    set_etag(response, outcome.version)
    response.headers["Location"] = (
        f"/api/v1/playbooks/{quote(playbook, safe='')}/bullets/{bullet.id}"
    )
    return BulletReceipt(version=outcome.version, bullet=bullet, sanitized=sanitized)


@router.get("/{key}", summary="Get a bullet", responses=problems(404))
async def get_bullet(
    playbook: str, key: str, session: Session, caller: Reader, project_id: ProjectQuery
) -> StoredBullet:
    """Returns a bullet.

    A key that was merged into another answers 404; `merged_into` of the error names that key.
    """
    return bullet_response(
        await require_bullet(
            session, PlaybookRef(caller.resolve_project(project_id), playbook), key
        )
    )


@router.patch(
    "/{key}",
    summary="Update a bullet",
    responses=problems(404, 409, "playbook_full", 412, "under_review"),
    openapi_extra=body_example(CHANGES),
)
async def update_bullet(
    playbook: str,
    key: str,
    body: UpdateBulletRequest,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    if_match: IfMatch,
    sanitized: Sanitized,
) -> BulletReceipt:
    """Changes the fields that are sent, also of a pinned bullet.

    Searches and renders use only active bullets. Answers 409 if another bullet has the same
    content.
    """
    outcome = await edit_bullet(
        runtime,
        caller.tenant_id,
        PlaybookRef(caller.resolve_project(body.project_id), playbook),
        key,
        body.fields(),
        change_author(caller, body.reason),
        if_match=if_match,
    )
    bullet = outcome.results[0].after
    assert bullet is not None
    set_etag(response, outcome.version)
    return BulletReceipt(version=outcome.version, bullet=bullet, sanitized=sanitized)


@router.delete(
    "/{key}",
    status_code=204,
    summary="Delete a bullet",
    responses=problems(404, 412, "under_review"),
)
async def delete_bullet(
    playbook: str,
    key: str,
    runtime: RuntimeDep,
    caller: Writer,
    project_id: ProjectQuery,
    if_match: IfMatch,
    reason: Annotated[
        str | None, Query(max_length=2_000, description="Why; part of the version's record.")
    ] = None,
) -> None:
    """Deletes a bullet. Its history stays, and its key is not used again."""
    place = PlaybookRef(caller.resolve_project(project_id), playbook)
    author = change_author(caller, reason)
    await edits.delete_bullet(runtime, caller.tenant_id, place, key, author, if_match=if_match)
