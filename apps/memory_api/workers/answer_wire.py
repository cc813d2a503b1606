"""The workflow over HTTP: what is asked and what is answered (spec 2)."""

from __future__ import annotations

from uuid import UUID

from pydantic import AliasChoices, Field

from apps.memory_api.core.openapi import shown
from apps.memory_api.core.schemas import Model, Name, PlaybookName, TenantBody


class WorkflowRequest(TenantBody):
    """A query, and the playbook that may help with it (`dataset`)."""

    query: str = Field(min_length=1, max_length=100_000)
    dataset: PlaybookName = Field("appworld", validation_alias=AliasChoices("dataset", "playbook"))
    project_id: Name | None = Field(None, validation_alias=AliasChoices("project_id", "project"))
    task_key: Name | None = None


class WorkflowAnswer(Model):
    """The answer, and the names by which its outcome is reported: POST
    /api/v1/traces/{trace_id}/outcome. `shown_keys` are the bullets it was given, best first.
    """

    model_config = shown(
        {
            "llm_response": "Cancel the order; a pending one cannot be refunded [str-00001].",
            "search_results_count": 1,
            "shown_keys": ["str-00001"],
            "render_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa05",
            "trace_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa04",
            "run_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa03",
            "engine": "llm",
            "degraded": False,
        }
    )

    llm_response: str
    search_results_count: int
    shown_keys: list[str]
    render_id: UUID | None
    trace_id: UUID
    run_id: UUID
    engine: str
    degraded: bool
