"""Runs on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from typing_extensions import TypeAliasType

from memory_api.core.schemas import Metadata, Page, ResponseModel, UtcDatetime, with_examples

RunState = TypeAliasType(
    "RunState",
    Annotated[
        Literal["queued", "running", "waiting", "done", "failed", "dead"],
        Field(
            description="`failed` and `dead` runs can be retried; a dead run has no attempts left. "
            "`waiting` is not used yet."
        ),
    ],
)


class Run(ResponseModel):
    """One execution of work.

    Learning is a chain of runs: evaluate, reflect, curate, apply. `parent_id` is the first run of
    the chain, `next_run_id` the run that follows.
    """

    model_config = with_examples(
        {
            "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa03",
            "kind": "reflect",
            "state": "dead",
            "project_id": "default",
            "parent_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa02",
            "next_run_id": None,
            "trace_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa04",
            "input": {},
            "attempt_count": 5,
            "max_attempts": 5,
            "error": {"type": "Lost", "message": "Its worker died 5 times."},
            "result": None,
            "engine": None,
            "degraded": False,
            "usage": None,
            "created_at": "2026-11-21T09:00:00Z",
            "started_at": "2026-11-21T09:01:00Z",
            "finished_at": "2026-11-21T09:03:00Z",
        }
    )

    id: UUID
    kind: str = Field(description="Kind of work, such as `evaluate`, `reflect` or `curate`.")
    state: RunState = Field(
        description="`failed`: an error that a retry does not fix. `dead`: out of attempts."
    )
    project_id: str
    parent_id: UUID | None = Field(description="The first run of the chain; null for the first.")
    next_run_id: UUID | None = Field(default=None, description="The run that follows in the chain.")
    trace_id: UUID | None
    input: Metadata
    attempt_count: int
    max_attempts: int
    error: Any = Field(description="Why the last attempt failed: `type` or `code`, and `message`.")
    result: Any = Field(description="The output of a finished run. Its form depends on `kind`.")
    engine: str | None = Field(description="What produced the result: `rules` or `llm`.")
    degraded: bool = Field(description="True if the rules replaced a failing model.")
    usage: Any = Field(description="Model calls of the run: tokens and cost in US dollars.")
    created_at: UtcDatetime
    started_at: UtcDatetime | None
    finished_at: UtcDatetime | None


class RunPage(Page[Run]):
    """One page of runs, newest first."""
