"""Verdicts on the bullets that a trace used: that of its outcome, and those of a model, limited to
what the run can show. The next upkeep quarantines bullets that turn out to be harmful.

A program cannot tell what a bullet advises: "Use the ID from `get_order`" recommends no call. So
without a model, only the outcome is a verdict. It is evidence, until other attempts at the task
confirm it (`outcome_contrast`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from memory_api.memories.index.drafts import PreparedMemory
from memory_api.playbooks.models import VerdictTag
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.verdicts.record import NewVerdict, prepare_reasons
from memory_api.reflection.bullet_usage import UsedBullet, load_bullet_usage
from memory_api.reflection.model_output import ModelVerdict
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.schemas import Event, OutcomeType
from memory_api.traces.tables import TraceRow

FAILURE_OUTCOMES = frozenset({OutcomeType.FAILURE, OutcomeType.ERROR, OutcomeType.TIMEOUT})
ACKNOWLEDGED_USES = frozenset({"named", "cited"})
"""Uses that the trace states. A bullet that was only in the prompt may have been ignored."""


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
    model_verdicts: Iterable[ModelVerdict],
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
    first: dict[str, ModelVerdict] = {}
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


@dataclass(frozen=True)
class PreparedVerdicts:
    """Verdicts with their embedded reasons, ready for the transaction. `playbook` is None if the
    trace has no playbook.
    """

    playbook: PlaybookRef | None
    verdicts: Sequence[NewVerdict] = ()
    reasons: Mapping[str, PreparedMemory] = field(default_factory=dict[str, PreparedMemory])


async def prepare_verdicts(
    runtime: Runtime, tenant_id: UUID, playbook: PlaybookRef | None, verdicts: Sequence[NewVerdict]
) -> PreparedVerdicts:
    """Embed the reasons. No transaction may be open."""
    if playbook is None or not verdicts:
        return PreparedVerdicts(playbook)
    reasons = await prepare_reasons(runtime, tenant_id, playbook, verdicts)
    return PreparedVerdicts(playbook, verdicts, reasons)


async def prepare_credit(
    runtime: Runtime, run: RunRow, trace: TraceRow, events: Sequence[Event]
) -> PreparedVerdicts | None:
    """The verdicts of a trace that is not reflected on: its outcome. None if it used no bullet and
    is no attempt at a task, so that there is nothing to record or compare.
    """
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        usage = await load_bullet_usage(session, trace, events)
    if not usage.bullets and trace.task_key is None:
        return None
    outcome = OutcomeType(trace.outcome) if trace.outcome else None
    verdicts = outcome_verdicts(usage.bullets, outcome, trace_id=trace.id, run_id=run.id)
    return PreparedVerdicts(usage.playbook, verdicts)  # an outcome has no reason to embed
