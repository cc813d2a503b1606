"""Verdicts on the bullets that a run used: that of its outcome, and those of a model, limited to
what the run can show.

A program cannot tell what a bullet advises: "Use the ID from `get_order`" recommends no call. So
without a model, only the outcome is a verdict. It is evidence, until other attempts at the task
confirm it (`outcome_contrast`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol
from uuid import UUID

from memory_api.playbooks.models import VerdictTag
from memory_api.playbooks.verdicts.record import NewVerdict
from memory_api.reflection.bullet_usage import UsedBullet
from memory_api.traces.schemas import OutcomeType

FAILURE_OUTCOMES = frozenset({OutcomeType.FAILURE, OutcomeType.ERROR, OutcomeType.TIMEOUT})
ACKNOWLEDGED_USES = frozenset({"named", "cited"})
"""Uses that the trace states. A bullet that was only in the prompt may have been ignored."""


class TaggedBullet(Protocol):
    """A model's verdict on one bullet."""

    @property
    def key(self) -> str: ...
    @property
    def tag(self) -> VerdictTag: ...
    @property
    def reason(self) -> str: ...


def outcome_verdicts(
    used: Sequence[UsedBullet],
    outcome: OutcomeType | None,
    *,
    trace_id: UUID,
    run_id: UUID | None = None,
) -> list[NewVerdict]:
    """The outcome of the run as evidence on each used bullet; none if it is not known."""
    if outcome is None:
        return []
    tag: VerdictTag = "neutral"
    if outcome is OutcomeType.SUCCESS:
        tag = "helpful"
    elif outcome in FAILURE_OUTCOMES:
        tag = "harmful"
    return [
        NewVerdict(
            bullet.key,
            tag,
            "outcome",
            trace_id=trace_id,
            retrieval_id=bullet.retrieval_id,
            evidence={"outcome": outcome.value, "how": bullet.usage},
            actor="judge:outcome",
            run_id=run_id,
        )
        for bullet in used
    ]


def limit_model_verdicts(
    model_verdicts: Iterable[TaggedBullet],
    used: Sequence[UsedBullet],
    outcome: OutcomeType,
    *,
    trace_id: UUID,
    run_id: UUID | None = None,
) -> list[NewVerdict]:
    """A model's verdicts, limited to what the run can show: on used bullets only, one each, not
    helpful in a failed run, not harmful in a successful run or on a bullet that was only in the
    prompt. A verdict beyond these limits becomes neutral.
    """
    bullets = {bullet.key: bullet for bullet in used}
    first: dict[str, TaggedBullet] = {}
    for verdict in model_verdicts:
        if verdict.key in bullets:
            first.setdefault(verdict.key, verdict)
    verdicts: list[NewVerdict] = []
    for key, verdict in first.items():
        bullet = bullets[key]
        tag = verdict.tag
        if tag == "helpful" and outcome in FAILURE_OUTCOMES:
            tag = "neutral"
        if tag == "harmful" and (
            outcome is OutcomeType.SUCCESS or bullet.usage not in ACKNOWLEDGED_USES
        ):
            tag = "neutral"
        details = {"how": bullet.usage} | ({"said": verdict.tag} if tag != verdict.tag else {})
        verdicts.append(
            NewVerdict(
                key,
                tag,
                "llm",
                reason=verdict.reason or None,
                trace_id=trace_id,
                retrieval_id=bullet.retrieval_id,
                evidence=details,
                actor="judge:llm",
                run_id=run_id,
            )
        )
    return verdicts
