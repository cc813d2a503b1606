"""Retention on the wire."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasChoices, Field, model_validator

from memory_api.core.schemas import Name, Page, RequestModel, ResponseModel, with_examples

Days = Annotated[int, Field(ge=1, le=36_500)]
_POLICY: dict[str, Any] = {
    "project_id": "support",
    "event_days": 30,
    "trace_days": 365,
    "retrieval_days": 90,
    "llm_call_days": None,
}


class RetentionPolicyRequest(RequestModel):
    """How long the data of a project is stored."""

    project_id: Name | None = Field(
        default=None,
        validation_alias=AliasChoices("project_id", "project"),
        description="Null: every project without a policy of its own.",
    )
    event_days: Days | None = Field(
        default=None, description="Days that the events of a trace are stored. Null: as the trace."
    )
    trace_days: Days | None = Field(
        default=None, description="Days that a trace is stored. Null: no limit. Memories stay."
    )
    retrieval_days: Days | None = Field(
        default=None,
        description="Days that a retrieval is stored. Null: HANSEI_RETRIEVAL_RETENTION_DAYS.",
    )
    llm_call_days: Days | None = Field(
        default=None, description="Days that the record of a model call is stored. Null: no limit."
    )


class ReplaceRetentionRequest(RequestModel):
    """All retention policies of the tenant."""

    items: list[RetentionPolicyRequest] = Field(max_length=1_000)

    @model_validator(mode="after")
    def _check_unique(self) -> ReplaceRetentionRequest:
        projects = [item.project_id for item in self.items]
        if len(projects) != len(set(projects)):
            raise ValueError("Each project may have one policy.")
        return self


class RetentionPolicy(ResponseModel):
    """How long the data of a project is stored, in days."""

    model_config = with_examples(_POLICY)

    project_id: str | None = Field(description="Null: every project without its own policy.")
    event_days: int | None
    trace_days: int | None
    retrieval_days: int | None
    llm_call_days: int | None


class RetentionPolicyPage(Page[RetentionPolicy]):
    """All retention policies of the tenant."""
