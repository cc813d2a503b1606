"""Reports of `hansei eval` over HTTP: publish, list, read, delete."""

from __future__ import annotations

from datetime import datetime
from difflib import get_close_matches
from uuid import UUID

from fastapi import APIRouter

from hansei.errors import EvaluationError
from hansei.evaluation.report_format import check_report, summarize_report
from memory_api.api.deps import CursorQuery, Limit, ProjectQuery, Reader, Session, Writer
from memory_api.api.problems import problems
from memory_api.api.route import RedactingRoute
from memory_api.auth.identity import Identity
from memory_api.core.errors import InvalidRequest, NotFound
from memory_api.core.log_context import current_actor
from memory_api.core.pagination import to_page
from memory_api.core.schemas import body_example
from memory_api.evaluation_reports import queries
from memory_api.evaluation_reports.schemas import (
    CREATE_EXAMPLE,
    CreateEvaluationReportRequest,
    EvaluationReport,
    EvaluationReportDetails,
    EvaluationReportPage,
)
from memory_api.evaluation_reports.tables import EvaluationReportRow
from memory_api.tenants.queries import list_projects

router = APIRouter(
    prefix="/api/v1/evaluation-reports", tags=["evaluation-reports"], route_class=RedactingRoute
)


@router.post(
    "",
    status_code=201,
    summary="Publish a report",
    responses=problems(409),
    openapi_extra=body_example(CREATE_EXAMPLE),
)
async def create_evaluation_report(
    body: CreateEvaluationReportRequest, session: Session, caller: Writer
) -> EvaluationReport:
    """Stores a report of `hansei eval`, which the console shows. A report of the same evaluation is
    replaced. The project is `default`, that of the key, or one that has traces or memories. The
    body has at most 1 MB.
    """
    try:
        check_report(body.report)
    except EvaluationError as error:
        raise InvalidRequest(error.detail, field="report") from None
    project = caller.resolve_project(body.project_id)
    if project not in ("default", caller.project_id):
        await _require_project(session, project)
    plan = body.report["plan"]
    values = {
        "project_id": project,
        "evaluation_id": plan["id"],
        "playbook": plan["protocol"]["playbook"],
        "summary": summarize_report(body.report),
        "report": body.report,
        "actor": current_actor(),
        "created_at": datetime.fromisoformat(plan["created_at"]),
    }
    return EvaluationReport.from_row(await queries.upsert_report(session, values))


@router.get("", summary="List reports", responses=problems(422))
async def list_evaluation_reports(
    session: Session,
    caller: Reader,
    cursor: CursorQuery,
    project_id: ProjectQuery,
    limit: Limit = 50,
) -> EvaluationReportPage:
    """Lists the reports of a project, the newest evaluation first."""
    project = caller.resolve_project(project_id)
    rows = await queries.list_reports(session, project, cursor=cursor, limit=limit)
    return to_page(EvaluationReportPage, rows, limit)


@router.get("/{report_id}", summary="Get a report", responses=problems(404))
async def get_evaluation_report(
    report_id: UUID, session: Session, caller: Reader
) -> EvaluationReportDetails:
    """Returns a report with its content."""
    return EvaluationReportDetails.from_row(await _require(session, caller, report_id))


@router.delete("/{report_id}", status_code=204, summary="Delete a report", responses=problems(404))
async def delete_evaluation_report(report_id: UUID, session: Session, caller: Writer) -> None:
    """Deletes a report for good."""
    await session.delete(await _require(session, caller, report_id))


async def _require_project(session: Session, project: str) -> None:
    """Raises `InvalidRequest` with the most similar names if the project has no data: nobody would
    look for a report there.
    """
    known = await list_projects(session) | {"default"}
    if project not in known:
        similar = ", ".join(get_close_matches(project, known, n=5, cutoff=0))
        raise InvalidRequest(
            f"Project '{project}' has no trace and no memory. Existing projects, the most similar"
            f" first: {similar}.",
            field="project_id",
        )


async def _require(session: Session, caller: Identity, report_id: UUID) -> EvaluationReportRow:
    """Raises `NotFound`, also for the report of a project that the key does not see."""
    row = await queries.require_report(session, report_id)
    if caller.project_id not in (None, row.project_id):
        raise NotFound("Report not found.")
    return row
