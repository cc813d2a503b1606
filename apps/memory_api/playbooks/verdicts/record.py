"""Records verdicts and updates the counters of bullets.

The counters include one verdict per trace, that of the judge with the highest precedence. Without a
trace they include one verdict per actor. Verdicts do not change the version of a playbook.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncSession
from typing_extensions import TypeAliasType

from memory_api.auth.identity import Identity, KeyScope
from memory_api.core.after_commit import call_after_commit
from memory_api.core.db import current_tenant_id
from memory_api.core.errors import InvalidRequest
from memory_api.core.ids import new_id
from memory_api.core.metrics import VERDICTS
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.memories.index.drafts import MemoryDraft, PreparedMemory, prepare_memories
from memory_api.memories.index.writer import insert_memories, unindex_memories
from memory_api.memories.queries import NewLink, add_links, get_memory
from memory_api.memories.schemas import MemoryKind, MemoryStatus
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.errors import PlaybookNotFound, bullet_not_found
from memory_api.playbooks.models import VerdictTag
from memory_api.playbooks.queries import (
    find_bullets,
    get_playbook,
    list_verdicts_of_trace,
    update_indexed_confidence,
)
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.retrieval.queries import is_retrieval_id
from memory_api.playbooks.tables import BulletVerdictRow, PlaybookRow
from memory_api.playbooks.usefulness import usefulness
from memory_api.playbooks.verdicts.quarantine import (
    QUARANTINE_ACTOR,
    may_need_quarantine,
    quarantine_harmful_bullets,
)
from memory_api.runtime import Runtime

Judge = TypeAliasType(
    "Judge",
    Annotated[
        Literal["human", "llm", "outcome"],
        Field(
            description="The source of a verdict: a person, a model or agent, or the outcome of "
            "the agent run."
        ),
    ],
)
JUDGE_PRECEDENCE: tuple[Judge, ...] = ("human", "llm", "outcome")
"""Judges by precedence, the highest first. An outcome is counted only if other attempts at the same
task confirm it (`set_outcome_confirmed`).
"""
RELATION_BY_TAG = {"helpful": "supports", "harmful": "contradicts", "neutral": "derived_from"}
"""The relation of the link from the memory of a reason to the bullet."""


@dataclass(frozen=True)
class NewVerdict:
    """What one judge says about one bullet. `key` may be that of a merged bullet."""

    key: str
    tag: VerdictTag
    judge: Judge
    reason: str | None = None
    trace_id: UUID | None = None
    """Without a trace, an actor has one verdict on a bullet. A new one replaces it."""
    retrieval_id: UUID | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict[str, Any])
    actor: str | None = None
    run_id: UUID | None = None

    @property
    def deduplication_key(self) -> tuple[UUID | None, str | None]:
        """The trace ID, or the actor if there is no trace. One verdict is counted for each."""
        return self.trace_id, None if self.trace_id else self.actor


@dataclass(frozen=True)
class RecordedVerdict:
    """A stored verdict, and the bullet that it was recorded for. `key` is the survivor's if the
    bullet was merged. `is_new` is False if the verdict replaced an earlier one.
    """

    row: BulletVerdictRow
    key: str
    is_new: bool
    is_counted: bool
    """Whether the bullet's counters include this verdict."""
    bullet: MemoryRow
    quarantined: bool = False
    """Whether the verdict led to the quarantine of the bullet."""


VerdictsByBullet = dict[UUID, dict[str, BulletVerdictRow]]
"""Verdicts with one deduplication key: bullet ID → judge → row."""


async def record_verdicts(
    runtime: Runtime, tenant_id: UUID, ref: PlaybookRef, verdicts: Sequence[NewVerdict]
) -> list[RecordedVerdict]:
    """Records verdicts, all or none. Recording the same verdict again changes nothing.

    Raises `PlaybookNotFound` and `BulletNotFound`.
    """
    prepared = await prepare_reasons(runtime, tenant_id, ref, verdicts)
    async with runtime.sessions.for_tenant(tenant_id) as session:
        return await record_verdicts_in_session(session, ref, verdicts, prepared)


async def prepare_reasons(
    runtime: Runtime, tenant_id: UUID, ref: PlaybookRef, verdicts: Sequence[NewVerdict]
) -> dict[str, PreparedMemory]:
    """Embeds the reasons of these verdicts. No transaction may be open."""
    reasons = {verdict.reason: _draft(ref, verdict) for verdict in verdicts if verdict.reason}
    items = await prepare_memories(
        await runtime.get_tenant_embedder(tenant_id), list(reasons.values())
    )
    return dict(zip(reasons, items, strict=True))


