"""Agent runs: ask the agent, follow its plan, answer its questions, judge its answer (S3.61)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from memory_api.api.deps import Reader, RuntimeDep, Session, Writer
from memory_api.collections.router import list_collections
from memory_api.console.forms import SentForm, validate_body
from memory_api.console.pages import ConsoleRoute, CurrentVisit, Form
from memory_api.console.paging import Paging, Place, PlaceQuery
from memory_api.console.queries import count_in_project, count_questions
from memory_api.console.rendering import render_page
from memory_api.console.visit import Visit
from memory_api.core.errors import HanseiError, InvalidRequest
from memory_api.grace.queries import list_events
from memory_api.grace.router import (
    answer_intervention,
    cancel_agent_run,
    create_agent_run,
    get_agent_run,
    list_agent_runs,
    list_interventions,
    record_agent_feedback,
)
from memory_api.grace.schemas import (
    AgentRun,
    AnswerInterventionRequest,
    CreateAgentRunRequest,
    PlanStepView,
    RecordAgentFeedbackRequest,
)
from memory_api.grace.tables import AgentRunRow
from memory_api.playbooks.queries import count_reviews
from memory_api.runtime import Runtime

router = APIRouter(prefix="/console/agent-runs", route_class=ConsoleRoute, include_in_schema=False)

PAGE_SIZE = 30
MAX_EVENTS = 200
MAX_COLLECTIONS = 50
"""Names of collections that the form suggests."""
LIVE_STATES = ("queued", "running")


@router.get("")
async def show_agent_runs(
    visit: CurrentVisit, session: Session, runtime: RuntimeDep, caller: Reader, place: PlaceQuery
) -> Response:
    page = await list_agent_runs(session, caller, place.cursor, visit.project, limit=PAGE_SIZE)
    return render_page(
        visit,
        "agent_runs/list.html",
        page=page,
        paging=await _count_pages(visit, session, place, page.next_cursor),
        form=SentForm({}),
        error=None,
        **await _load_surroundings(visit, session, runtime, caller),
    )


async def _count_pages(
    visit: Visit, session: Session, place: Place, next_cursor: str | None
) -> Paging:
    total = await count_in_project(session, AgentRunRow, visit.project)
    return place.followed_by(next_cursor, total, PAGE_SIZE)


async def _load_surroundings(
    visit: Visit, session: Session, runtime: Runtime, caller: Reader
) -> dict[str, Any]:
    """What the form of a question needs to know."""
    found = await list_collections(session, caller, None, visit.project, MAX_COLLECTIONS)
    return {
        "has_model": runtime.llm is not None,
        "collections": [collection.name for collection in found.items],
        "counts": await count_questions(session, visit.project),
        "playbooks": [row.name for row in await count_reviews(session, visit.project)],
    }


@router.post("")
async def ask_agent(
    visit: CurrentVisit, runtime: RuntimeDep, session: Session, caller: Writer, form: Form
) -> Response:
    values = {
        "query": form.text("query"),
        "project_id": visit.project,
        "playbook": form.text("playbook") or None,
        "collections": form.words("collections"),
        "previous_run_id": form.text("previous_run_id") or None,
    }
    around = await _load_surroundings(visit, session, runtime, caller)
    try:
        if not around["collections"]:
            raise InvalidRequest("Create a collection first: there is nothing to search.")
        body = validate_body(CreateAgentRunRequest, values)
        run = await create_agent_run(body, runtime, session, caller, Response())
    except HanseiError as error:
        page = await list_agent_runs(session, caller, None, visit.project, limit=PAGE_SIZE)
        return render_page(
            visit,
            "agent_runs/list.html",
            status=error.status,
            page=page,
            paging=await _count_pages(visit, session, Place(), page.next_cursor),
            form=form,
            error=error,
            **around,
        )
    return RedirectResponse(visit.link("agent-runs", str(run.id)), 303)


@router.get("/{agent_run_id}")
async def show_agent_run(
    agent_run_id: UUID,
    visit: CurrentVisit,
    session: Session,
    runtime: RuntimeDep,
    caller: Reader,
) -> Response:
    run = await get_agent_run(agent_run_id, session, caller)
    questions = await list_interventions(agent_run_id, session, caller)
    return render_page(
        visit,
        "agent_runs/live.html" if visit.is_partial else "agent_runs/run.html",
        run=run,
        events=await list_events(session, agent_run_id, 0, MAX_EVENTS),
        answered=[item for item in questions.items if item.state != "open"],
        is_live=run.state in LIVE_STATES,
        has_model=runtime.llm is not None,
        asked_step=_asked_step(run),
    )


def _asked_step(run: AgentRun) -> PlanStepView | None:
    """The step that a person is asked about."""
    step_id = run.intervention.step_id if run.intervention else None
    return next((step for step in run.steps if step.step_id == step_id), None)


@router.post("/{agent_run_id}/answer/{intervention_id}")
async def answer_question(
    agent_run_id: UUID,
    intervention_id: UUID,
    visit: CurrentVisit,
    runtime: RuntimeDep,
    session: Session,
    caller: Writer,
    form: Form,
) -> Response:
    values = {"action": form.text("action"), "input": form.text("input") or None}
    body = validate_body(AnswerInterventionRequest, values)
    await answer_intervention(agent_run_id, intervention_id, body, runtime, session, caller)
    return RedirectResponse(visit.link("agent-runs", str(agent_run_id)), 303)


@router.post("/{agent_run_id}/cancel")
async def cancel(
    agent_run_id: UUID, visit: CurrentVisit, runtime: RuntimeDep, session: Session, caller: Writer
) -> Response:
    await cancel_agent_run(agent_run_id, runtime, session, caller)
    return RedirectResponse(visit.link("agent-runs", str(agent_run_id)), 303)


@router.post("/{agent_run_id}/feedback")
async def give_feedback(
    agent_run_id: UUID,
    visit: CurrentVisit,
    runtime: RuntimeDep,
    session: Session,
    caller: Writer,
    form: Form,
) -> Response:
    values = {"feedback": form.text("feedback"), "answer": form.text("answer") or None}
    body = validate_body(RecordAgentFeedbackRequest, values)
    await record_agent_feedback(agent_run_id, body, runtime, session, caller)
    return RedirectResponse(visit.link("agent-runs", str(agent_run_id)), 303)
