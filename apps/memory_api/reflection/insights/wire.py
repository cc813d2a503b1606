"""Trajectories over HTTP: what is sent, what is answered."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import AliasChoices, Field, field_validator

from apps.memory_api.core.schemas import MAX_EVENTS, Model, Name, PlaybookName, TenantBody
from apps.memory_api.reflection.insights.schemas import ReflectionResult, Trajectory

MOST_ROUNDS = 10


class SentTrajectory(Trajectory):
    """A trajectory within the limits of what is stored."""

    dataset: PlaybookName | Literal[""] = ""
    reasoning_steps: list[str] = Field(default_factory=list, max_length=MAX_EVENTS - 2)
    used_bullet_ids: list[Name] = Field(
        default_factory=list,
        max_length=1000,
        validation_alias=AliasChoices("used_bullet_ids", "used_keys"),
    )


class TrajectoryIn(TenantBody):
    """A trajectory to be reflected on (spec 1). `dataset` is the playbook; without it the
    trajectory's own.
    """

    project_id: Name | None = Field(None, validation_alias=AliasChoices("project_id", "project"))
    trajectory: SentTrajectory
    ground_truth: str = ""
    test_report: str = ""
    dataset: PlaybookName | None = Field(None, validation_alias=AliasChoices("dataset", "playbook"))
    max_iterations: int = Field(1, ge=1, le=MOST_ROUNDS)
    session_id: Name | None = None
    task_key: Name | None = None
    external_id: Name | None = None
    render_id: UUID | None = None

    @field_validator("ground_truth", "test_report", mode="before")
    @classmethod
    def _null_is_unknown(cls, value: Any) -> Any:
        return "" if value is None else value

    @property
    def playbook(self) -> str | None:
        return self.dataset or self.trajectory.dataset or None


class Failed(Model):
    """Why there is no answer of the model."""

    code: str
    message: str


class TrajectoryAnswer(ReflectionResult):
    """The result, and where it is kept: `insight_ids` are memories, in the order of `insights`;
    null for one that only repeats what the playbook had told.

    When the model fails, the result is empty (spec 1), `degraded` is true and `error` says why; the
    run is then failed and can be retried.
    """

    run_id: UUID
    trace_id: UUID
    insight_ids: list[UUID | None] = Field(default_factory=list[UUID | None])
    engine: str | None = None
    degraded: bool = False
    error: Failed | None = None
    next_run_id: UUID | None = None
    duplicate: bool = False
    cleaned: bool = False