async def record_verdicts_in_session(
    session: AsyncSession,
    ref: PlaybookRef,
    verdicts: Sequence[NewVerdict],
    prepared: Mapping[str, PreparedMemory],
) -> list[RecordedVerdict]:
    """`record_verdicts` in an open transaction. `prepared` is the result of `prepare_reasons`."""
    playbook = await get_playbook(session, ref, share=True)
    if playbook is None or playbook.deleted_at is not None:
        raise PlaybookNotFound
    bullets = await _lock_bullets(session, playbook, {verdict.key for verdict in verdicts})
    stored: dict[tuple[UUID | None, str | None], VerdictsByBullet] = {}
    for key in {verdict.deduplication_key for verdict in verdicts}:
        ids = {bullets[v.key].id for v in verdicts if v.deduplication_key == key}
        stored[key] = await _load_verdicts(session, ids, *key)
    recorded: list[RecordedVerdict] = []
    for verdict in verdicts:
        bullet = bullets[verdict.key]
        rows = stored[verdict.deduplication_key].setdefault(bullet.id, {})
        recorded.append(await _record(session, ref, bullet, verdict, rows, prepared))
    await session.flush()
    call_after_commit(session, lambda: _count_verdicts(recorded))
    return recorded


def _count_verdicts(recorded: Iterable[RecordedVerdict]) -> None:
    for verdict in recorded:
        counted = "true" if verdict.is_counted else "false"
        VERDICTS.labels(verdict.row.judge, verdict.row.tag, counted).inc()


async def set_outcome_confirmed(
    session: AsyncSession, bullet: MemoryRow, rows: Mapping[str, BulletVerdictRow], confirmed: bool
) -> None:
    """Sets whether the outcome verdict of one trace is counted. `rows` are the verdicts of this
    trace on the bullet, by judge. The caller holds the lock of the bullet.
    """
    old = winning_tag(counted_verdicts(rows))
    rows["outcome"].confirmed = confirmed
    new = winning_tag(counted_verdicts(rows))
    if old != new:
        await _update_counters(session, bullet, old, new)


def counted_verdicts(rows: Mapping[str, BulletVerdictRow]) -> dict[str, str]:
    """Judge → tag of the verdicts that can be counted."""
    return {judge: row.tag for judge, row in rows.items() if judge != "outcome" or row.confirmed}


def winning_tag(tags: Mapping[str, str]) -> str | None:
    """The tag of the judge with the highest precedence. `tags` maps judges to tags."""
    return next((tags[judge] for judge in JUDGE_PRECEDENCE if judge in tags), None)


async def _load_verdicts(
    session: AsyncSession, bullet_ids: Collection[UUID], trace_id: UUID | None, actor: str | None
) -> VerdictsByBullet:
    verdicts: VerdictsByBullet = {}
    for row in await list_verdicts_of_trace(session, bullet_ids, trace_id, actor):
        verdicts.setdefault(row.bullet_id, {})[row.judge] = row
    return verdicts


async def _lock_bullets(
    session: AsyncSession, playbook: PlaybookRow, keys: Iterable[str]
) -> dict[str, MemoryRow]:
    """The bullets with these keys, or their survivors, locked in the order of their IDs. Raises
    `BulletNotFound`.
    """
    aliases: Mapping[str, str] = playbook.aliases
    resolved = {key: aliases.get(key, key) for key in keys}
    rows = await find_bullets(session, playbook.scope_id, set(resolved.values()), lock=True)
    existing = {key: row for key, row in rows.items() if row.status != MemoryStatus.DELETED}
    for key, survivor in resolved.items():
        if survivor not in existing:
            raise bullet_not_found(playbook, key)
    return {key: existing[survivor] for key, survivor in resolved.items()}


async def _record(
    session: AsyncSession,
    ref: PlaybookRef,
    bullet: MemoryRow,
    verdict: NewVerdict,
    rows: dict[str, BulletVerdictRow],
    prepared: Mapping[str, PreparedMemory],
) -> RecordedVerdict:
    old = winning_tag(counted_verdicts(rows))
    row = rows.get(verdict.judge)
    is_new = row is None
    if row is None:
        row = rows[verdict.judge] = BulletVerdictRow(
            tenant_id=current_tenant_id(session),
            id=new_id(),
            bullet_id=bullet.id,
            trace_id=verdict.trace_id,
            judge=verdict.judge,
            confirmed=False,
        )
        session.add(row)
    if is_new or (row.tag, row.reason) != (verdict.tag, verdict.reason):
        reason_changed = is_new or row.reason != verdict.reason
        row.confirmed = row.confirmed and row.tag == verdict.tag
        row.tag, row.reason, row.evidence = verdict.tag, verdict.reason, dict(verdict.evidence)
        row.retrieval_id, row.actor, row.run_id = (
            verdict.retrieval_id,
            verdict.actor,
            verdict.run_id,
        )
        if reason_changed:
            await _replace_reason_memory(session, ref, bullet, row, verdict, prepared)
    tags = counted_verdicts(rows)
    new = winning_tag(tags)
    if old != new:
        await _update_counters(session, bullet, old, new)
    winner = next((judge for judge in JUDGE_PRECEDENCE if judge in tags), None)
    return RecordedVerdict(row, bullet.key or "", is_new, winner == verdict.judge, bullet)


