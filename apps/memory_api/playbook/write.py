"""A plan becomes rows, as one version of the playbook. Its lock is held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm.attributes import set_committed_value

from apps.memory_api.memory.prepare import Prepared, fingerprint
from apps.memory_api.memory.put import Columns, Stored, columns_of, serve, store, withdraw
from apps.memory_api.memory.queries import Link, link
from apps.memory_api.memory.tables import Memory
from apps.memory_api.playbook.plan import Outcome, Plan, check_room
from apps.memory_api.playbook.queries import add_version, find_bullets
from apps.memory_api.playbook.rows import (
    Author,
    Place,
    bullet_columns,
    draft_of,
    is_served,
    metadata_of,
    needs_text,
    to_bullet,
)
from apps.memory_api.playbook.schemas import Bullet
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.text.tokens import TOKENIZER


async def write(
    session: AsyncSession,
    playbook: PlaybookRow,
    place: Place,
    plan: Plan,
    ready: Mapping[str, Prepared],
    author: Author,
) -> Outcome:
    """Make the rows what the plan says, as one version. The playbook's lock is held."""
    gone, changed = plan.gone, plan.changed
    moved = {k: n for k, n in plan.places.items() if k in plan.after.bullets}
    sections = [section.model_dump() for section in plan.after.sections]
    redefined = sections != playbook.sections or playbook.version == 0
    first = playbook.version == 0 and plan.change == "import"
    if not (gone or changed or first or plan.deletes_playbook or sections != playbook.sections):
        await _reorder(session, playbook, moved)
        return Outcome(playbook.version, False, playbook.active, plan.results)
    check_room(playbook, plan)
    playbook.version += 1
    playbook.active += plan.growth
    touched = {*gone, *changed, *moved, *plan.sources, *plan.absorbed}
    rows = await find_bullets(session, playbook.scope, touched, lock=True)
    writer = _Writer(session, playbook, place, author, rows, ready, plan)
    await writer.remove(gone)
    await writer.put(changed)
    for key in moved.keys() & rows.keys():
        rows[key].place = moved[key]
    await session.flush()
    await writer.relate()
    counted = Counter("updated" if key in plan.before else "added" for key in changed)
    moment = await add_version(
        session,
        playbook,
        author,
        change=plan.change,
        added=counted["added"],
        updated=counted["updated"],
        removed=len(gone),
        sections=sections if redefined else None,
    )
    _settle(playbook, plan, sections)
    playbook.updated_at = moment
    playbook.deleted_at = moment if plan.deletes_playbook else None
    await session.flush()
    return Outcome(playbook.version, True, playbook.active, plan.results)


def _settle(playbook: PlaybookRow, plan: Plan, sections: list[dict[str, Any]]) -> None:
    """Only what differs is set, so that only that is written."""
    aliases = {k: to for k, to in plan.after.aliases.items() if k not in plan.after.bullets}
    for name, value in (
        ("sections", sections),
        ("last_numbers", dict(plan.after.last_numbers)),
        ("aliases", aliases),
    ):
        if getattr(playbook, name) != value:
            setattr(playbook, name, value)


async def _reorder(session: AsyncSession, playbook: PlaybookRow, moved: Mapping[str, int]) -> None:
    """The order of a file that says nothing new."""
    if moved:
        rows = await find_bullets(session, playbook.scope, list(moved), lock=True)
        for key, row in rows.items():
            row.place = moved[key]


@dataclass
class _Writer:
    """The bullets of one version on their way into rows."""

    session: AsyncSession
    playbook: PlaybookRow
    place: Place
    author: Author
    rows: Mapping[str, Memory]
    """Every row there is of what is touched, by key."""
    ready: Mapping[str, Prepared]
    plan: Plan
    new: dict[str, Stored] = field(default_factory=dict[str, Stored])

    async def remove(self, keys: Sequence[str]) -> None:
        rows = [self.rows[key] for key in keys]
        await withdraw(self.session, [row for row in rows if row.status == "active"])
        for row in rows:
            row.status = "deleted"
            self._sign(row)

    async def put(self, bullets: Mapping[str, Bullet]) -> None:
        before = self.plan.before
        fresh = {key for key, bullet in bullets.items() if needs_text(before.get(key), bullet)}
        stale = [
            self.rows[key]
            for key, bullet in bullets.items()
            if is_served(before.get(key)) and (key in fresh or not is_served(bullet))
        ]
        await withdraw(self.session, stale)
        for key in bullets.keys() & self.rows.keys():
            self._rewrite(self.rows[key], bullets[key])
        await self.session.flush()
        for key in bullets.keys() & self.rows.keys():  # the database computes it; nobody need ask
            score = bullets[key].confidence_score
            set_committed_value(self.rows[key], "confidence_score", score)
        added = [self._row(bullet) for key, bullet in bullets.items() if key not in self.rows]
        stored = await store(self.session, added)
        self.new = {row["key"]: new for row, new in zip(added, stored, strict=True)}
        served = [(self._stored(k), self.ready[bullets[k].searchable_text]) for k in fresh]
        await serve(self.session, [row for row, _ in served], [item for _, item in served])

    async def relate(self) -> None:
        """Where bullets come from, and what a survivor stands for."""
        links = [
            Link(self._stored(key).id, "derived_from", "memory", source)
            for key, sources in self.plan.sources.items()
            for source in sources
        ]
        links += [
            Link(self._stored(key).id, "supersedes", "memory", self.rows[gone].id)
            for key, absorbed in self.plan.absorbed.items()
            for gone in absorbed
            if gone in self.rows
        ]
        await link(self.session, links)

    def _stored(self, key: str) -> Memory | Stored:
        return self.new.get(key) or self.rows[key]

    def _row(self, bullet: Bullet) -> Columns:
        row = columns_of(self.session, self._item(bullet), self.playbook.scope)
        return row | {
            **bullet_columns(bullet),
            "metadata": metadata_of(bullet, {}),
            "version": self.playbook.version,
            "place": self.plan.places.get(bullet.id),
            "change_reason": self._reason(bullet.id),
        }

    def _rewrite(self, row: Memory, bullet: Bullet) -> None:
        before = to_bullet(row)
        for name, value in bullet_columns(bullet).items():
            if getattr(row, name) != value:
                setattr(row, name, value)
        if before.source_trajectory != bullet.source_trajectory:
            row.metadata_ = metadata_of(bullet, row.metadata_)
        item = self._item(bullet)
        if is_served(bullet) and not is_served(before):
            row.forgiven = bullet.harmful
        if is_served(bullet) and bullet.searchable_text in self.ready:
            row.terms, row.tokenizer = sorted(item.weights), TOKENIZER
        row.fingerprint = item.fingerprint
        self._sign(row)

    def _sign(self, row: Memory) -> None:
        row.version = self.playbook.version
        row.change_reason = self._reason(row.key or "")
        row.change_actor, row.change_run = self.author.actor, self.author.run_id

    def _reason(self, key: str) -> str | None:
        return self.plan.reasons.get(key) or self.author.reason

    def _item(self, bullet: Bullet) -> Prepared:
        """What is ready of a bullet; of one that is not served, only its fingerprint counts."""
        ready = self.ready.get(bullet.searchable_text)
        draft = draft_of(bullet, self.place, self.author)
        if ready is None:
            return Prepared(draft, {}, {}, fingerprint(bullet.content))
        if ready.draft.content != bullet.content:  # others have the same search text
            return replace(ready, draft=draft, fingerprint=fingerprint(bullet.content))
        return replace(ready, draft=draft)
