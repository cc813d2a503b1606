"""Verdicts on the bullets of one trace, counted: those of tests and rules, and the model's, which
are held within what the run can show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.memory.prepare import Prepared
from apps.memory_api.playbook.errors import NoPlaybook
from apps.memory_api.playbook.evaluate import Verdict, prepare_reasons
from apps.memory_api.playbook.quarantine import ACTOR, quarantine
from apps.memory_api.playbook.rows import Author, Place
from apps.memory_api.reflection.count import Tally, count
from apps.memory_api.reflection.findings.schemas import Findings
from apps.memory_api.reflection.judge import judge, of_model
from apps.memory_api.reflection.material import Material
from apps.memory_api.reflection.response import BulletVerdict
from apps.memory_api.reflection.used import UsedBullet
from apps.memory_api.runtime import Runtime
from apps.memory_api.traces.tables import Trace


@dataclass(frozen=True)
class Ready:
    """Verdicts and their reasons, ready to be kept. `place` None: there is no playbook."""

    place: Place | None
    verdicts: Sequence[Verdict] = ()
    reasons: Mapping[str, Prepared] = field(default_factory=dict[str, Prepared])


def by_rules(
    material: Material, used: Sequence[UsedBullet], found: Findings, run_id: UUID
) -> list[Verdict]:
    """Of tests and rules; and of the outcome, where somebody said how the run ended."""
    trace = material.trace
    told = judge(used, material.context, material.evidence, found, trace_id=trace.id, run_id=run_id)
    return [v for v in told if v.judge != "outcome" or trace.outcome is not None]


def by_model(
    material: Material, used: Sequence[UsedBullet], said: Sequence[BulletVerdict], run_id: UUID
) -> list[Verdict]:
    """Of the model, held within what the run can show."""
    outcome = material.context.outcome
    return of_model(said, used, outcome, trace_id=material.trace.id, run_id=run_id)


async def prepare_verdicts(
    runtime: Runtime, tenant_id: UUID, place: Place | None, verdicts: Sequence[Verdict]
) -> Ready:
    """No transaction may be open."""
    if place is None or not verdicts:
        return Ready(place)
    return Ready(place, verdicts, await prepare_reasons(runtime, tenant_id, place, verdicts))


async def save_verdicts(session: AsyncSession, trace: Trace, ready: Ready) -> Tally:
    """Count them, and what the trace's outcome now confirms in its task."""
    return await count(session, ready.place, trace, ready.verdicts, ready.reasons)


async def settle_verdicts(runtime: Runtime, tenant_id: UUID, run_id: UUID, tally: Tally) -> None:
    """What has harmed too often is served no more, as soon as that is counted and committed. Upkeep
    looks again, so nothing is lost if this process ends before it.
    """
    for place in tally.suspected:
        with suppress(NoPlaybook):  # taken away meanwhile
            await quarantine(runtime, tenant_id, place, Author(ACTOR, run_id=run_id))
