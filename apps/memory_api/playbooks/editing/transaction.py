"""change_playbook: lock the playbook, plan, and write the plan, in one transaction.

A plan is made from rows that are read under the lock of the playbook, so concurrent changes are
serialized. Texts are embedded while no transaction is open: a plan with a text that is not embedded
yet ends its transaction, the text is embedded, and the planner runs again. The second plan usually
needs the same texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.memories.index.drafts import PreparedMemory, prepare_memories
from memory_api.playbooks.bullet_rows import sections_of, to_draft
from memory_api.playbooks.editing.plan import (
    BulletChange,
    ChangeConditions,
    ChangePlan,
    ChangePlanner,
    ChangeResult,
    VersionDiff,
    check_capacity,
)
from memory_api.playbooks.editing.version_writer import write_version
from memory_api.playbooks.errors import PlaybookContended
from memory_api.playbooks.models import Bullet
from memory_api.playbooks.queries import ensure_playbook, get_playbook
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.sections import initial_sections
from memory_api.playbooks.tables import PlaybookRow
from memory_api.runtime import Runtime

MAX_REPLANS = 20
"""Maximum number of plans of one change, each with texts that the previous plan did not have."""


async def change_playbook(
    runtime: Runtime,
    tenant_id: UUID,
    ref: PlaybookRef,
    planner: ChangePlanner,
    author: ChangeAuthor,
    conditions: ChangeConditions | None = None,
    *,
    expected: Sequence[Bullet] = (),
) -> ChangeResult:
    """Plans and writes a change under the lock of the playbook. The lock is released while texts
    are embedded. The texts of the `expected` new bullets are embedded before the lock is taken.

    Raises the errors of the planner, `PlaybookNotFound`, `VersionMismatch`, `ReviewRequired`,
    `PlaybookFull` and `PlaybookContended`.
    """
    conditions = conditions or ChangeConditions()
    prepared = await _prepare_bullets(runtime, tenant_id, ref, author, expected)
    for attempt in range(MAX_REPLANS):
        async with runtime.sessions.for_tenant(tenant_id) as session:
            playbook = await get_playbook(session, ref, lock=not conditions.dry_run)
            conditions.check(playbook, author)
            may_write = playbook is not None or attempt > 0
            playbook = playbook or await _create_playbook(runtime, session, ref, store=may_write)
            plan = await planner(session, playbook)
            if conditions.dry_run:
                return _preview(playbook, plan)
            missing = [
                bullet for text, bullet in plan.bullets_to_embed.items() if text not in prepared
            ]
            if may_write and not missing:
                result = await write_version(session, playbook, ref, plan, prepared, author)
                if plan.after_write is not None:
                    await plan.after_write(result)
                return result
        prepared |= await _prepare_bullets(runtime, tenant_id, ref, author, missing)
    raise PlaybookContended


async def _prepare_bullets(
    runtime: Runtime,
    tenant_id: UUID,
    ref: PlaybookRef,
    author: ChangeAuthor,
    bullets: Sequence[Bullet],
) -> dict[str, PreparedMemory]:
    """These bullets, embedded and tokenized, by search text."""
    drafts = [to_draft(bullet, ref, author) for bullet in bullets]
    items = (
        await prepare_memories(await runtime.get_tenant_embedder(tenant_id), drafts)
        if drafts
        else []
    )
    return {bullet.searchable_text: item for bullet, item in zip(bullets, items, strict=True)}


async def _create_playbook(
    runtime: Runtime, session: AsyncSession, ref: PlaybookRef, *, store: bool
) -> PlaybookRow:
    """A new playbook, locked. Unless `store`, it is only a row in memory, for the planner."""
    sections = initial_sections(runtime.settings, ref.name)
    if store:
        return await ensure_playbook(session, ref, sections)
    return PlaybookRow(
        scope_id=0,
        project_id=ref.project_id,
        name=ref.name,
        version=0,
        active_count=0,
        sections=[section.model_dump() for section in sections],
        key_counters={},
        aliases={},
        review_mode="off",
    )


def _preview(playbook: PlaybookRow, plan: ChangePlan) -> ChangeResult:
    """The result of writing the plan, for a dry run."""
    check_capacity(playbook, plan)
    keys = [*plan.deleted_keys, *plan.changed]
    diff = VersionDiff(
        playbook.version,
        playbook.version + 1,
        [BulletChange(key, plan.before.get(key), plan.after.bullets.get(key)) for key in keys],
        len(keys),
        sections_of(playbook),
        plan.after.sections,
    )
    changed = bool(keys) or diff.sections_before != diff.sections_after
    active = playbook.active_count + plan.active_count_change
    return ChangeResult(playbook.version, changed, active, plan.results, diff)


async def create_missing_playbook(runtime: Runtime, tenant_id: UUID, playbook: PlaybookRef) -> None:
    """Create the playbook that a trace names. In a transaction of its own, because a transaction
    that holds other locks must not wait for a playbook.
    """
    async with runtime.sessions.for_tenant(tenant_id) as session:
        sections = initial_sections(runtime.settings, playbook.name)
        await ensure_playbook(session, playbook, sections)
