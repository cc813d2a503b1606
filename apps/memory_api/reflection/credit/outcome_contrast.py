"""When an outcome counts for a bullet: attempts at one task with the bullet against those without.

Where most runs fail, a failure says nothing about the bullets that were served. So an outcome
changes a counter only if, within one task,

    at least MIN_ATTEMPTS_PER_SIDE attempts ended with the bullet and as many without it,
    a larger share of them succeeded with it (or a smaller one), and
    that is certain: the probability that the success rate with it is higher (lower) than without
    it is at least MIN_CERTAINTY. Both rates have a uniform prior, which makes them
    Beta(1 + successes, 1 + failures).

Then one success (or failure) of the attempts with the bullet counts: one comparison is one verdict,
however many attempts it took, because more would not be independent. A hash of the attempt's ID
chooses which outcome it is, so the same attempts always give the same result. MIN_CERTAINTY is high
because there are many tasks and each may be wrong: docs/decisions/counting.md has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.statements import Statement, fetch_rows, load_statement
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.models import VerdictTag
from memory_api.playbooks.queries import find_bullets, get_playbook, list_verdicts_of_trace
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.tables import PlaybookRow
from memory_api.playbooks.verdicts.record import (
    RecordedVerdict,
    record_verdicts_in_session,
    set_outcome_confirmed,
)
from memory_api.reflection.credit.verdicts import PreparedVerdicts
from memory_api.traces.tables import TraceRow

MIN_ATTEMPTS_PER_SIDE = 2
MIN_CERTAINTY = 0.99
MAX_ATTEMPTS = 200
"""Attempts of a task that are compared, the latest. The counted outcomes of older ones stay."""
TASK_KEYS = load_statement("reflection/credit/credit.sql", "task_keys")
TASK_SIDES = load_statement("reflection/credit/credit.sql", "task_sides")
TASK_FLIPS = load_statement("reflection/credit/credit.sql", "task_flips")


@dataclass(frozen=True, slots=True)
class AttemptCounts:
    """Attempts at one task that ended in success or failure, with a bullet and without it."""

    with_count: int
    with_successes: int
    without_count: int
    without_successes: int


def outcome_tag(counts: AttemptCounts) -> VerdictTag | None:
    """The tag of the outcome that counts; None if the attempts say nothing about the bullet."""
    if min(counts.with_count, counts.without_count) < MIN_ATTEMPTS_PER_SIDE:
        return None
    probability = probability_better(counts)
    # The success rates must differ too: with a prior alone, two of two would look worse than ten
    # of ten.
    lead = (
        counts.with_successes * counts.without_count - counts.without_successes * counts.with_count
    )
    if probability >= MIN_CERTAINTY and lead > 0:
        return "helpful"
    return "harmful" if probability <= 1 - MIN_CERTAINTY and lead < 0 else None


def probability_better(counts: AttemptCounts) -> float:
    """P(X > Y), 0 to 1, for X ~ Beta(1 + successes, 1 + failures) with the bullet and Y likewise
    without it.

    The sum over i < a of B(c + i, b + d) / ((b + i) B(1 + i, b) B(c, d)) for X ~ Beta(a, b) and
    Y ~ Beta(c, d) with whole parameters, by partial integration of the beta densities.
    """
    a, b = 1 + counts.with_successes, 1 + counts.with_count - counts.with_successes
    c, d = 1 + counts.without_successes, 1 + counts.without_count - counts.without_successes
    terms = (
        _log_beta(c + i, b + d) - math.log(b + i) - _log_beta(1 + i, b) - _log_beta(c, d)
        for i in range(a)
    )
    return min(1.0, math.fsum(math.exp(term) for term in terms))


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


async def record_and_compare(
    session: AsyncSession, trace: TraceRow, prepared: PreparedVerdicts
) -> list[RecordedVerdict]:
    """Record the verdicts of a trace. Then update which outcome verdicts count, for every bullet
    that an attempt at the same task used. Call it for a trace without bullets or playbook as well.

    Idempotent. Call it first in the transaction: it locks all affected playbooks (shared), then
    their bullets, scope by scope and by ID, and a transaction that waits for a playbook must not
    hold the lock of scopes and labels yet. Raises `BulletNotFound`.
    """
    playbook, verdicts, reasons = prepared.playbook, prepared.verdicts, prepared.reasons
    own = await _share_own_playbook(session, playbook) if playbook and verdicts else None
    keys: dict[int, set[str]] = {}
    names: dict[int, str] = {}
    for row in await _fetch(session, trace, TASK_KEYS):
        keys[row.scope_id], names[row.scope_id] = set(row.bullet_keys), row.name
    if own is not None:
        own_keys = {own.aliases.get(verdict.key, verdict.key) for verdict in verdicts}
        keys.setdefault(own.scope_id, set()).update(own_keys)
        names[own.scope_id] = own.name
    bullets: dict[UUID, MemoryRow] = {}
    for scope in sorted(keys):
        await get_playbook(session, PlaybookRef(trace.project_id, names[scope]), share=True)
    for scope in sorted(keys):
        rows = await find_bullets(session, scope, keys[scope], lock=True)
        bullets |= {row.id: row for row in rows.values()}
    recorded: list[RecordedVerdict] = []
    if own is not None and playbook is not None:
        recorded = await record_verdicts_in_session(session, playbook, verdicts, reasons)
    if trace.task_key is not None and bullets:
        await _update_confirmed_outcomes(session, trace, bullets)
    return recorded


async def _share_own_playbook(session: AsyncSession, ref: PlaybookRef) -> PlaybookRow | None:
    """The playbook of the verdicts under a shared lock; None if it was deleted."""
    playbook = await get_playbook(session, ref, share=True)
    return None if playbook is None or playbook.deleted_at is not None else playbook


async def _update_confirmed_outcomes(
    session: AsyncSession, trace: TraceRow, bullets: Mapping[UUID, MemoryRow]
) -> None:
    """Set which outcomes of the task count for these bullets. The caller holds their locks."""
    sides = await _fetch(session, trace, TASK_SIDES, bullets=list(bullets))
    tags = {
        row.bullet_id: outcome_tag(
            AttemptCounts(
                row.with_runs, row.with_successes, row.without_runs, row.without_successes
            )
        )
        for row in sides
    }
    flips = await _fetch(
        session,
        trace,
        TASK_FLIPS,
        bullets=list(tags),
        tags=[tag or "" for tag in tags.values()],
    )
    for flip in flips:
        rows = await list_verdicts_of_trace(session, [flip.bullet_id], flip.trace_id)
        by_judge = {row.judge: row for row in rows}
        await set_outcome_confirmed(session, bullets[flip.bullet_id], by_judge, flip.wanted)
    await session.flush()


async def _fetch(
    session: AsyncSession, trace: TraceRow, statement: Statement, **parameters: Any
) -> Sequence[Any]:
    task = {
        "tenant": current_tenant_id(session),
        "project": trace.project_id,
        "task": trace.task_key,
        "latest": MAX_ATTEMPTS,
    }
    return await fetch_rows(session, statement, task | parameters)
