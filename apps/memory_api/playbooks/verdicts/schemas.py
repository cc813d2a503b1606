"""Verdicts on bullets on the wire."""

from __future__ import annotations

from uuid import UUID

from pydantic import AliasChoices, Field

from memory_api.core.schemas import Metadata, Page, ResponseModel, UtcDatetime, with_examples
from memory_api.playbooks.models import MAX_TEXT, Bullet, VerdictTag
from memory_api.playbooks.schemas import EXAMPLE_ID, EXAMPLE_TIME, ProjectRequest
from memory_api.playbooks.verdicts.record import Judge, SubmittingJudge

_VERDICT = {
    "id": EXAMPLE_ID,
    "judge": "human",
    "tag": "helpful",
    "reason": "It kept the agent from charging twice.",
    "evidence": {"how": "cited"},
    "confirmed": False,
    "trace_id": None,
    "retrieval_id": None,
    "actor": f"key:{EXAMPLE_ID}",
    "created_at": EXAMPLE_TIME,
    "updated_at": EXAMPLE_TIME,
}


class RecordVerdictRequest(ProjectRequest):
    """A verdict on a bullet, in one trace or in general."""

    tag: VerdictTag
    judge: SubmittingJudge | None = Field(
        default=None,
        description="Default: `human` for an admin key, else `llm`. `human` needs an admin key.",
    )
    reason: str | None = Field(
        default=None,
        max_length=MAX_TEXT,
        validation_alias=AliasChoices("reason", "rationale", "evidence"),
    )
    trace_id: UUID | None = Field(
        default=None, description="The trace in which the bullet was used."
    )
    retrieval_id: UUID | None = Field(
        default=None, description="The search or render that gave the bullet."
    )


class Verdict(ResponseModel):
    """One verdict on a bullet."""

    model_config = ResponseModel.model_config | with_examples(_VERDICT)

    id: UUID
    judge: Judge
    tag: VerdictTag
    reason: str | None
    evidence: Metadata = Field(
        description="What the verdict rests on, such as the outcome or an event."
    )
    confirmed: bool = Field(
        description="For the judge `outcome`: whether a comparison of attempts confirms it."
    )
    trace_id: UUID | None
    retrieval_id: UUID | None
    actor: str | None
    created_at: UtcDatetime
    updated_at: UtcDatetime


class VerdictPage(Page[Verdict]):
    """One page of verdicts, newest first."""


class RecordVerdictResponse(ResponseModel):
    """A recorded verdict and the bullet that it belongs to."""

    verdict: Verdict
    key: str = Field(description="Key of the bullet; of the remaining one after a merge.")
    counted: bool = Field(description="Whether the counters of the bullet include the verdict.")
    quarantined: bool = Field(description="Whether this verdict put the bullet in quarantine.")
    bullet: Bullet
    sanitized: bool = Field(
        default=False, description="True if unstorable characters or secrets were replaced."
    )
