"""The workflow on the wire (spec 2)."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import AliasChoices, Field, StringConstraints

from memory_api.core.schemas import (
    Name,
    PlaybookName,
    ProjectId,
    ResponseModel,
    TenantRequest,
    with_examples,
)


class RunWorkflowRequest(TenantRequest):
    """A query and the playbook to answer it with (`dataset` is accepted too)."""

    query: Annotated[str, StringConstraints(strip_whitespace=True)] = Field(
        min_length=1, max_length=100_000
    )
    playbook: PlaybookName = Field(
        default="default", validation_alias=AliasChoices("playbook", "dataset")
    )
    project_id: ProjectId = None
    task_key: Name | None = Field(
        default=None, description="Traces with the same key are attempts at one task."
    )


class RunWorkflowResponse(ResponseModel):
    """The answer, and the trace whose outcome you record later."""

    model_config = with_examples(
        {
            "llm_response": "Cancel the order; a pending one cannot be refunded [str-00001].",
            "search_results_count": 1,
            "bullet_keys": ["str-00001"],
            "retrieval_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa05",
            "trace_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa04",
            "run_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa03",
            "engine": "llm",
            "degraded": False,
        }
    )

    llm_response: str
    search_results_count: int
    bullet_keys: list[str] = Field(description="Keys of the bullets in the prompt, best first.")
    retrieval_id: UUID | None = Field(description="The search; null if the playbook is unknown.")
    trace_id: UUID
    run_id: UUID
    engine: str = Field(description="`llm`, or `rules` without a model.")
    degraded: bool = Field(description="True if the rules replaced a failing model.")
