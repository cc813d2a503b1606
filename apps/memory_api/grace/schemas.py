"""Agent runs on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AliasChoices, Field, StringConstraints
from typing_extensions import TypeAliasType

from memory_api.core.schemas import (
    Name,
    Page,
    PlaybookName,
    ProjectId,
    ResponseModel,
    TenantRequest,
    UtcDatetime,
    with_examples,
)
from memory_api.grace.execution_plan import (
    ExecutionPlan,
    ExecutionResult,
    PlanStepResult,
    StepState,
)

AgentRunState = TypeAliasType(
    "AgentRunState",
    Annotated[
        Literal["queued", "running", "waiting", "done", "failed", "cancelled"],
        Field(description="`waiting`: a person is asked; see `intervention`."),
    ],
)
InterventionAction = TypeAliasType(
    "InterventionAction",
    Annotated[
        Literal["proceed", "modify", "cancel", "input", "retry", "skip"],
        Field(description="What a person decides. `modify` and `input` need a text."),
    ],
)


class CreateAgentRunRequest(TenantRequest):
    """A question for the agent."""

    query: Annotated[str, StringConstraints(strip_whitespace=True)] = Field(
        min_length=1, max_length=10_000
    )
    project_id: ProjectId = None
    playbook: PlaybookName | None = Field(
        default=None,
        validation_alias=AliasChoices("playbook", "dataset"),
        description="The playbook that the agent follows and that learns from the run.",
    )
    collections: list[Name] = Field(
        default_factory=list,
        max_length=32,
        description="Search these only, in this order. Default: all of the project.",
    )
    plan: dict[str, Any] | None = Field(
        default=None,
        description="A plan of your own (`steps` as in `AgentRun.plan`) instead of the planner's.",
    )
    interactive: bool | None = Field(
        default=None,
        description="False: a result of middle confidence does not stop the run. Default: "
        "GRACE_INTERVENTION_INTERACTIVE.",
    )
    confirm_plan: bool = Field(
        default=False, description="True: a person confirms the plan before it is carried out."
    )
    previous_run_id: UUID | None = Field(
        default=None,
        description="The run that this question follows up on. It must be done; its question and"
        " answer, and those before it, are context.",
    )


class EarlierAnswer(ResponseModel):
    """An earlier question of a conversation and its answer."""

    question: str
    answer: str


INTERVENTION: dict[str, Any] = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa09",
    "kind": "step",
    "level": "escalate",
    "step_id": 1,
    "message": "Step 1 (rag_search) has a confidence of 0.21. Ask with other words.",
    "options": ["input", "proceed", "modify", "retry", "skip", "cancel"],
    "state": "open",
    "action": None,
    "input": None,
    "default_action": "cancel",
    "expires_at": "2026-11-21T09:05:00Z",
    "created_at": "2026-11-21T09:00:00Z",
    "answered_at": None,
}


class Intervention(ResponseModel):
    """A question to a person."""

    model_config = with_examples(INTERVENTION)

    id: UUID
    kind: str = Field(description="`plan`, `step`, `question` (of the agent) or `interrupted`.")
    level: str = Field(description="`confirm` or `escalate`.")
    step_id: int | None
    message: str
    options: list[str] = Field(description="Actions that answer it.")
    state: str = Field(description="`open`, `answered`, `expired` or `cancelled`.")
    action: str | None
    input: str | None
    default_action: str = Field(description="Taken at `expires_at` if nobody answers.")
    expires_at: UtcDatetime | None
    created_at: UtcDatetime
    answered_at: UtcDatetime | None


class AnswerInterventionRequest(TenantRequest):
    """The decision of a person."""

    action: InterventionAction
    input: str | None = Field(
        default=None, max_length=10_000, description="The text that it needs."
    )


class RecordAgentFeedbackRequest(TenantRequest):
    """Whether the answer of a run was right."""

    feedback: Literal["right", "wrong"]
    answer: str | None = Field(
        default=None, max_length=20_000, description="The right answer, if it is known."
    )


class PlanStepView(ResponseModel):
    """A plan step and its result."""

    step_id: int
    action: str
    description: str
    query: str | None
    collection: str | None
    depends_on: list[int]
    fallback: str | None
    state: str = Field(
        description="`pending`, `running`, `success`, `partial`, `failed` or `skipped`."
    )
    attempt_count: int
    output: str | None
    confidence: float | None = Field(description="0 to 1.")
    breakdown: dict[str, float] = Field(
        description="What the confidence consists of; of a search also hits, max, mean, variance"
        " and agreement."
    )
    penalties: list[str]
    level: str | None = Field(description="`silent`, `notify`, `confirm` or `escalate`.")
    sources: list[dict[str, Any]]
    error: str | None


AGENT_RUN: dict[str, Any] = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa08",
    "project_id": "default",
    "query": "Can a pending order be refunded?",
    "playbook": "support",
    "collections": ["handbook"],
    "state": "done",
    "outcome": "success",
    "answer": "A pending order cannot be refunded. Cancel it instead. [1]",
    "found": True,
    "confidence": 0.81,
    "sources": [
        {
            "source": "refunds.md",
            "content": "A pending order cannot be refunded. Cancel it instead.",
            "score": 0.81,
            "title": "Refunds",
            "collection": "handbook",
            "page": 1,
            "start": 12,
            "end": 66,
        }
    ],
    "plan_id": "5f0c2ab9d1e3",
    "complexity": 0.3,
    "engine": "template",
    "cited_bullet_keys": [],
    "steps": [],
    "intervention": None,
    "replan_count": 0,
    "token_count": 0,
    "cost_usd": 0.0,
    "error": None,
    "feedback": None,
    "previous_run_id": None,
    "conversation": [],
    "trace_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa04",
    "created_at": "2026-11-21T09:00:00Z",
    "started_at": "2026-11-21T09:00:00Z",
    "finished_at": "2026-11-21T09:00:01Z",
}


class AgentRun(ResponseModel):
    """A run of the agent."""

    model_config = with_examples(AGENT_RUN)

    id: UUID
    project_id: str
    query: str
    playbook: str | None
    collections: list[str]
    state: AgentRunState
    outcome: str | None = Field(
        description="How it ended: `success`, `partial`, `failed` or `cancelled`."
    )
    answer: str | None
    found: bool | None = Field(description="False if the sources do not answer the question.")
    confidence: float | None = Field(description="Calibrated confidence in the answer, 0 to 1.")
    sources: list[dict[str, Any]] = Field(description="The passages that the answer cites.")
    plan_id: str | None
    complexity: float | None
    engine: str | None = Field(
        description="What made the plan: `template`, `llm`, or `caller` if the request had a plan."
    )
    cited_bullet_keys: list[str] = Field(
        description="Bullets of the playbook that the plan follows."
    )
    steps: list[PlanStepView] = Field(description="Empty in lists.")
    intervention: Intervention | None = Field(description="The open question, in state `waiting`.")
    replan_count: int
    token_count: int
    cost_usd: float | None = Field(description="None if the price of the model is unknown.")
    error: Any
    feedback: str | None
    previous_run_id: UUID | None = Field(description="The run that the question follows up on.")
    conversation: list[EarlierAnswer] = Field(
        description="Earlier questions and answers of the conversation, oldest first."
    )
    trace_id: UUID | None
    created_at: UtcDatetime
    started_at: UtcDatetime | None
    finished_at: UtcDatetime | None


class AgentExecution(ResponseModel):
    """The state of a run: its plan, the results of its steps so far, and the outcome."""

    model_config = with_examples(
        {"agent_run_id": "0190c5f2-7c3e-7b1a-9d2f-3e4a5b6c7d8e", "state": "running",
         "plan": None, "step_states": {}, "step_results": [], "result": None}
    )  # fmt: skip

    agent_run_id: UUID
    state: AgentRunState
    plan: ExecutionPlan | None
    step_states: dict[int, StepState] = Field(description="The state of each step by its ID.")
    step_results: list[PlanStepResult]
    result: ExecutionResult | None = Field(description="Once the run has ended.")


class AgentRunPage(Page[AgentRun]):
    """One page of agent runs, newest first."""


class InterventionPage(Page[Intervention]):
    """The interventions of a run, oldest first."""


class AgentCalibration(ResponseModel):
    """Thresholds of a project and the calibration of its scores."""

    model_config = with_examples(
        {"silent": 0.9, "notify": 0.7, "confirm": 0.4, "temperature": 0.8, "ece": 0.06,
         "sample_count": 40}
    )  # fmt: skip

    silent: float
    notify: float
    confirm: float
    temperature: float = Field(description="Divides the logit of a score; 1 changes nothing.")
    ece: float | None = Field(description="Expected calibration error with ten bins.")
    sample_count: int = Field(description="Runs with feedback that the calibration rests on.")
