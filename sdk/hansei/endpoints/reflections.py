"""Requests that reflect on events, trajectories and transcripts, and the workflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, Unpack

from hansei._request import (
    API,
    Request,
    drop_none,
    prefer_header,
    query_request,
    write_request,
)
from hansei.types import (
    CreateReflectionResponse,
    GenerateReflectionResponse,
    Json,
    OutcomeType,
    QueryReflectionsResponse,
    ToolDefinition,
    VerdictTag,
)


class Trajectory(TypedDict):
    """A query, the agent's answer and its reasoning."""

    query: str
    generated_answer: str
    reasoning_steps: NotRequired[list[str]]
    used_bullet_ids: NotRequired[list[str]]
    dataset: NotRequired[str]
    status: NotRequired[Literal["success", "failure"] | None]
    error_message: NotRequired[str | None]


class Insight(TypedDict):
    reasoning: str
    error_identification: str
    root_cause_analysis: str
    correct_approach: str
    key_insight: str


class BulletEvaluation(TypedDict):
    bullet_id: str
    tag: VerdictTag
    reason: str


class TranscriptTag(TypedDict):
    name: str
    tag: VerdictTag
    rationale: str


class TranscriptInsight(TypedDict):
    """A rule for later sessions."""

    memory_id: str
    content: str
    is_new: bool


class ModelFailure(TypedDict):
    code: str
    message: str


class ReflectOnTrajectoryResponse(TypedDict):
    """Insights and verdicts. A queued run has only `run_id`, `trace_id` and `state`.

    If the model fails, the lists are empty and `error` is set.
    """

    run_id: str
    trace_id: str
    state: NotRequired[str]
    insights: NotRequired[list[Insight]]
    bullet_evaluations: NotRequired[list[BulletEvaluation]]
    trajectory_query: NotRequired[str]
    trajectory_dataset: NotRequired[str]
    iteration_count: NotRequired[int]
    insight_ids: NotRequired[list[str | None]]
    engine: NotRequired[str | None]
    degraded: NotRequired[bool]
    error: NotRequired[ModelFailure | None]
    next_run_id: NotRequired[str | None]
    duplicate: NotRequired[bool]
    sanitized: NotRequired[bool]


class ReflectOnTranscriptResponse(TypedDict):
    """An analysis, insights and tags. A queued run has only `run_id`, `trace_id` and `state`.

    `counted_bullet_keys` are the bullets whose counters include a verdict of this transcript.
    """

    run_id: str
    trace_id: str
    state: NotRequired[str]
    analysis: NotRequired[str]
    bullet_tags: NotRequired[list[TranscriptTag]]
    cited_ids: NotRequired[list[str]]
    counted_bullet_keys: NotRequired[list[str]]
    insights: NotRequired[list[TranscriptInsight]]
    event_count: NotRequired[int]
    reflection_id: NotRequired[str | None]
    engine: NotRequired[str | None]
    degraded: NotRequired[bool]
    error: NotRequired[ModelFailure | None]
    next_run_id: NotRequired[str | None]
    duplicate: NotRequired[bool]
    sanitized: NotRequired[bool]


class RunWorkflowResponse(TypedDict):
    """The answer to a query. Pass `trace_id` to `record_outcome` when the outcome is known."""

    llm_response: str
    search_results_count: int
    bullet_keys: list[str]
    retrieval_id: str | None
    trace_id: str
    run_id: str
    engine: str
    degraded: bool


class GenerateReflectionOptions(TypedDict, total=False):
    project_id: str | None
    playbook: str | None
    session_id: str | None
    error: Json | str | None
    task_description: str | None
    task_goal: str | None
    related_memory_ids: list[str] | None
    task_key: str | None
    external_id: str | None
    tools: Sequence[ToolDefinition | Json | str] | None


class CreateReflectionOptions(TypedDict, total=False):
    project_id: str | None
    session_id: str | None
    strategy_text: str | None
    importance: float | None
    confidence: float | None
    tags: list[str] | None
    error_category: str | None
    trace_id: str | None
    metadata: Json | None


class QueryReflectionsOptions(TypedDict, total=False):
    project_id: str | None
    k: int | None
    min_importance: float | None
    tags: list[str] | None
    kinds: list[str] | None
    error_categories: list[str] | None
    since: str | None
    until: str | None


class ReflectOnTrajectoryOptions(TypedDict, total=False):
    project_id: str | None
    ground_truth: str | None
    test_report: str | None
    playbook: str | None
    max_iterations: int | None
    session_id: str | None
    task_key: str | None
    external_id: str | None
    retrieval_id: str | None


class ReflectOnTranscriptOptions(TypedDict, total=False):
    project_id: str | None
    playbook: str | None
    cited_ids: list[str] | None
    record_verdicts: bool | None
    session_id: str | None
    task_key: str | None
    task_description: str | None
    outcome: OutcomeType | None
    retrieval_id: str | None
    external_id: str | None
    tools: Sequence[ToolDefinition | Json | str] | None


def generate_reflection(
    events: Sequence[Mapping[str, Any]],
    outcome: OutcomeType,
    *,
    wait: bool = True,
    **options: Unpack[GenerateReflectionOptions],
) -> Request[GenerateReflectionResponse]:
    """Reflect on the events of one agent run.

    With `wait=False` a worker generates the reflection. Pass the `run_id` to `wait_for_run`.
    """
    body = {"events": list(events), "outcome": outcome, **drop_none(options)}
    path = f"{API}/reflections/generate"
    return write_request("POST", path, body, headers=prefer_header(wait))


def create_reflection(
    reflection_text: str, **options: Unpack[CreateReflectionOptions]
) -> Request[CreateReflectionResponse]:
    """Store your own reflection without a call to a model."""
    body = {"reflection_text": reflection_text, **drop_none(options)}
    return write_request("POST", f"{API}/reflections", body)


def query_reflections(
    query_text: str | None = None, **options: Unpack[QueryReflectionsOptions]
) -> Request[QueryReflectionsResponse]:
    """Search reflections and strategies for a task, best first.

    Without `query_text`, returns the most useful ones.
    """
    body = drop_none({"query_text": query_text, **options})
    return query_request(f"{API}/reflections/query", body)


def reflect_on_trajectory(
    trajectory: Trajectory, *, wait: bool = True, **options: Unpack[ReflectOnTrajectoryOptions]
) -> Request[ReflectOnTrajectoryResponse]:
    """Get insights from a trajectory and a verdict on each bullet that the agent used."""
    body = {"trajectory": dict(trajectory), **drop_none(options)}
    path = f"{API}/trajectories/reflect"
    return write_request("POST", path, body, headers=prefer_header(wait))


def reflect_on_transcript(
    messages: Sequence[Mapping[str, Any]],
    *,
    wait: bool = True,
    **options: Unpack[ReflectOnTranscriptOptions],
) -> Request[ReflectOnTranscriptResponse]:
    """Analyze a chat session and record a verdict on each bullet of its playbook.

    Each session counts once.
    """
    body = {"messages": [dict(message) for message in messages], **drop_none(options)}
    path = f"{API}/transcripts/reflect"
    return write_request("POST", path, body, headers=prefer_header(wait))


def run_workflow(
    query: str,
    playbook: str = "default",
    *,
    project_id: str | None = None,
    task_key: str | None = None,
) -> Request[RunWorkflowResponse]:
    """Answer a query with the bullets of a playbook.

    Without a model, the answer is the matching bullets and `engine` is "rules".
    """
    options = drop_none({"project_id": project_id, "task_key": task_key})
    body = {"query": query, "dataset": playbook, **options}
    return write_request("POST", f"{API}/workflow/run", body)
