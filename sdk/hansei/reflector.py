"""The reflector's two doors, trajectories and transcripts: requests, and the shapes of what is
sent and answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, Unpack

from hansei.answers import Outcome
from hansei.request import API, Request, given, write

Tag = Literal["helpful", "harmful", "neutral"]


class Trajectory(TypedDict):
    """How an agent came to its answer."""

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
    tag: Tag
    reason: str


class BulletTag(TypedDict):
    name: str
    tag: Tag
    rationale: str


class Failed(TypedDict):
    code: str
    message: str


class TrajectoryReflected(TypedDict):
    """Insights and verdicts; with `state` instead of the rest while a worker is at it. Empty, with
    `error`, when the model failed.
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
    error: NotRequired[Failed | None]
    next_run_id: NotRequired[str | None]
    duplicate: NotRequired[bool]
    cleaned: NotRequired[bool]


class TranscriptReflected(TypedDict):
    """What a session shows; `counted` are the bullets whose counters hold a verdict of it."""

    run_id: str
    trace_id: str
    state: NotRequired[str]
    analysis: NotRequired[str]
    bullet_tags: NotRequired[list[BulletTag]]
    cited_ids: NotRequired[list[str]]
    counted: NotRequired[list[str]]
    reflection_id: NotRequired[str | None]
    engine: NotRequired[str | None]
    degraded: NotRequired[bool]
    error: NotRequired[Failed | None]
    next_run_id: NotRequired[str | None]
    duplicate: NotRequired[bool]
    cleaned: NotRequired[bool]


class TrajectoryOptions(TypedDict, total=False):
    project_id: str | None
    ground_truth: str | None
    test_report: str | None
    dataset: str | None
    max_iterations: int | None
    session_id: str | None
    task_key: str | None
    external_id: str | None
    render_id: str | None


class TranscriptOptions(TypedDict, total=False):
    project_id: str | None
    playbook: str | None
    cited_ids: list[str] | None
    apply: bool | None
    session_id: str | None
    task_key: str | None
    task_description: str | None
    outcome: Outcome | None
    render_id: str | None
    external_id: str | None


def reflect_trajectory(
    trajectory: Trajectory, *, wait: bool = True, **options: Unpack[TrajectoryOptions]
) -> Request[TrajectoryReflected]:
    """Insights of how an agent came to an answer, and a verdict on each bullet it used."""
    body = {"trajectory": dict(trajectory), **given(options)}
    return write("POST", f"{API}/trajectories/reflect", body, headers=_prefer(wait))


def reflect_transcript(
    messages: Sequence[Mapping[str, Any]],
    *,
    wait: bool = True,
    **options: Unpack[TranscriptOptions],
) -> Request[TranscriptReflected]:
    """What a session shows of itself and of its playbook's bullets; counted once a session."""
    body = {"messages": [dict(message) for message in messages], **given(options)}
    return write("POST", f"{API}/transcripts/reflect", body, headers=_prefer(wait))


def _prefer(wait: bool) -> dict[str, str]:
    return {} if wait else {"Prefer": "respond-async"}
