"""Gives verdicts to the bullets that a trace used: prepares them, records them, and quarantines
bullets that turn out to be harmful.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.memories.index.drafts import PreparedMemory
from memory_api.playbooks.errors import PlaybookNotFound
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.verdicts.quarantine import (
    QUARANTINE_ACTOR,
    quarantine_harmful_bullets,
)
from memory_api.playbooks.verdicts.record import NewVerdict, prepare_reasons
from memory_api.reflection.bullet_usage import load_bullet_usage
from memory_api.reflection.credit.judge import outcome_verdicts
from memory_api.reflection.credit.outcome_contrast import CreditResult, record_and_compare
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.schemas import Event, OutcomeType
from memory_api.traces.tables import TraceRow


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


async def save_verdicts(
    session: AsyncSession, trace: TraceRow, prepared: PreparedVerdicts
) -> CreditResult:
    """Record the verdicts, and count the outcomes that the comparison of attempts now confirms.

    Call it first in the transaction: it locks playbooks and bullets, and a transaction that waits
    for a playbook must not hold the lock of scopes and labels yet.
    """
    return await record_and_compare(
        session, prepared.playbook, trace, prepared.verdicts, prepared.reasons
    )


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


async def quarantine_suspects(
    runtime: Runtime, tenant_id: UUID, run_id: UUID, playbooks: Sequence[PlaybookRef]
) -> None:
    """Take harmful bullets of these playbooks out of service, after their verdicts are committed.
    Upkeep does it too, so nothing is lost if this process dies before.
    """
    for playbook in playbooks:
        with suppress(PlaybookNotFound):  # deleted meanwhile
            await quarantine_harmful_bullets(
                runtime, tenant_id, playbook, ChangeAuthor(QUARANTINE_ACTOR, run_id=run_id)
            )
