"""Credit for bullets by a run that is not reflected on: what tests, the run itself and its outcome
say of them, which costs no model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.jobs.tables import Run
from apps.memory_api.playbook.evaluate import Verdict
from apps.memory_api.reflection.count import Tally
from apps.memory_api.reflection.findings.find import find
from apps.memory_api.reflection.findings.schemas import Findings
from apps.memory_api.reflection.material import Material
from apps.memory_api.reflection.subject import load_subject
from apps.memory_api.reflection.verdicts import by_rules, prepare_verdicts, save_verdicts
from apps.memory_api.runtime import Runtime

Count = Callable[[AsyncSession], Awaitable[Tally]]
"""Counts what was found, in the transaction of the caller."""


async def credit(runtime: Runtime, run: Run) -> Count | None:
    """Judge the bullets that the trace of a run used. None when it used none and is no attempt of
    a task either, beside which those of other attempts can be seen.
    """
    async with runtime.sessions.tenant(run.tenant_id) as session:
        subject = await load_subject(session, run)
    if not subject.used and subject.trace.task_key is None:
        return None
    verdicts: list[Verdict] = []
    if subject.used:
        found = await asyncio.to_thread(_find, subject.material)
        verdicts = by_rules(subject.material, subject.used, found, run.id)
    ready = await prepare_verdicts(runtime, run.tenant_id, subject.place, verdicts)

    async def count(session: AsyncSession) -> Tally:
        return await save_verdicts(session, subject.trace, ready)

    return count


def _find(material: Material) -> Findings:
    evidence = material.evidence
    return find(
        material.context,
        attempts=evidence.attempts,
        ground_truth=evidence.ground_truth,
        test_report=evidence.test_report,
    )
