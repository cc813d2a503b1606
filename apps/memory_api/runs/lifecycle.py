"""The states of a run: queued → running → done, failed or dead.

Claiming a run counts an attempt, so a run that kills its worker is counted too and ends as `dead`.
A running run has a lease. Only the lease owner can finish it, in the transaction that stores its
results, so the results of a run are stored once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Interval, and_, bindparam, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.auth.queries import is_tenant_active, tenant_is_active
from memory_api.core.db import current_tenant_id
from memory_api.core.db_errors import driver_message, is_transient
from memory_api.core.errors import Conflict, HanseiError
from memory_api.core.ids import new_id
from memory_api.core.secret_redaction import redact
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.llm.errors import LLMError, LLMOverBudget
from memory_api.llm.stored_replies import delete_stored_replies
from memory_api.runs.tables import RunRow

FIRST_RETRY_DELAY = timedelta(seconds=1)
MAX_RETRY_DELAY = timedelta(minutes=5)
MAX_POSTPONED_AGE = timedelta(days=1)
"""A run older than this is not postponed any more; the failure counts as an attempt."""


SUSPENDED_DELAY = timedelta(minutes=1)
"""Time until a run of a suspended tenant is delivered again."""
ERASURE = "erasure"
"""The only kind of run that is executed for a suspended tenant."""
POSTPONEMENTS = "postponements"
"""In the `error` of a run: how often in a row it was postponed."""


class RunBusy(HanseiError):
    """Another run has to end first. The run is postponed and its attempt is not counted."""

    code = "run_busy"
    retry_seconds = (2.0, 4.0)
    """Range of the pause. Rare: the other run queues this one when it ends."""


class LeaseLost(HanseiError):
    """Another worker has taken the run over. The transaction of this one is rolled back."""

    code = "lease_lost"


class UnknownRunKind(HanseiError):
    """This version does not know this kind of run."""

    code = "unknown_kind"

    def __init__(self, kind: str) -> None:
        super().__init__(f"This worker does not know the kind {kind!r}. A newer one executes it.")


@dataclass(frozen=True)
class NextStep:
    """The step that follows a run in its chain. Its ID is known before it is queued, so that the
    result of the run can name it. With `delay`, it starts at the earliest after this time.
    """

    kind: str
    input: Mapping[str, Any]
    run_id: UUID = field(default_factory=new_id)
    delay: timedelta | None = None


@dataclass(frozen=True)
class QueuedRun:
    """A run that several chains share and that needs a ticket. `chain_id` decides its queue
    position; with `delay`, it starts at the earliest after this time.
    """

    run_id: UUID
    chain_id: UUID
    delay: timedelta | None = None


@dataclass(frozen=True)
class ClaimResult:
    """Exactly one of four: the claimed run; how long to wait until the lease of another worker
    ends; the run that has become `dead` now; or none, because the run has ended.
    """

    run: RunRow | None = None
    wait: timedelta | None = None
    dead: RunRow | None = None


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What a finished run stores of itself. `data` is JSON and is readable by the client.

    `degraded_by` is why the run did less than was configured: the rules stood in for a model.
    """

    data: dict[str, Any]
    engine: str | None = None
    degraded_by: BaseException | None = None
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None
    next_step: NextStep | None = None
    queued_run: QueuedRun | None = None


NOW = func.statement_timestamp()
"""The clock of the database. Leases do not depend on the clocks of the workers."""

_CLAIM = (
    update(RunRow)
    .where(
        RunRow.tenant_id == bindparam("tenant"),
        RunRow.id == bindparam("run"),
        or_(
            RunRow.state == "queued",
            and_(
                RunRow.state == "running",
                or_(RunRow.lease_until.is_(None), RunRow.lease_until <= NOW),
            ),
        ),
        RunRow.attempt_count < RunRow.max_attempts,
        or_(RunRow.kind == ERASURE, tenant_is_active(bindparam("tenant"))),
    )
    .values(
        state="running",
        attempt_count=RunRow.attempt_count + 1,
        lease_owner=bindparam("owner"),
        lease_until=NOW + bindparam("lease", type_=Interval),
        started_at=NOW,
        updated_at=NOW,
    )
    .returning(RunRow)
    .execution_options(synchronize_session=False)
)

_FINISH = load_statement("runs/queries.sql", "finish_run")


