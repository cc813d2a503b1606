"""Whether the reflection on a short run waits for other short runs of its playbook, to share a
model call with them (`share.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.statements import fetch_value, load_statement
from memory_api.core.tenant_locks import acquire_tenant_lock
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.text.terms import estimate_tokens
from memory_api.traces.schemas import Event
from memory_api.traces.tables import TraceRow

WAITING_COUNT = load_statement("reflection/batches/queries.sql", "waiting_count")
IS_EVALUATING = load_statement("reflection/batches/queries.sql", "is_evaluating")


def is_short(runtime: Runtime, trace: TraceRow, events: Sequence[Event]) -> bool:
    """Whether the reflection on a trace may share a model call with others of its playbook."""
    settings = runtime.settings
    if runtime.llm is None or settings.reflection_batch_size < 2 or trace.playbook is None:
        return False
    texts = [trace.task_description or "", *(event.content for event in events)]
    return sum(map(estimate_tokens, texts)) <= settings.reflection_batch_tokens


async def batch_delay(
    session: AsyncSession, run: RunRow, trace: TraceRow, batch_size: int, interval: timedelta
) -> timedelta | None:
    """How long the reflection after `run` waits for others of the playbook; None to start now: the
    batch is full, or no other run evaluates a trace of the playbook. Holds a lock until the
    transaction ends, so that the last of a burst sees that it is the last.
    """
    if not interval:
        return None
    parameters = {
        "tenant": current_tenant_id(session),
        "project": trace.project_id,
        "playbook": trace.playbook,
    }
    await acquire_tenant_lock(session, f"batch {trace.project_id}/{trace.playbook}")
    others = batch_size - 1
    if await fetch_value(session, WAITING_COUNT, parameters | {"max": others}) >= others:
        return None
    is_evaluating = parameters | {"except_run": run.id}
    return interval if await fetch_value(session, IS_EVALUATING, is_evaluating) else None
