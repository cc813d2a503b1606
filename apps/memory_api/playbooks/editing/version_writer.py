"""Writes a plan as one version of a playbook. The caller holds the lock of the playbook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm.attributes import set_committed_value

from memory_api.core.statements import fetch_rows, load_statement
from memory_api.memories.index.drafts import PreparedMemory, fingerprint
from memory_api.memories.index.writer import (
    Columns,
    InsertedMemory,
    index_memories,
    insert_rows,
    to_columns,
    unindex_memories,
    unindex_scope,
)
from memory_api.memories.queries import NewLink, add_links
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.bullet_rows import (
    bullet_columns,
    bullet_metadata,
    is_active,
    needs_reindex,
    to_bullet,
    to_draft,
)
from memory_api.playbooks.editing.plan import ChangePlan, ChangeResult, check_capacity
from memory_api.playbooks.models import Bullet
from memory_api.playbooks.queries import add_version, find_bullets
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.tables import PlaybookRow
from memory_api.text.terms import TOKENIZER_VERSION

DELETE_BULLETS = load_statement("playbooks/queries.sql", "delete_bullets")
MAX_REASON_LENGTH = 2_000
"""Characters of the reason of a version that consists of the reasons of its bullets."""


async def write_version(
    session: AsyncSession,
    playbook: PlaybookRow,
    ref: PlaybookRef,
    plan: ChangePlan,
    prepared: Mapping[str, PreparedMemory],
    author: ChangeAuthor,
) -> ChangeResult:
    """Writes the plan as one version. The order and the creation time of an imported file make no
    version of their own. The caller holds the lock of the playbook. Raises `PlaybookFull`.
    """
    playbook.created_at = plan.created_at or playbook.created_at
    deleted, changed = plan.deleted_keys, plan.changed
    positions = {k: n for k, n in plan.positions.items() if k in plan.after.bullets}
    sections = [section.model_dump() for section in plan.after.sections]
    sections_changed = sections != playbook.sections
    first_import = playbook.version == 0 and plan.change_type == "import"
    settings_changed = sections_changed or bool(plan.changed_settings)
    if not (deleted or changed or first_import or plan.deletes_playbook or settings_changed):
        await _set_positions(session, playbook, positions)
        return ChangeResult(playbook.version, False, playbook.active_count, plan.results)
    check_capacity(playbook, plan)
    stores_sections = sections_changed or playbook.version == 0
    playbook.version += 1
    playbook.active_count += plan.active_count_change
    affected = {*changed, *positions, *plan.sources, *plan.absorbed}
    if plan.deletes_playbook:
        await _delete_all_bullets(session, playbook, author)
    else:
        affected |= {*deleted}
    rows = await find_bullets(session, playbook.scope_id, affected, lock=True)
    writer = _BulletWriter(session, playbook, ref, author, rows, prepared, plan)
    if not plan.deletes_playbook:
        await writer.delete(deleted)
    await writer.write(changed)
    for key in positions.keys() & rows.keys():
        rows[key].position = positions[key]
    await session.flush()
    await writer.add_links()
    counts = Counter("updated" if key in plan.before else "added" for key in changed)
    created_at = await add_version(
        session,
        playbook,
        replace(author, reason=_version_reason(plan, author, [*changed, *deleted])),
        change_type=plan.change_type,
        added_count=counts["added"],
        updated_count=counts["updated"],
        removed_count=len(deleted),
        sections=sections if stores_sections else None,
    )
    _update_playbook(playbook, plan, sections)
    playbook.updated_at = created_at
    playbook.deleted_at = created_at if plan.deletes_playbook else None
    await session.flush()
    return ChangeResult(playbook.version, True, playbook.active_count, plan.results)


async def _delete_all_bullets(
    session: AsyncSession, playbook: PlaybookRow, author: ChangeAuthor
) -> None:
    """In four statements: a row at a time took 28 s for 20,000 bullets."""
    await unindex_scope(session, playbook.scope_id)
    await fetch_rows(
        session,
        DELETE_BULLETS,
        {
            "scope": playbook.scope_id,
            "version": playbook.version,
            "reason": author.reason,
            "actor": author.actor,
            "run": author.run_id,
        },
    )


def _version_reason(plan: ChangePlan, author: ChangeAuthor, keys: Sequence[str]) -> str | None:
    """The reason of the author; without one, the changed settings or the reasons of the bullets, as
    far as they fit.
    """
    if author.reason:
        return author.reason
    if plan.changed_settings:
        settings = plan.changed_settings.items()
        return ", ".join(
            f"{name}: {'none' if value is None else value}" for name, value in settings
        )
    lines = [f"{key}: {plan.reasons[key]}" for key in keys if plan.reasons.get(key)]
    text = "\n".join(lines)
    if len(text) <= MAX_REASON_LENGTH:
        return text or None
    shown = text[:MAX_REASON_LENGTH].rsplit("\n", 1)[0]
    hidden = len(lines) - len(shown.splitlines())
    return f"{shown}\n{hidden} more reasons: see the versions of the bullets." if hidden else shown


def _update_playbook(
    playbook: PlaybookRow, plan: ChangePlan, sections: list[dict[str, Any]]
) -> None:
    """Sets only the columns that differ, so that the UPDATE contains only those."""
    aliases = {k: to for k, to in plan.after.aliases.items() if k not in plan.after.bullets}
    for name, value in (
        ("sections", sections),
        ("key_counters", dict(plan.after.key_counters)),
        ("aliases", aliases),
    ):
        if getattr(playbook, name) != value:
            setattr(playbook, name, value)


async def _set_positions(
    session: AsyncSession, playbook: PlaybookRow, positions: Mapping[str, int]
) -> None:
    """Stores the order of an imported file that changes nothing else."""
    if positions:
        rows = await find_bullets(session, playbook.scope_id, list(positions), lock=True)
        for key, row in rows.items():
            row.position = positions[key]


@dataclass
class _BulletWriter:
    session: AsyncSession
    playbook: PlaybookRow
    ref: PlaybookRef
    author: ChangeAuthor
    rows: Mapping[str, MemoryRow]
    """The existing rows of the affected bullets, by key."""
    prepared: Mapping[str, PreparedMemory]
    plan: ChangePlan
    inserted: dict[str, InsertedMemory] = field(default_factory=dict[str, InsertedMemory])

    async def delete(self, keys: Sequence[str]) -> None:
        rows = [self.rows[key] for key in keys]
        await unindex_memories(self.session, [row for row in rows if row.status == "active"])
        for row in rows:
            row.status = "deleted"
            self._set_change(row)

    async def write(self, bullets: Mapping[str, Bullet]) -> None:
        before = self.plan.before
        to_index = {k for k, bullet in bullets.items() if needs_reindex(before.get(k), bullet)}
        to_unindex = [
            self.rows[key]
            for key, bullet in bullets.items()
            if is_active(before.get(key)) and (key in to_index or not is_active(bullet))
        ]
        await unindex_memories(self.session, to_unindex)
        for key in bullets.keys() & self.rows.keys():
            self._update_row(self.rows[key], bullets[key])
        await self.session.flush()
        for key in bullets.keys() & self.rows.keys():
            # The database computes this column. The value is known, so it is not read again.
            score = bullets[key].confidence_score
            set_committed_value(self.rows[key], "confidence_score", score)
        new_rows = [
            self._new_row(bullet) for key, bullet in bullets.items() if key not in self.rows
        ]
        inserted = await insert_rows(self.session, new_rows)
        self.inserted = {row["key"]: new for row, new in zip(new_rows, inserted, strict=True)}
        memories = [self._memory(key) for key in to_index]
        items = [self.prepared[bullets[key].searchable_text] for key in to_index]
        await index_memories(self.session, memories, items)

    async def add_links(self) -> None:
        """Links bullets to their sources, and survivors to the bullets that were merged
        into them.
        """
        links = [
            NewLink(self._memory(key).id, "derived_from", "memory", source)
            for key, sources in self.plan.sources.items()
            for source in sources
        ]
        links += [
            NewLink(self._memory(key).id, "supersedes", "memory", self.rows[merged].id)
            for key, absorbed in self.plan.absorbed.items()
            for merged in absorbed
            if merged in self.rows
        ]
        await add_links(self.session, links)

    def _memory(self, key: str) -> MemoryRow | InsertedMemory:
        return self.inserted.get(key) or self.rows[key]

    def _new_row(self, bullet: Bullet) -> Columns:
        row = to_columns(self.session, self._item(bullet), self.playbook.scope_id)
        return row | {
            **bullet_columns(bullet),
            "metadata": bullet_metadata(bullet, {}),
            "playbook_version": self.playbook.version,
            "position": self.plan.positions.get(bullet.id),
            "change_reason": self._reason(bullet.id),
        }

    def _update_row(self, row: MemoryRow, bullet: Bullet) -> None:
        before = to_bullet(row)
        for name, value in bullet_columns(bullet).items():
            if getattr(row, name) != value:
                setattr(row, name, value)
        if before.source_trajectory != bullet.source_trajectory:
            row.metadata_ = bullet_metadata(bullet, row.metadata_)
        item = self._item(bullet)
        if is_active(bullet) and not is_active(before):
            row.harmful_at_release = bullet.harmful
        if is_active(bullet) and bullet.searchable_text in self.prepared:
            row.terms, row.tokenizer = sorted(item.weights), TOKENIZER_VERSION
        row.fingerprint = item.fingerprint
        self._set_change(row)

    def _set_change(self, row: MemoryRow) -> None:
        row.playbook_version = self.playbook.version
        row.change_reason = self._reason(row.key or "")
        row.change_actor, row.change_run_id = self.author.actor, self.author.run_id

    def _reason(self, key: str) -> str | None:
        return self.plan.reasons.get(key) or self.author.reason

    def _item(self, bullet: Bullet) -> PreparedMemory:
        """The prepared memory of a bullet. One that is not indexed needs only its fingerprint."""
        prepared = self.prepared.get(bullet.searchable_text)
        draft = to_draft(bullet, self.ref, self.author)
        if prepared is None:
            return PreparedMemory(draft, {}, {}, fingerprint(bullet.content))
        if prepared.draft.content != bullet.content:  # another bullet with the same search text
            return replace(prepared, draft=draft, fingerprint=fingerprint(bullet.content))
        return replace(prepared, draft=draft)
