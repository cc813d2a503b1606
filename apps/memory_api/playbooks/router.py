"""Whole playbooks over HTTP: list, read, replace, settings, delete, deltas."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from memory_api.api.bodies import MAX_LARGE_BODY, read_body
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
from memory_api.api.problems import Responses, problems
from memory_api.api.route import LargeRedactingRoute
from memory_api.auth.identity import KeyScope
from memory_api.core.errors import InvalidRequest
from memory_api.core.pagination import Cursor, to_page
from memory_api.core.schemas import body_example
from memory_api.playbooks import queries, schemas
from memory_api.playbooks.bullet_rows import sections_of
from memory_api.playbooks.deps import IfMatch, change_author, set_etag
from memory_api.playbooks.editing import edits
from memory_api.playbooks.editing.edits import require_playbook, update_settings
from memory_api.playbooks.formats import transfer
from memory_api.playbooks.formats.serialization import PlaybookFormat, export_bytes
from memory_api.playbooks.formats.transfer import load_playbook
from memory_api.playbooks.history.schemas import ReplacePlaybookResponse, diff_response
from memory_api.playbooks.history.versions import load_as_of, parse_version_or_time
from memory_api.playbooks.proposals.review import NewProposal, apply_or_propose
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.schemas import PlaybookPage, PlaybookSummary

router = APIRouter(
    prefix="/api/v1/playbooks",
    tags=["playbooks"],
    route_class=LargeRedactingRoute,
)

BULLETS = {
    "bullets": [
        {"id": "shr-00001", "section": "strategies_and_hard_rules",
         "content": "Look up an order before changing it.", "helpful": 3, "harmful": 0}
    ]
}  # fmt: skip
ACE = {"text/plain": "ACE format: lines `[id] helpful=H harmful=M :: text` under `## SECTION`."}
DELTAS = {
    "deltas": [
        {"type": "ADD", "section": "MISTAKES TO AVOID",
         "content": "Do not retry a payment that timed out before looking it up.",
         "reasoning": "Two customers were charged twice."}
    ],
}  # fmt: skip
SETTINGS = {"token_budget": 2000, "max_bullets": 500}
DOCUMENT_SCHEMA = {
    "type": "object",
    "additionalProperties": True,
    "description": "`{bullets: […]}` (format `bullets`) or `{sections: […]}` (format `sections`).",
}
PLAYBOOK_BODY = body_example(BULLETS, other_media_types=ACE)
PLAYBOOK_BODY["requestBody"]["required"] = True
PLAYBOOK_BODY["requestBody"]["content"]["application/json"]["schema"] = DOCUMENT_SCHEMA
PLAYBOOK_RESPONSE: Responses = {
    200: {
        "description": "The playbook. The format `ace` is text, the others are JSON.",
        "content": {
            "application/json": {"schema": DOCUMENT_SCHEMA, "example": BULLETS},
            "text/plain": {"schema": {"type": "string"}},
        },
    },
    **problems(404),
}
CHANGE_PROBLEMS = problems("playbook_full", 412, "under_review")
PROPOSED: Responses = {
    202: {
        "description": "The playbook requires a review: the deltas are now a proposal.",
        "model": schemas.ApplyDeltasResponse,
    }
}

Reason = Annotated[
    str | None, Query(max_length=2_000, description="Why; part of the version's record.")
]


@router.get("", summary="List playbooks")
async def list_playbooks(
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    cursor: CursorQuery,
    deleted: Annotated[
        bool, Query(description="List the deleted playbooks, which can be restored, instead.")
    ] = False,
    limit: Limit = 50,
) -> PlaybookPage:
    """Lists the playbooks of a project by name, without their bullets."""
    after = cursor.text("playbooks") if cursor else None
    rows = await queries.list_playbooks(
        session, caller.resolve_project(project_id), deleted=deleted, after=after, limit=limit
    )
    return to_page(
        PlaybookPage, rows, limit, to_cursor=lambda row: Cursor("playbooks", (row.name,))
    )


@router.get(
    "/{playbook}", summary="Get a playbook", response_model=None, responses=PLAYBOOK_RESPONSE
)
async def get_playbook(
    playbook: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    as_of: Annotated[
        str | None, Query(description="A version number or an ISO 8601 time. Default: now.")
    ] = None,
    format: Annotated[
        PlaybookFormat, Query(description="`ace` is text, the others are JSON.")
    ] = "bullets",
) -> Response:
    """Returns a playbook with its bullets as JSON or in the text format of ACE.

    With `as_of`, texts and sections are those of that version; counters are always the current
    ones. The `ETag` is the version, for `If-Match`.
    """
    place = PlaybookRef(caller.resolve_project(project_id), playbook)
    row = await require_playbook(session, place, deleted=as_of is not None)
    if as_of is None:
        version, content = row.version, await load_playbook(session, row)
    else:
        version, content = await load_as_of(session, row, parse_version_or_time(as_of, "as_of"))
    try:
        body = export_bytes(content, format, sections_of(row))
    except ValueError as error:
        raise InvalidRequest(str(error), field="format") from error
    response = Response(body, media_type="text/plain" if format == "ace" else "application/json")
    set_etag(response, version)
    return response


@router.put(
    "/{playbook}",
    summary="Replace a playbook",
    responses=CHANGE_PROBLEMS,
    openapi_extra=PLAYBOOK_BODY,
)
async def replace_playbook(
    playbook: str,
    request: Request,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    project_id: ProjectQuery,
    if_match: IfMatch,
    dry_run: schemas.DryRun = False,
    reason: Reason = None,
) -> ReplacePlaybookResponse:
    """Replaces the bullets and sections of a playbook, or creates it. The format is detected.

    Bullets that are not in the body are removed; `restore` restores them. A body that is not a
    playbook answers 422 with the position of the error and changes nothing.
    """
    place = PlaybookRef(caller.resolve_project(project_id), playbook)
    text = (await read_body(request, MAX_LARGE_BODY)).raw
    author = change_author(caller, reason)
    outcome, notes = await transfer.replace_playbook(
        runtime, caller.tenant_id, place, text, author, if_match=if_match, dry_run=dry_run
    )
    set_etag(response, outcome.version)
    return ReplacePlaybookResponse(
        version=outcome.version,
        active_bullet_count=outcome.active_count,
        notes=list(notes),
        applied=not dry_run,
        diff=diff_response(outcome.diff) if outcome.diff else None,
    )


@router.patch(
    "/{playbook}",
    summary="Update playbook settings",
    responses=problems("under_review", 412),
    openapi_extra=body_example(SETTINGS),
)
async def update_playbook(
    playbook: str,
    body: schemas.UpdatePlaybookRequest,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    if_match: IfMatch,
) -> PlaybookSummary:
    """Changes sections, limits and the review mode, as a new version unless nothing changes.
    Creates the playbook if it does not exist.

    Only an admin key may change the review mode.
    """
    if "review_mode" in body.model_fields_set:
        caller.require_scope(KeyScope.ADMIN)
    place = PlaybookRef(caller.resolve_project(body.project_id), playbook)
    author = change_author(caller, body.reason)
    await update_settings(
        runtime, caller.tenant_id, place, body.fields(), author, if_match=if_match
    )
    async with runtime.sessions.for_tenant(caller.tenant_id) as session:
        row = await require_playbook(session, place)
    set_etag(response, row.version)
    return PlaybookSummary.from_row(row)


@router.delete(
    "/{playbook}",
    status_code=204,
    summary="Delete a playbook",
    responses=problems(404, 412, "under_review"),
)
async def delete_playbook(
    playbook: str,
    runtime: RuntimeDep,
    caller: Writer,
    project_id: ProjectQuery,
    if_match: IfMatch,
    reason: Reason = None,
) -> None:
    """Deletes a playbook with its bullets. `restore` restores both."""
    place = PlaybookRef(caller.resolve_project(project_id), playbook)
    author = change_author(caller, reason)
    await edits.delete_playbook(runtime, caller.tenant_id, place, author, if_match=if_match)


@router.post(
    "/{playbook}/deltas",
    summary="Apply deltas",
    responses=PROPOSED | CHANGE_PROBLEMS,
    openapi_extra=body_example(DELTAS),
)
async def apply_deltas(
    playbook: str,
    body: schemas.ApplyDeltasRequest,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    if_match: IfMatch,
    sanitized: Sanitized,
    dry_run: schemas.DryRun = False,
) -> schemas.ApplyDeltasResponse:
    """Applies deltas (ADD, UPDATE, MERGE, DELETE, KEEP) as one version, all or none.

    An invalid delta answers 422 with its index. A delta that is refused, such as a change of a
    pinned bullet or a duplicate, has the action `rejected` in `results`; the others are applied. If
    the playbook requires a review, the deltas become a proposal (202).
    """
    place = PlaybookRef(caller.resolve_project(body.project_id), playbook)
    done = await apply_or_propose(
        runtime,
        caller.tenant_id,
        place,
        body.deltas,
        change_author(caller, body.reason),
        if_match=if_match,
        dry_run=dry_run,
    )
    set_etag(response, done.version)
    answer = schemas.ApplyDeltasResponse(
        version=done.version, applied=False, results=list(done.results), sanitized=sanitized
    )
    if isinstance(done, NewProposal):
        response.status_code = 202
        return answer.model_copy(update={"held": True, "proposal_id": done.proposal_id})
    return answer.model_copy(update={"applied": not dry_run})