async def _update_counters(
    session: AsyncSession, bullet: MemoryRow, old: str | None, new: str | None
) -> None:
    """Replaces the counted tag `old` by `new` in the bullet's counters and in the search index."""
    if old is not None:
        setattr(bullet, old, max(0, getattr(bullet, old) - 1))
    if new is not None:
        setattr(bullet, new, getattr(bullet, new) + 1)
    helpful, harmful = bullet.helpful, bullet.harmful
    bullet.usefulness = usefulness(helpful, harmful)
    total = helpful + harmful
    await session.flush()
    await update_indexed_confidence(session, bullet, helpful / total if total else 0.5)


async def _replace_reason_memory(
    session: AsyncSession,
    ref: PlaybookRef,
    bullet: MemoryRow,
    row: BulletVerdictRow,
    verdict: NewVerdict,
    prepared: Mapping[str, PreparedMemory],
) -> None:
    """Stores the reason as a memory, so that search finds it, and deletes that of the old
    reason.
    """
    if row.reason_memory_id is not None:
        old = await get_memory(session, row.reason_memory_id, for_update=True)
        if old is not None:
            await unindex_memories(session, [old])
            old.status = MemoryStatus.DELETED
        row.reason_memory_id = None
    if verdict.reason:
        item = prepared[verdict.reason]
        draft = _draft(ref, verdict, bullet.key)
        (memory,) = await insert_memories(session, [replace(item, draft=draft)])
        row.reason_memory_id = memory.id
        links = [NewLink(memory.id, RELATION_BY_TAG[verdict.tag], "memory", bullet.id)]
        if verdict.trace_id is not None:
            links.append(NewLink(memory.id, "derived_from", "trace", verdict.trace_id))
        await add_links(session, links)


def _draft(ref: PlaybookRef, verdict: NewVerdict, key: str | None = None) -> MemoryDraft:
    return MemoryDraft(
        kind=MemoryKind.VERDICT,
        project_id=ref.project_id,
        content=verdict.reason or "",
        tags=[verdict.tag],
        source=f"judge:{verdict.judge}",
        trace_id=verdict.trace_id,
        metadata={"playbook": ref.name, "key": key or verdict.key, "tag": verdict.tag},
        actor=verdict.actor,
        run_id=verdict.run_id,
    )


VERDICT_REFERENCES = load_statement("playbooks/queries.sql", "verdict_references")
SubmittingJudge = TypeAliasType(
    "SubmittingJudge",
    Annotated[
        Literal["human", "llm"], Field(description="`human` for a person, `llm` for an agent.")
    ],
)


def resolve_judge(caller: Identity, requested: SubmittingJudge | None) -> SubmittingJudge:
    """The judge of a verdict over HTTP: `human` by default for an admin key, `llm` for any other.
    Only an admin key may request `human`, otherwise raises `Forbidden`.
    """
    if requested == "human":
        caller.require_scope(KeyScope.ADMIN)
    return requested or ("human" if caller.has_scope(KeyScope.ADMIN) else "llm")


async def submit_verdict(
    runtime: Runtime,
    tenant_id: UUID,
    ref: PlaybookRef,
    verdict: NewVerdict,
) -> RecordedVerdict:
    """Records a verdict, and quarantines the bullet at once if the verdict makes it harmful.

    Raises `PlaybookNotFound`, `BulletNotFound`, and `InvalidRequest` for a trace of another project
    or a retrieval of another playbook.
    """
    async with runtime.sessions.for_tenant(tenant_id) as session:
        await _check_references(session, ref, verdict)
    (recorded,) = await record_verdicts(runtime, tenant_id, ref, [verdict])
    if not may_need_quarantine(recorded.bullet):
        return recorded
    quarantined = await quarantine_harmful_bullets(
        runtime, tenant_id, ref, ChangeAuthor(QUARANTINE_ACTOR)
    )
    return replace(recorded, quarantined=recorded.key in quarantined)


async def _check_references(session: AsyncSession, ref: PlaybookRef, verdict: NewVerdict) -> None:
    parameters = {
        "project": ref.project_id,
        "playbook": ref.name,
        "trace": verdict.trace_id,
        "retrieval": verdict.retrieval_id,
    }
    references = (await fetch_rows(session, VERDICT_REFERENCES, parameters))[0]
    if verdict.trace_id is not None and not references.has_trace:
        raise InvalidRequest("`trace_id` is not a trace of this project.", field="trace_id")
    retrieval_id = verdict.retrieval_id
    if retrieval_id is None or references.has_retrieval:
        return
    is_lost = references.scope_id is not None and await is_retrieval_id(
        session, references.scope_id, retrieval_id
    )
    if not is_lost:
        raise InvalidRequest(
            "`retrieval_id` does not belong to this playbook.", field="retrieval_id"
        )
