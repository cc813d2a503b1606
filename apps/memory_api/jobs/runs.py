"""A run's life: queued → running → done | failed | dead, held by a lease while it runs.

Attempts are counted when a run is claimed, so a run that kills its worker is counted too and ends
as a visible dead letter.
Whoever works on a run was given it with its own name as `lease_owner`, and must still hold the
lease to finish it; results and the finished state are one transaction, so they count once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import and_, bindparam, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.errors import Conflict, HanseiError
from apps.memory_api.core.ids import new_id
from apps.memory_api.core.redaction import redact
from apps.memory_api.jobs.tables import Run

FIRST_DELAY = timedelta(seconds=1)
LONGEST_DELAY = timedelta(minutes=5)
PATIENCE = timedelta(days=1)
"""How long after it was made a run may be put off without an attempt being counted."""


class LeaseLost(HanseiError):
    """Another worker took this run over; what this one did is rolled back."""

    code = "lease_lost"


@dataclass(frozen=True)
class Claim:
    """The outcome of asking for a run: the run, or how long somebody else still holds it, or
    neither: it is settled.
    """

    run: Run | None = None
    wait: timedelta | None = None


_CLAIM = (
    update(Run)
    .where(
        Run.tenant_id == bindparam("tenant"),
        Run.id == bindparam("run"),
        or_(
            Run.state == "queued",
            and_(
                Run.state == "running",
                func.coalesce(Run.lease_until, bindparam("now")) <= bindparam("now"),
            ),
        ),
        Run.attempts < Run.max_attempts,
    )
    .values(
        state="running",
        attempts=Run.attempts + 1,
        lease_owner=bindparam("owner"),
        lease_until=bindparam("until"),
        started_at=bindparam("now"),
        updated_at=bindparam("now"),
    )
    .returning(Run)
    .execution_options(synchronize_session=False)
)

_FINISH = (
    update(Run)
    .where(
        Run.tenant_id == bindparam("tenant"),
        Run.id == bindparam("run"),
        Run.lease_owner == bindparam("owner"),
        Run.state == "running",
    )
    .values(
        state="done",
        result=bindparam("its_result"),
        error=bindparam("its_error"),
        engine=bindparam("its_engine"),
        degraded=bindparam("is_degraded"),
        prompt_hash=bindparam("its_prompt"),
        usage=bindparam("its_usage"),
        lease_until=None,
        lease_owner=None,
        finished_at=func.now(),
        updated_at=func.now(),
    )
    .returning(Run.id)
    .execution_options(synchronize_session=False)
)


def new_run(
    session: AsyncSession,
    kind: str,
    *,
    project_id: str,
    trace_id: UUID | None = None,
    parent_id: UUID | None = None,
    input: dict[str, Any] | None = None,
    max_attempts: int = 5,
) -> Run:
    """A queued run, added to the session."""
    run = Run(
        tenant_id=tenant_of(session),
        id=new_id(),
        kind=kind,
        state="queued",
        project_id=project_id,
        trace_id=trace_id,
        parent_id=parent_id,
        input=input or {},
        attempts=0,
        max_attempts=max_attempts,
    )
    session.add(run)
    return run


def hold(run: Run, owner: str, lease: timedelta) -> None:
    """Start a run that was just made, in the foreground."""
    run.state, run.attempts = "running", 1
    run.lease_owner, run.lease_until = owner, datetime.now(UTC) + lease
    run.started_at = datetime.now(UTC)


async def claim(session: AsyncSession, run_id: UUID, owner: str, lease: timedelta) -> Claim:
    """Take a run that waits, or whose holder's lease has run out. Counts the attempt."""
    now = datetime.now(UTC)
    held = {"owner": owner, "now": now, "until": now + lease}
    taken = await session.scalar(_CLAIM, {"tenant": tenant_of(session), "run": run_id, **held})
    return Claim(run=taken) if taken else await _not_taken(session, run_id, now)


async def _not_taken(session: AsyncSession, run_id: UUID, now: datetime) -> Claim:
    """Somebody holds it, or it is settled, or it has had its attempts and is so now."""
    run = await session.scalar(
        select(Run).where(Run.tenant_id == tenant_of(session), Run.id == run_id).with_for_update()
    )
    if run is None or run.state not in ("queued", "running"):
        return Claim()
    if run.state == "running" and run.lease_until is not None and run.lease_until > now:
        return Claim(wait=run.lease_until - now)
    if run.attempts < run.max_attempts:  # it was given back between the two looks
        return Claim(wait=timedelta())
    _settle(run, "dead")
    run.error = run.error or {"message": f"Its worker died {run.attempts} times.", "type": "Lost"}
    return Claim()