def new_run(
    session: AsyncSession,
    kind: str,
    *,
    project_id: str,
    trace_id: UUID | None = None,
    parent_id: UUID | None = None,
    input: dict[str, Any] | None = None,
    max_attempts: int = 5,
    run_id: UUID | None = None,
) -> RunRow:
    """Add a queued run to the session. It is not in the queue yet."""
    run = RunRow(
        tenant_id=current_tenant_id(session),
        id=run_id or new_id(),
        kind=kind,
        state="queued",
        project_id=project_id,
        trace_id=trace_id,
        parent_id=parent_id,
        input=input or {},
        attempt_count=0,
        max_attempts=max_attempts,
    )
    session.add(run)
    return run


def start_in_foreground(run: RunRow, owner: str, lease: timedelta) -> None:
    """Give a new run to the process `owner`, as its first attempt."""
    run.state, run.attempt_count = "running", 1
    run.lease_owner, run.lease_until = owner, NOW + lease
    run.started_at = NOW


async def claim_run(
    session: AsyncSession, run_id: UUID, owner: str, lease: timedelta
) -> ClaimResult:
    """Claim a run that is queued or whose lease has expired. Counts the attempt."""
    parameters = {"tenant": current_tenant_id(session), "run": run_id}
    claimed = await session.scalar(_CLAIM, parameters | {"owner": owner, "lease": lease})
    return ClaimResult(run=claimed) if claimed else await _explain_refusal(session, run_id)


async def _explain_refusal(session: AsyncSession, run_id: UUID) -> ClaimResult:
    """The result for a run that could not be claimed. A run out of attempts becomes `dead`."""
    found = await session.execute(
        select(RunRow, NOW)
        .where(RunRow.tenant_id == current_tenant_id(session), RunRow.id == run_id)
        .with_for_update()
    )
    row = found.one_or_none()
    if row is None or row[0].state not in ("queued", "running"):
        return ClaimResult()
    run, now = row
    if run.state == "running" and run.lease_until is not None and run.lease_until > now:
        return ClaimResult(wait=run.lease_until - now)
    if run.kind != ERASURE and not await is_tenant_active(session):
        return ClaimResult(wait=SUSPENDED_DELAY)
    if run.attempt_count < run.max_attempts:  # released between the two statements
        return ClaimResult(wait=timedelta())
    _end(run, "dead")
    run.error = run.error or {
        "message": f"Its worker died {run.attempt_count} times.",
        "type": "Lost",
    }
    return ClaimResult(dead=run)


async def extend_lease(session: AsyncSession, run: RunRow, lease: timedelta) -> bool:
    """Extend the lease of a running run; False when another worker owns it."""
    run_id = await session.scalar(
        update(RunRow)
        .where(
            RunRow.tenant_id == current_tenant_id(session),
            RunRow.id == run.id,
            RunRow.lease_owner == run.lease_owner,
            RunRow.state == "running",
        )
        .values(lease_until=NOW + lease)
        .returning(RunRow.id)
    )
    return run_id is not None


async def finish_run(session: AsyncSession, run: RunRow, result: StepResult) -> None:
    """Mark a run as done, in the transaction that stores its results. Raises `LeaseLost`."""
    parameters = {
        "tenant": current_tenant_id(session),
        "run": run.id,
        "owner": run.lease_owner,
        "result": json.dumps(result.data),
        "error": json.dumps(describe_error(result.degraded_by)) if result.degraded_by else None,
        "engine": result.engine,
        "degraded": result.degraded_by is not None,
        "prompt_hash": result.prompt_hash,
        "usage": None if result.usage is None else json.dumps(result.usage),
    }
    if not await fetch_rows(session, _FINISH, parameters):
        raise LeaseLost
    used_model = result.engine == "llm" or result.usage is not None
    if used_model or run.attempt_count > 1:  # an earlier attempt may have used one
        await delete_stored_replies(session, run.id)


async def record_failure(
    session: AsyncSession, run: RunRow, error: BaseException
) -> timedelta | None:
    """Record a failed attempt. The run is queued again and the delay is returned, or it is `dead`
    after its last attempt. Does nothing when another worker owns the run.
    """
    current = await _lock_owned_run(session, run)
    if current is None:
        return None
    current.error = describe_error(error)
    if current.attempt_count >= current.max_attempts:
        _end(current, "dead")
        await delete_stored_replies(session, run.id)
        return None
    if isinstance(error, LLMError) and error.reply is not None:  # the stored reply is not usable
        await delete_stored_replies(session, run.id)
    _queue_again(current)
    return backoff(current.attempt_count)


