"""Published reports on the wire."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field

from memory_api.core.schemas import (
    Metadata,
    Page,
    ProjectId,
    RequestModel,
    ResponseModel,
    UtcDatetime,
    with_examples,
)

_ACCURACY: list[dict[str, Any]] = [
    {"phase": "primary", "arm": "none", "tasks": 30, "calls": 30, "failed": 0}
    | {"mean": 0.4, "low": 0.25, "high": 0.58},
    {"phase": "primary", "arm": "hansei", "tasks": 30, "calls": 30, "failed": 0}
    | {"mean": 0.9, "low": 0.74, "high": 0.97},
]
_COMPARISON: dict[str, Any] = {
    "first": "hansei",
    "second": "none",
    "tasks": 30,
    "mean": 0.5,
    "low": 0.29,
    "high": 0.65,
} | {"p": 0.00003, "better": 15, "worse": 0, "tasks_needed": 780}
_ADVICE: dict[str, Any] = {"arm": "hansei", "measures_nothing": False}
_REPORT: dict[str, Any] = {
    "plan": {
        "id": "20260301T101500-4f2a",
        "created_at": "2026-03-01T10:15:00+00:00",
        "agent": "python my_agent.py",
        "protocol": {
            "arms": ["none", "hansei"],
            "repeats": 1,
            "seed": 1,
            "feedback": "answer",
            "playbook": "support",
        },
        "window": 10,
        "sha256": "9f2c",
        "repeated_sha256": "77ab",
    },
    "tasks": {"stream": 40, "held_out": 30, "controls": 0},
    "calls": {"done": 140, "planned": 140},
    "primary": "held-out tasks",
    "accuracy": _ACCURACY,
    "comparisons": [_COMPARISON | {"became_right": ["basel-1"], "became_wrong": []}],
    **{name: [] for name in ("agentcl", "controls", "groups", "costs", "curve", "failures")},
    "advice": [
        _ADVICE
        | {"calls": 70, "rendered": 60, "cited": 52, "followed": 31, "judged": 40, "tokens": 412}
    ],
    "learning": {
        "traces": 40,
        "calls": 52,
        "calls_per_trace": 1.3,
        "input_tokens": 90_210,
        "output_tokens": 8_200,
        "usd": 0.031,
        "usd_per_trace": 0.000775,
        "usd_per_helpful_bullet": 0.005,
        "unpriced_calls": 0,
        "bullets": 8,
        "helpful_bullets": 6,
        "waiting": 0,
        "failed_runs": [],
        "projects": ["eval-20260301T101500-4f2a"],
    },
    "total_usd": 0.42,
    "notes": [],
}
CREATE_EXAMPLE: dict[str, Any] = {"report": _REPORT}
_PUBLISHED: dict[str, Any] = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa20",
    "project_id": "default",
    "evaluation_id": "20260301T101500-4f2a",
    "playbook": "support",
    "summary": {
        "arms": ["none", "hansei"],
        "agent": "python my_agent.py",
        "primary": "held-out tasks",
        "accuracy": _ACCURACY,
        "comparisons": [_COMPARISON],
        "advice": [_ADVICE],
        "calls": {"done": 140, "planned": 140},
        "failures": 0,
        "total_usd": 0.42,
    },
    "actor": "key:0190d2c4-6f5e-7a31-9c11-3a55d6f0aa01",
    "created_at": "2026-03-01T10:15:00Z",
    "published_at": "2026-03-01T11:02:41Z",
}


class CreateEvaluationReportRequest(RequestModel):
    """A report of `hansei eval`."""

    project_id: ProjectId = None
    report: Metadata = Field(description="The content of `report.json`.")


class EvaluationReport(ResponseModel):
    """A published report."""

    model_config = with_examples(_PUBLISHED)

    id: UUID
    project_id: str
    evaluation_id: str
    playbook: str | None = Field(description="The playbook that the memory started from.")
    summary: Metadata = Field(description="`report` without what is long.")
    actor: str
    created_at: UtcDatetime = Field(description="When the plan was written.")
    published_at: UtcDatetime


class EvaluationReportDetails(EvaluationReport):
    """A published report with its content."""

    model_config = with_examples(_PUBLISHED | {"report": _REPORT})

    report: Metadata


class EvaluationReportPage(Page[EvaluationReport]):
    """Reports, the newest evaluation first."""
