"""Decisions of the curator and consolidations over HTTP."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

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
from memory_api.api.route import ApiRoute
from memory_api.core.pagination import Cursor, to_page
from memory_api.curation import queries
from memory_api.curation.cleanup import enqueue_consolidation
from memory_api.curation.schemas import CuratedLesson, CuratedLessonPage, LessonDecision
from memory_api.playbooks.editing.edits import require_playbook
from memory_api.playbooks.ref import PlaybookRef
from memory_api.runs.router import run_response
from memory_api.runs.schemas import Run

router = APIRouter(prefix="/api/v1/playbooks/{playbook}", tags=["playbooks"], route_class=ApiRoute)

LESSON_LIST = "curated_lessons"


@router.get("/lessons", summary="List decisions on lessons", responses=problems(404, 422))
async def list_lessons(
    playbook: str,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    cursor: CursorQuery,
    decision: LessonDecision | None = None,
    limit: Limit = 50,
) -> CuratedLessonPage:
    """Lists the lessons that the curator decided on, with the reason, the last decision first.

    `decision=rejected` lists the lessons that did not become a bullet.
    """
    row = await require_playbook(session, PlaybookRef(caller.resolve_project(project_id), playbook))
    after = cursor.texts(LESSON_LIST, 2) if cursor is not None else None
    rows = await queries.list_decisions(
        session, row.scope_id, decision=decision, after=after, limit=limit
    )
    return to_page(CuratedLessonPage, rows, limit, _lesson_response, _lesson_cursor)


def _lesson_response(row: Any) -> CuratedLesson:
    return CuratedLesson.model_validate(row, from_attributes=True)


def _lesson_cursor(row: Any) -> Cursor:
    return Cursor(LESSON_LIST, (row.decided_at.isoformat(), row.fingerprint.hex()))


@router.post(
    "/consolidate", status_code=202, summary="Consolidate a playbook", responses=problems(404)
)
async def consolidate_playbook(
    playbook: str, runtime: RuntimeDep, session: Session, caller: Writer, project_id: ProjectQuery
) -> Run:
    """Queues a run that merges duplicates. With a model, the run also merges, generalizes, splits
    and deletes near bullets.

    The changes are one version, which `restore` undoes. Pinned bullets do not change. With
    `review_mode` = `required`, the changes become a proposal.
    """
    ref = PlaybookRef(caller.resolve_project(project_id), playbook)
    row = await require_playbook(session, ref)
    return run_response(await enqueue_consolidation(runtime, session, row))
