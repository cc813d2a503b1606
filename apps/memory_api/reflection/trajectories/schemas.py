"""Reflection on trajectories on the wire (spec 1; its ReflectionResult is TrajectoryResult)."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_validator
from typing_extensions import TypeAliasType

from memory_api.core.schemas import MAX_EVENTS, Name, PlaybookName, ProjectId, TenantRequest
from memory_api.playbooks.models import VerdictTag
from memory_api.reflection.schemas import ModelFailure

TrajectoryStatus = TypeAliasType("TrajectoryStatus", Literal["success", "failure"])


class Trajectory(BaseModel):
    """How an agent came to its answer."""

    model_config = ConfigDict(populate_by_name=True, extra="forbid")

    query: str
    generated_answer: str
    reasoning_steps: list[str] = Field(
        default_factory=list, description="In order. A string is split into lines."
    )
    used_bullet_ids: list[str] = Field(
        default_factory=list,
        validation_alias=AliasChoices("used_bullet_ids", "used_bullet_keys"),
        description="Keys of the bullets that the agent used.",
    )
    dataset: str = ""
    status: TrajectoryStatus | None = Field(
        default=None,
        description="The outcome as the agent sees it. Executed tests of a JUnit report take "
        "precedence. Without a status, the answer decides if it is the same as the `ground_truth`, "
        "or another number.",
    )
    error_message: str | None = None

    @field_validator("reasoning_steps", mode="before")
    @classmethod
    def _split_lines(cls, value: Any) -> Any:
        return value.splitlines() if isinstance(value, str) else value


class Insight(BaseModel):
    """A lesson and the analysis behind it."""

    reasoning: str = Field(description="How you came to this, from what the trajectory shows")
    error_identification: str = Field(description="What was wrong, exactly; empty if nothing was")
    root_cause_analysis: str = Field(description="Why it went wrong, or why it worked")
    correct_approach: str = Field(description="The correct approach, or what to repeat next time")
    key_insight: str = Field(description="The lesson as one rule: when, and what to do")


class BulletEvaluation(BaseModel):
    """A verdict on one bullet that the agent used."""

    bullet_id: str = Field(description="The bullet's id, without its brackets")
    tag: VerdictTag = Field(
        description="helpful: it was followed and did good; harmful: it was followed and led "
        "astray; neutral: neither can be seen"
    )
    reason: str = Field(description="What in the trajectory shows it, 1 sentence")


class TrajectoryResult(BaseModel):
    """Insights and verdicts. `iteration_count` is the number of completed iterations: 0 if the
    model failed in the first one.
    """

    insights: list[Insight]
    bullet_evaluations: list[BulletEvaluation]
    trajectory_query: str
    trajectory_dataset: str
    iteration_count: int = Field(default=1, ge=0, strict=True)


MAX_ITERATIONS = 10


class SubmittedTrajectory(Trajectory):
    """A trajectory within the limits of the service."""

    dataset: PlaybookName | Literal[""] = ""
    reasoning_steps: list[str] = Field(default_factory=list, max_length=MAX_EVENTS - 2)
    used_bullet_ids: list[Name] = Field(
        default_factory=list,
        max_length=1000,
        validation_alias=AliasChoices("used_bullet_ids", "used_bullet_keys"),
    )


class ReflectOnTrajectoryRequest(TenantRequest):
    """A trajectory to reflect on."""

    project_id: ProjectId = None
    trajectory: SubmittedTrajectory
    ground_truth: str = Field(default="", description="The correct answer; empty if unknown.")
    test_report: str = Field(
        default="",
        description="JUnit XML of tests, which decides the outcome. Other output is quoted.",
    )
    playbook: PlaybookName | None = Field(
        default=None,
        validation_alias=AliasChoices("playbook", "dataset"),
        description="Default: `dataset` of the trajectory. `dataset` is accepted too.",
    )
    max_iterations: int = Field(
        default=1,
        ge=1,
        le=MAX_ITERATIONS,
        description="Accepted and not used: the service analyzes once.",
    )
    session_id: Name | None = None
    task_key: Name | None = None
    external_id: Name | None = None
    retrieval_id: UUID | None = None

    @field_validator("ground_truth", "test_report", mode="before")
    @classmethod
    def _null_to_empty(cls, value: Any) -> Any:
        return "" if value is None else value

    @model_validator(mode="after")
    def _default_playbook(self) -> ReflectOnTrajectoryRequest:
        self.playbook = self.playbook or self.trajectory.dataset or None
        return self


class ReflectOnTrajectoryResponse(TrajectoryResult):
    """The result and where it is stored. If the model fails, the result is empty, `degraded` is
    true and `error` has the cause; the run can be retried.
    """

    run_id: UUID
    trace_id: UUID
    insight_ids: list[UUID | None] = Field(
        default_factory=list[UUID | None],
        description="Memories, in the order of `insights`. Null: the playbook already contains it.",
    )
    engine: str | None = Field(default=None, description="`rules` or `llm`.")
    degraded: bool = False
    error: ModelFailure | None = None
    next_run_id: UUID | None = Field(
        default=None, description="The run that follows, if there is one."
    )
    duplicate: bool = Field(default=False, description="True if the trajectory was sent before.")
    sanitized: bool = Field(
        default=False, description="True if unstorable characters were replaced."
    )
