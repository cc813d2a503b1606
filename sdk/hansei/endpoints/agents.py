"""Requests about runs of the agent (GRACE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

from hansei._request import (
    API,
    MAX_PAGE_SIZE,
    Id,
    Request,
    api_path,
    drop_none,
    get_request,
    query_params,
    write_request,
)
from hansei.types import Json, Page

InterventionAction = Literal["proceed", "modify", "cancel", "input", "retry", "skip"]
RUNS = f"{API}/agents/runs"


class Intervention(TypedDict):
    """A question to a person. `options` are the actions that answer it."""

    id: str
    kind: str
    level: str
    step_id: int | None
    message: str
    options: list[str]
    state: str
    action: str | None
    input: str | None
    default_action: str
    expires_at: str | None
    created_at: str
    answered_at: str | None


class PlanStepView(TypedDict):
    step_id: int
    action: str
    description: str
    query: str | None
    collection: str | None
    depends_on: list[int]
    fallback: str | None
    state: str
    attempt_count: int
    output: str | None
    confidence: float | None
    breakdown: dict[str, float]
    penalties: list[str]
    level: str | None
    sources: list[Json]
    error: str | None


class EarlierAnswer(TypedDict):
    """An earlier question of a conversation and its answer."""

    question: str
    answer: str


class AgentRun(TypedDict):
    """A run of the agent. `state` is queued, running, waiting, done, failed or cancelled."""

    id: str
    project_id: str
    query: str
    playbook: str | None
    collections: list[str]
    state: str
    status: str | None
    answer: str | None
    found: bool | None
    confidence: float | None
    sources: list[Json]
    plan_id: str | None
    complexity: float | None
    engine: str | None
    cited_bullets: list[str]
    steps: list[PlanStepView]
    intervention: Intervention | None
    replan_count: int
    token_count: int
    cost_usd: float | None
    previous_run_id: str | None
    conversation: list[EarlierAnswer]
    error: Any
    feedback: str | None
    trace_id: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None


class PlanStep(TypedDict):
    step_id: int
    action: str
    description: str
    query: str | None
    collection: str | None
    depends_on: list[int]
    expected_output: str
    fallback: str | None
    timeout_seconds: float | None


class ExecutionPlan(TypedDict):
    plan_id: str
    original_query: str
    complexity: float
    steps: list[PlanStep]
    requires_confirmation: bool
    success_criteria: str
    engine: str
    cited_bullets: list[str]


class PlanStepResult(TypedDict):
    step_id: int
    status: str
    output: str
    confidence: float
    sources: list[Json]
    error: str | None
    breakdown: dict[str, float]
    penalties: list[str]
    level: str | None
    action: str
    used_fallback: bool
    found: bool
    execution_time_ms: int


class ExecutionResult(TypedDict):
    plan_id: str
    original_query: str
    final_answer: str | None
    step_results: list[PlanStepResult]
    overall_confidence: float
    calibrated_confidence: float
    overall_status: str
    found: bool
    sources: list[Json]
    replan_count: int
    total_execution_time_ms: int
    total_token_usage: int
    total_cost_usd: float


class AgentExecution(TypedDict):
    """The state of a run: its plan, the results of its steps so far, and the outcome."""

    agent_run_id: str
    state: str
    plan: ExecutionPlan | None
    step_results: list[PlanStepResult]
    result: ExecutionResult | None


class AgentCalibration(TypedDict):
    silent: float
    notify: float
    confirm: float
    temperature: float
    ece: float | None
    sample_count: int


class AgentEvent(TypedDict):
    """One event of a run. `id` is its number, from 1."""

    id: int
    event: str
    data: Json


class ExecutionState(AgentExecution):
    """The state of a run after these events."""

    events: list[AgentEvent]


class CreateAgentRunOptions(TypedDict, total=False):
    project_id: str | None
    playbook: str | None
    collections: Sequence[str] | None
    plan: Mapping[str, Any] | None
    interactive: bool | None
    confirm_plan: bool | None
    previous_run_id: Id | None


def create_agent_run(query: str, **options: Unpack[CreateAgentRunOptions]) -> Request[AgentRun]:
    """Ask the agent. The run is queued; follow it with `follow_agent_run`."""
    return write_request("POST", RUNS, {"query": query, **drop_none(options)})


def list_agent_runs(
    *, project_id: str | None = None, state: str | None = None, limit: int = MAX_PAGE_SIZE
) -> Request[Page[AgentRun]]:
    """List agent runs without their steps, newest first. `limit` is the page size."""
    return get_request(RUNS, project_id=project_id, state=state, limit=limit)


def get_agent_run(agent_run_id: Id) -> Request[AgentRun]:
    """Get a run with its steps and its open question."""
    return get_request(api_path("agents", "runs", agent_run_id))


def get_agent_execution(agent_run_id: Id) -> Request[AgentExecution]:
    """Get the plan of a run, the results of its steps and the outcome."""
    return get_request(api_path("agents", "runs", agent_run_id, "execution"))


def stream_agent_events(agent_run_id: Id, *, after: int = 0, follow: bool = True) -> Request[str]:
    """Get the events of a run after a number as text: server-sent events. With `follow`, until the
    run has ended or waits for a person; otherwise the next ones. `follow_agent_run` yields them as
    they happen.
    """
    headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream"}
    path = api_path("agents", "runs", agent_run_id, "events")
    params = query_params({"follow": follow})
    return Request("GET", path, params, None, headers, response_format="text")


def list_interventions(agent_run_id: Id) -> Request[Page[Intervention]]:
    """List the questions of a run to a person, oldest first."""
    return get_request(api_path("agents", "runs", agent_run_id, "interventions"))


def answer_intervention(
    agent_run_id: Id,
    intervention_id: Id,
    action: InterventionAction,
    *,
    input: str | None = None,
) -> Request[AgentRun]:
    """Answer the open question of a run, which then goes on."""
    body = {"action": action, **drop_none({"input": input})}
    path = api_path("agents", "runs", agent_run_id, "interventions", intervention_id, "answer")
    return write_request("POST", path, body)


def cancel_agent_run(agent_run_id: Id) -> Request[AgentRun]:
    """Cancel a run. One that has ended stays as it is."""
    return write_request("POST", api_path("agents", "runs", agent_run_id, "cancel"))


def record_agent_feedback(
    agent_run_id: Id, verdict: Literal["right", "wrong"], *, answer: str | None = None
) -> Request[AgentRun]:
    """Record whether the answer was right, and the right answer if it is known."""
    body = {"verdict": verdict, **drop_none({"answer": answer})}
    return write_request("POST", api_path("agents", "runs", agent_run_id, "feedback"), body)


def get_calibration(*, project_id: str | None = None) -> Request[AgentCalibration]:
    """Get the thresholds of a project and the calibration of its confidence."""
    return get_request(api_path("agents", "calibration"), project_id=project_id)


def reset_agent_calibration(*, project_id: str | None = None) -> Request[None]:
    """Restore the configured thresholds. Earlier feedback no longer counts."""
    return write_request(
        "DELETE", api_path("agents", "calibration"), params={"project_id": project_id}
    )
