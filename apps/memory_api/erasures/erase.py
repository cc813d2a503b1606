"""Erases a memory, a trace, a person or a tenant, in a run of its own.

Each batch is a transaction and can be repeated, so a killed worker leaves no half of one. What is
erased leaves a tombstone; links, versions and model calls keep their IDs, times and cost without
content.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.catalog import list_tenant_tables
from memory_api.core.db import current_tenant_id, transaction_time
from memory_api.core.ids import new_id
from memory_api.core.log_context import current_actor
from memory_api.core.statements import fetch_column, fetch_rows, fetch_value, load_statement
from memory_api.erasures.schemas import CreateErasureRequest, ErasureTarget
from memory_api.erasures.tables import ErasureRow
from memory_api.memories.erasure import add_tombstones, erase_memories
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.editing import edits
from memory_api.playbooks.errors import BulletNotFound, PlaybookNotFound
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.tables import PlaybookRow
from memory_api.run_queue.port import Ticket
from memory_api.runs import lifecycle
from memory_api.runs.execution import Step
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.tenants.audit_log import record_audit_event
from memory_api.traces.deletion import delete_traces

MAX_ATTEMPTS = 20
TRACES_PER_BATCH = 50
ROWS_PER_BATCH = 5_000
AUTHOR = "erasure"

DERIVED_BULLETS = load_statement("erasures/erasures.sql", "derived_bullets")
DERIVED_MEMORIES = load_statement("erasures/erasures.sql", "derived_memories")
LOCK_TRACES = load_statement("erasures/erasures.sql", "lock_traces")
SUBJECT_TRACES = load_statement("erasures/erasures.sql", "subject_traces")
SUBJECT_MEMORIES = load_statement("erasures/erasures.sql", "subject_memories")
SCRUBS = (
    load_statement("erasures/erasures.sql", "erase_verdicts"),
    load_statement("erasures/erasures.sql", "erase_decisions"),
    load_statement("erasures/erasures.sql", "erase_waiting_lessons"),
    load_statement("erasures/erasures.sql", "erase_proposals"),
    load_statement("erasures/erasures.sql", "erase_curations"),
)
ERASE_RESPONSES = load_statement("traces/storage.sql", "erase_responses")
ERASE_ROWS = load_statement("erasures/erasures.sql", "erase_rows")
ERASE_OTHER_RUNS = load_statement("erasures/erasures.sql", "erase_other_runs")
ERASE_TICKETS = load_statement("erasures/erasures.sql", "erase_tickets")
KEPT_TABLES = {"tombstones", "erasures", "audit_log", "runs", "tenants"}
"""Tables whose rows stay when a tenant is erased, apart from its other runs."""


def public_target(kind: ErasureTarget, target_id: str) -> str:
    """The target as it stays stored: the subject of a person as its hash."""
    if kind is not ErasureTarget.PERSON:
        return target_id
    return f"sha256:{hashlib.sha256(target_id.encode()).hexdigest()}"


async def create_erasure(
    runtime: Runtime, session: AsyncSession, body: CreateErasureRequest
) -> ErasureRow:
    run = lifecycle.new_run(
        session,
        lifecycle.ERASURE,
        project_id="default",
        input={"target_id": body.target_id},
        max_attempts=MAX_ATTEMPTS,
    )
    erasure = ErasureRow(
        tenant_id=current_tenant_id(session),
        id=new_id(),
        target_kind=body.target_kind.value,
        target_id=public_target(body.target_kind, body.target_id),
        reason=body.reason,
        actor=current_actor(),
        run_id=run.id,
    )
    run.input = run.input | {"erasure_id": str(erasure.id)}
    session.add(erasure)
    await session.flush()
    await session.refresh(erasure)
    await runtime.queue.enqueue(session, [Ticket(run.tenant_id, run.id)])
    await record_audit_event(
        session,
        "erasure.requested",
        f"{erasure.target_kind}:{erasure.target_id}",
        {"erasure_id": str(erasure.id), "reason": body.reason},
    )
    return erasure


class ErasureStep(Step[ErasureRow, "_Erasing", StepResult]):
    """Executes an erasure. The input of its run then no longer names the target."""

    kind = lifecycle.ERASURE
    can_resume = True

    async def load(self, session: AsyncSession, run: RunRow) -> ErasureRow:
        return await _require_erasure(session, run)

    async def compute(self, runtime: Runtime, run: RunRow, input: ErasureRow) -> _Erasing:
        work = _Erasing(runtime, run, input)
        await work.execute(ErasureTarget(input.target_kind), run.input["target_id"])
        return work

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: _Erasing
    ) -> StepResult:
        counts, erasure = dict(output.counts), await _require_erasure(session, run)
        erasure.state, erasure.finished_at = "done", await transaction_time(session)
        erasure.counts, erasure.affected_bullets = counts, output.affected_bullets
        kind, target = erasure.target_kind, erasure.target_id
        await add_tombstones(session, kind, [target], reason=erasure.reason, erasure_id=erasure.id)
        details = {"erasure_id": str(erasure.id), "counts": counts}
        await record_audit_event(session, "erasure.finished", f"{kind}:{target}", details)
        current = await session.get(RunRow, (run.tenant_id, run.id))
        if current is not None:
            current.input = {"erasure_id": str(erasure.id)}
            await session.flush()
        return StepResult(data={"counts": counts})


async def _require_erasure(session: AsyncSession, run: RunRow) -> ErasureRow:
    erasure = await session.get(ErasureRow, (run.tenant_id, UUID(run.input["erasure_id"])))
    assert erasure is not None, "stored with its run"
    return erasure


class _Erasing:
    def __init__(self, runtime: Runtime, run: RunRow, erasure: ErasureRow) -> None:
        self.runtime, self.run, self.erasure = runtime, run, erasure
        self.tenant_id = run.tenant_id
        self.counts = Counter(traces=0, memories=0)
        self.affected_bullets: list[dict[str, Any]] = []

    async def execute(self, kind: ErasureTarget, target_id: str) -> None:
        match kind:
            case ErasureTarget.MEMORY:
                await self._erase([], [UUID(target_id)])
            case ErasureTarget.TRACE:
                await self._erase([UUID(target_id)], [])
            case ErasureTarget.PERSON:
                await self._erase_person(target_id)
            case ErasureTarget.TENANT:
                await self._erase_tenant()

    async def _erase_person(self, subject: str) -> None:
        parameters = {"subject": subject, "limit": TRACES_PER_BATCH}
        while True:
            async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
                traces = await fetch_column(session, SUBJECT_TRACES, parameters)
                memories = await fetch_column(session, SUBJECT_MEMORIES, parameters)
            if not traces and not memories:
                return
            await self._erase(traces, memories)

    async def _erase(self, trace_ids: Sequence[UUID], memory_ids: Sequence[UUID]) -> None:
        """Erase traces, memories, what was learned from these traces, the summaries and dreams
        about them, and bullets that have no other source.
        """
        tenant = self.tenant_id
        async with self.runtime.sessions.for_tenant(tenant) as session:
            learned = await session.scalars(
                select(MemoryRow.id).where(
                    MemoryRow.tenant_id == tenant, MemoryRow.trace_id.in_(trace_ids)
                )
            )
            ids = {*trace_ids, *memory_ids, *learned}
            ids |= set(await fetch_column(session, DERIVED_MEMORIES, {"ids": list(ids)}))
            derived = await fetch_rows(session, DERIVED_BULLETS, {"ids": list(ids)})
            for bullet_id, key, status, project_id, playbook, only_from_them in derived:
                if only_from_them:
                    ids.add(bullet_id)
                elif status != "deleted":
                    bullet = {"project_id": project_id, "playbook": playbook, "key": key}
                    if bullet not in self.affected_bullets:
                        self.affected_bullets.append(bullet)
        await self._delete_bullets(ids)
        async with self.runtime.sessions.for_tenant(tenant) as session:
            memories = await self._lock(session, ids, trace_ids)
            erased = [memory.id for memory in memories]
            await erase_memories(session, memories)
            for statement in (*SCRUBS, ERASE_RESPONSES):
                await fetch_rows(session, statement, {"ids": list(ids)})
            deleted = await delete_traces(session, trace_ids, with_episodes=False)
            for kind, targets in (("memory", erased), ("trace", trace_ids)):
                await add_tombstones(
                    session,
                    kind,
                    [str(target) for target in targets],
                    reason=self.erasure.reason,
                    erasure_id=self.erasure.id,
                )
        self.counts["traces"] += deleted
        self.counts["memories"] += len(erased)

    async def _lock(
        self, session: AsyncSession, ids: set[UUID], trace_ids: Sequence[UUID]
    ) -> list[MemoryRow]:
        """Lock the memories and traces, and the summaries and dreams that were stored about them
        since `ids` were found; no other is stored afterwards. Adds these to `ids`, and returns the
        memories with content.
        """
        found: set[UUID] = ids
        memories: list[MemoryRow] = []
        while found:
            rows = await session.scalars(
                select(MemoryRow)
                .where(MemoryRow.tenant_id == self.tenant_id, MemoryRow.id.in_(found))
                .order_by(MemoryRow.id)
                .with_for_update()
            )
            memories += [row for row in rows if row.content]
            await fetch_rows(session, LOCK_TRACES, {"ids": list(trace_ids)})
            found = set(await fetch_column(session, DERIVED_MEMORIES, {"ids": list(ids)})) - ids
            ids |= found
        return memories

    async def _delete_bullets(self, ids: set[UUID]) -> None:
        """Delete those of the memories that are bullets from their playbooks."""
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            rows = await session.execute(
                select(MemoryRow.key, PlaybookRow.project_id, PlaybookRow.name)
                .join(
                    PlaybookRow,
                    (PlaybookRow.tenant_id == MemoryRow.tenant_id)
                    & (PlaybookRow.scope_id == MemoryRow.scope_id),
                )
                .where(
                    MemoryRow.tenant_id == self.tenant_id,
                    MemoryRow.id.in_(ids),
                    MemoryRow.kind == "bullet",
                    MemoryRow.status != "deleted",
                )
            )
            bullets = [(str(key), PlaybookRef(project, name)) for key, project, name in rows]
        author = ChangeAuthor(AUTHOR, "Erased.", self.run.id, may_bypass_review=True)
        for key, ref in bullets:
            try:
                await edits.delete_bullet(self.runtime, self.tenant_id, ref, key, author)
            except (BulletNotFound, PlaybookNotFound):
                continue
            self.counts["bullets"] += 1

    async def _erase_tenant(self) -> None:
        """Delete all rows of the tenant but its tombstones, erasures, audit log and this run."""
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            tables = await list_tenant_tables(session)
        for table in tables:
            if table in KEPT_TABLES:
                continue
            count = ROWS_PER_BATCH
            while count == ROWS_PER_BATCH:
                async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
                    parameters = {"table_name": table, "limit": ROWS_PER_BATCH}
                    count = await fetch_value(session, ERASE_ROWS, parameters)
                self.counts[table] += int(count or 0)
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            await fetch_rows(session, ERASE_TICKETS, {})
            await fetch_rows(session, ERASE_OTHER_RUNS, {"run_id": self.run.id})
            await fetch_rows(session, ERASE_ROWS, {"table_name": "tenants", "limit": 1})
        self.counts = Counter({name: count for name, count in self.counts.items() if count})