async def extend(session: AsyncSession, run: Run, lease: timedelta) -> bool:
    """The heartbeat of a holder; False when the run is no longer its own."""
    found = await session.scalar(
        update(Run)
        .where(
            Run.tenant_id == tenant_of(session),
            Run.id == run.id,
            Run.lease_owner == run.lease_owner,
            Run.state == "running",
        )
        .values(lease_until=datetime.now(UTC) + lease)
        .returning(Run.id)
    )
    return found is not None


async def finish(
    session: AsyncSession,
    run: Run,
    result: dict[str, Any],
    *,
    engine: str | None = None,
    degraded_by: BaseException | None = None,
    prompt_hash: str | None = None,
    usage: dict[str, Any] | None = None,
) -> None:
    """Mark a run that is held done, in the transaction that stores what it found. `degraded_by` is
    why it was done with less than was configured. Raises `LeaseLost`.
    """
    told = {
        "its_result": result,
        "its_error": describe(degraded_by) if degraded_by else None,
        "its_engine": engine,
        "is_degraded": degraded_by is not None,
        "its_prompt": prompt_hash,
        "its_usage": usage,
    }
    held = {"tenant": tenant_of(session), "run": run.id, "owner": run.lease_owner}
    if await session.scalar(_FINISH, {**held, **told}) is None:
        raise LeaseLost


async def fail(session: AsyncSession, run: Run, error: BaseException) -> timedelta | None:
    """Record why an attempt failed: queued again with back-off (the delay is returned), or dead
    after the last one.
    """
    now = await _still_held(session, run)
    if now is None:
        return None
    now.error = describe(error)
    if now.attempts >= now.max_attempts:
        _settle(now, "dead")
        return None
    _queue_again(now)
    return backoff(now.attempts)


async def postpone(
    session: AsyncSession, run: Run, error: BaseException, delay: timedelta
) -> timedelta | None:
    """As `fail`, but the attempt is given back: not the run's fault. A run older than `PATIENCE`
    has had its chances and fails.
    """
    now = await _still_held(session, run)
    if now is None:
        return None
    if datetime.now(UTC) - now.created_at > PATIENCE:
        return await fail(session, now, error)
    now.error = describe(error)
    now.attempts -= 1
    _queue_again(now)
    return delay


async def refuse(session: AsyncSession, run: Run, error: BaseException) -> None:
    """End a run as failed, to be tried again only when somebody asks for it."""
    now = await _still_held(session, run)
    if now is not None:
        now.error = describe(error)
        _settle(now, "failed")


async def retry(session: AsyncSession, run_id: UUID) -> Run | None:
    """Queue a dead or failed run again from attempt 0; None when there is no such run. Raises
    `Conflict` for any other.
    """
    run = await session.scalar(
        select(Run).where(Run.tenant_id == tenant_of(session), Run.id == run_id).with_for_update()
    )
    if run is None:
        return None
    if run.state not in ("dead", "failed"):
        raise Conflict(f"The run is {run.state}; only a dead or failed run can be retried.")
    run.state, run.attempts, run.finished_at = "queued", 0, None
    run.updated_at = datetime.now(UTC)
    return run


def backoff(attempt: int) -> timedelta:
    """Exponential from one second, at most five minutes, with half of it random so that retries
    spread.
    """
    delay = min(FIRST_DELAY * 2 ** min(attempt - 1, 20), LONGEST_DELAY)
    return delay * random.uniform(0.5, 1.0)


def describe(error: BaseException) -> dict[str, Any]:
    """What a dead letter shows of an error: its type, code and message, never a stack trace."""
    code = error.code if isinstance(error, HanseiError) else "internal_error"
    message = redact(str(error)).text[:2000]
    return {"type": type(error).__name__, "code": code, "message": message}


async def _still_held(session: AsyncSession, run: Run) -> Run | None:
    """The run as it is now, locked, if nobody else holds it."""
    return await session.scalar(
        select(Run)
        .where(
            Run.tenant_id == tenant_of(session),
            Run.id == run.id,
            Run.lease_owner == run.lease_owner,
            Run.state == "running",
        )
        .with_for_update()
    )


def _queue_again(run: Run) -> None:
    run.state, run.lease_owner, run.lease_until = "queued", None, None
    run.updated_at = datetime.now(UTC)


def _settle(run: Run, state: str) -> None:
    run.state = state
    run.lease_owner = run.lease_until = None
    run.finished_at = run.updated_at = datetime.now(UTC)
