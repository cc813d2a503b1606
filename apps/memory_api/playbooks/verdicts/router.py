"""Verdicts on bullets over HTTP: record, list."""

from __future__ import annotations

from fastapi import APIRouter, Response

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
from memory_api.api.route import RedactingRoute
from memory_api.core.pagination import to_page
from memory_api.core.schemas import body_example
from memory_api.playbooks import queries
from memory_api.playbooks.bullet_rows import to_bullet
from memory_api.playbooks.editing.edits import require_bullet
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.verdicts.record import NewVerdict, resolve_judge, submit_verdict
from memory_api.playbooks.verdicts.schemas import (
    RecordVerdictRequest,
    RecordVerdictResponse,
    Verdict,
    VerdictPage,
)

RECORD_RESPONSES: Responses = {
    200: {
        "description": "The verdict replaced an earlier one.",
        "model": RecordVerdictResponse,
    },
    **problems(404),
}
VERDICT = {"tag": "helpful", "reason": "It kept the agent from charging twice."}


router = APIRouter(
    prefix="/api/v1/playbooks/{playbook}/bullets", tags=["bullets"], route_class=RedactingRoute
)


@router.post(
    "/{key}/verdicts",
    status_code=201,
    summary="Record a verdict on a bullet",
    responses=RECORD_RESPONSES,
    openapi_extra=body_example(VERDICT),
)
async def record_verdict(
    playbook: str,
    key: str,
    body: RecordVerdictRequest,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    sanitized: Sanitized,
) -> RecordVerdictResponse:
    """Records whether a bullet was helpful, harmful or neutral, in one trace or in general.

    An admin key records the verdict of a person (`human`), which overrules every other judge of the
    trace. Other keys record that of an agent (`llm`). A second verdict by the same API key on the
    same bullet and trace replaces the first (200). A verdict makes no new version. For a key that
    was merged, it goes to the bullet that remains.
    """
    verdict = NewVerdict(
        key=key,
        tag=body.tag,
        judge=resolve_judge(caller, body.judge),
        reason=body.reason,
        trace_id=body.trace_id,
        retrieval_id=body.retrieval_id,
        actor=caller.actor,
    )
    place = PlaybookRef(caller.resolve_project(body.project_id), playbook)
    counted = await submit_verdict(runtime, caller.tenant_id, place, verdict)
    response.status_code = 201 if counted.is_new else 200
    bullet = to_bullet(counted.bullet)
    if counted.quarantined:
        bullet = bullet.model_copy(update={"status": "quarantined"})
    return RecordVerdictResponse(
        verdict=Verdict.from_row(counted.row),
        key=counted.key,
        counted=counted.is_counted,
        quarantined=counted.quarantined,
        bullet=bullet,
        sanitized=sanitized,
    )


@router.get("/{key}/verdicts", summary="List the verdicts on a bullet", responses=problems(404))
async def list_verdicts(
    playbook: str,
    key: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    cursor: CursorQuery,
    limit: Limit = 50,
) -> VerdictPage:
    """Lists the verdicts on a bullet, newest first."""
    row = await require_bullet(
        session, PlaybookRef(caller.resolve_project(project_id), playbook), key
    )
    rows = await queries.list_verdicts(session, row.id, cursor, limit)
    return to_page(VerdictPage, rows, limit)