def postponement_count(run: RunRow) -> int:
    """How often in a row the run was postponed."""
    error: dict[str, Any] = run.error or {}
    return int(error.get(POSTPONEMENTS, 0))


async def postpone_run(
    session: AsyncSession, run: RunRow, error: BaseException, delay: timedelta
) -> timedelta | None:
    """Queue a run again without counting the attempt, because the cause is outside the run. The
    failure of a run older than `MAX_POSTPONED_AGE` counts, unless it waits for a budget or for a
    newer worker.
    """
    current = await _lock_owned_run(session, run)
    if current is None:
        return None
    is_old = datetime.now(UTC) - current.created_at > MAX_POSTPONED_AGE
    if is_old and not isinstance(error, LLMOverBudget | UnknownRunKind):
        return await record_failure(session, current, error)
    count = postponement_count(current) + 1
    current.error = describe_error(error) | {POSTPONEMENTS: count}
    current.attempt_count -= 1
    _queue_again(current)
    return delay


async def fail_permanently(session: AsyncSession, run: RunRow, error: BaseException) -> None:
    """End a run as `failed`. Only `retry_run` queues it again."""
    current = await _lock_owned_run(session, run)
    if current is not None:
        current.error = describe_error(error)
        _end(current, "failed")
        await delete_stored_replies(session, run.id)


async def retry_run(session: AsyncSession, run_id: UUID) -> RunRow | None:
    """Queue a dead or failed run again as if it were new: without attempts, postponements, error
    and stored replies. None when the run does not exist. Raises `Conflict` when the run has another
    state.
    """
    run = await session.scalar(
        select(RunRow)
        .where(RunRow.tenant_id == current_tenant_id(session), RunRow.id == run_id)
        .with_for_update()
        .execution_options(populate_existing=True)  # a parallel retry may have changed it
    )
    if run is None:
        return None
    if run.state not in ("dead", "failed"):
        raise Conflict(f"The run is {run.state}. Only dead and failed runs can be retried.")
    run.state, run.attempt_count, run.error = "queued", 0, None
    run.started_at, run.finished_at = None, None
    run.updated_at = datetime.now(UTC)
    await delete_stored_replies(session, run_id)
    return run


def backoff(attempt: int) -> timedelta:
    """Delay before the next attempt: exponential from 1 second to 5 minutes, half of it random so
    that retries spread.
    """
    delay = min(FIRST_RETRY_DELAY * 2 ** min(attempt - 1, 20), MAX_RETRY_DELAY)
    return delay * random.uniform(0.5, 1.0)


def describe_error(error: BaseException) -> dict[str, Any]:
    """The `error` of a run: type, code and redacted message. The text of an unforeseen error stays
    in the log, because it may quote stored data or the inside of the service.
    """
    name = type(error).__name__
    if isinstance(error, HanseiError):
        return {"type": name, "code": error.code, "message": redact(str(error)).text[:2000]}
    if is_transient(error):
        message = f"The database had a temporary error: {driver_message(error)}."
        return {"type": name, "code": "unavailable", "message": message[:2000]}
    message = "The worker failed unexpectedly. Its log has the details."
    return {"type": name, "code": "internal_error", "message": message}


async def _lock_owned_run(session: AsyncSession, run: RunRow) -> RunRow | None:
    """The current row, locked; None when another worker owns the run or it has ended."""
    return await session.scalar(
        select(RunRow)
        .where(
            RunRow.tenant_id == current_tenant_id(session),
            RunRow.id == run.id,
            RunRow.lease_owner == run.lease_owner,
            RunRow.state == "running",
        )
        .with_for_update()
    )


def _queue_again(run: RunRow) -> None:
    run.state, run.lease_owner, run.lease_until = "queued", None, None
    run.updated_at = datetime.now(UTC)


def _end(run: RunRow, state: str) -> None:
    run.state = state
    run.lease_owner = run.lease_until = None
    run.finished_at = run.updated_at = datetime.now(UTC)
