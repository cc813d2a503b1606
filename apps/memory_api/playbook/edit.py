"""Edits of a playbook by deltas, and by a person's hand: each becomes a plan over the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import Conflict, Invalid
from apps.memory_api.memory.prepare import fingerprint
from apps.memory_api.playbook.change import change_playbook
from apps.memory_api.playbook.deltas import DeltaError, apply_deltas, plain_words
from apps.memory_api.playbook.errors import NoBullet, NoPlaybook, delta_refused
from apps.memory_api.playbook.plan import Outcome, Plan, Planner, Terms
from apps.memory_api.playbook.queries import bullets_as_of, find_bullets, get_playbook
from apps.memory_api.playbook.rows import Author, Place, by_key, keyed, state_of
from apps.memory_api.playbook.schemas import Bullet, DeltaContextItem, DeltaResult
from apps.memory_api.playbook.sections import SectionDefinition, find_section, with_fallback
from apps.memory_api.playbook.state import PlaybookState
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.runtime import Runtime

Sources = Mapping[int, Sequence[UUID]]
"""Index of a delta → the memories (insights, strategies) it was derived from."""


async def load_touched(
    session: AsyncSession, playbook: PlaybookRow, deltas: Sequence[DeltaContextItem]
) -> PlaybookState:
    """What these deltas can touch: the bullets they name, and those that say the same words."""
    keys = {key for d in deltas for key in (d.bullet_id, *d.source_ids) if key}
    said = {fingerprint(d.content) for d in deltas if d.content.strip()}
    rows = await find_bullets(session, playbook.scope, keys, said=sorted(said))
    return state_of(playbook, by_key(rows))


def apply(
    state: PlaybookState, deltas: Sequence[DeltaContextItem]
) -> tuple[PlaybookState, list[DeltaResult]]:
    """`apply_deltas`, refusing with `Invalid` that names the delta and the field."""
    try:
        return apply_deltas(state, deltas)
    except DeltaError as error:
        raise delta_refused(error) from error


def deltas_planner(
    deltas: Sequence[DeltaContextItem], sources: Sources, *, named: bool = False
) -> Planner:
    """`named`: the sections of an ADD are named by somebody who can be told that there is none, and
    not by a model whose lesson would be lost; those of a model go to OTHERS.
    """

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> Plan:
        before = await load_touched(session, playbook, deltas)
        if named:
            _check_sections(before.sections, deltas)
        after, results = apply(before, deltas)
        done = [r for r in results if r.key and r.action in ("added", "updated", "merged")]
        return Plan(
            "deltas",
            before.bullets,
            after,
            results,
            sources={r.key or "": sources[r.index] for r in done if r.index in sources},
            absorbed={r.key or "": [b.id for b in r.absorbed] for r in done if r.absorbed},
            reasons=_reasons(results),
        )

    return plan


def _check_sections(
    sections: Sequence[SectionDefinition], deltas: Sequence[DeltaContextItem]
) -> None:
    for index, delta in enumerate(deltas):
        if delta.type == "ADD" and delta.section.strip():
            named_section(sections, delta.section, f"deltas[{index}].section")


def _reasons(results: Sequence[DeltaResult]) -> dict[str, str]:
    """Why each bullet changes, in the words of its delta."""
    reasons = {r.key: r.reason for r in results if r.key and r.action != "rejected"}
    for result in results:
        for bullet in result.absorbed:
            reasons[bullet.id] = f"merged into {result.key}. {result.reason}".strip()
    return reasons


async def apply_to_rows(
    runtime: Runtime,
    tenant_id: UUID,
    place: Place,
    deltas: Sequence[DeltaContextItem],
    author: Author,
    *,
    sources: Sources | None = None,
    if_match: int | None = None,
    dry: bool = False,
) -> Outcome:
    """Apply deltas, all or none, as one version. The playbook is made when there is none.

    Raises `Invalid` naming the delta, `Stale`, `UnderReview`, `Full`.
    """
    planner = deltas_planner(deltas, sources or {}, named=True)
    terms = Terms(if_match, create=True, dry=dry)
    return await change_playbook(runtime, tenant_id, place, planner, author, terms)


async def add_bullet(
    runtime: Runtime,
    tenant_id: UUID,
    place: Place,
    delta: DeltaContextItem,
    author: Author,
    *,
    pinned: bool = False,
    if_match: int | None = None,
) -> Outcome:
    """A person's new bullet. Raises `Conflict` when another says the same words, `Invalid` for an
    unknown section.
    """

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> Plan:
        before = await load_touched(session, playbook, [delta])
        named_section(before.sections, delta.section)
        after, (result,) = apply(before, [delta])
        key = result.key or ""
        if result.action == "rejected":
            raise Conflict(f"{key} says the same words.", key=key)
        if pinned:
            held = after.bullets[key].model_copy(update={"pinned": True})
            after = replace(after, bullets={**after.bullets, key: held})
            result = result.model_copy(update={"after": held})
        return Plan("bullet", before.bullets, after, [result])

    terms = Terms(if_match, create=True)
    return await change_playbook(runtime, tenant_id, place, plan, author, terms)


async def edit_bullet(
    runtime: Runtime,
    tenant_id: UUID,
    place: Place,
    key: str,
    fields: Mapping[str, Any],
    author: Author,
    *,
    if_match: int | None = None,
) -> Outcome:
    """A person's edit: texts, section, status, pin; also of a pinned bullet.

    Raises `NoBullet`, `Conflict` for the words of another, `Invalid` for an unknown section.
    """

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> Plan:
        state, bullet = await _one(session, playbook, key, fields.get("content"))
        after = _edited(state, bullet, fields)
        result = DeltaResult(
            index=0, type="UPDATE", action="updated", key=key, before=bullet, after=after
        )
        changed = replace(state, bullets={**state.bullets, key: after})
        return Plan("bullet", state.bullets, changed, [result])

    return await change_playbook(runtime, tenant_id, place, plan, author, Terms(if_match))


def named_section(
    sections: Sequence[SectionDefinition], name: str, field: str = "section"
) -> SectionDefinition:
    """The section that somebody names. Raises `Invalid`, which says those there are."""
    known = with_fallback(sections)
    section = find_section(known, name)
    if section is None:
        there = ", ".join(section.name for section in known)
        raise Invalid(f"There is no section '{name}'; there are: {there}.", field=field)
    return section


def _edited(state: PlaybookState, bullet: Bullet, fields: Mapping[str, Any]) -> Bullet:
    changes = dict(fields)
    if "section" in changes:
        changes["section"] = named_section(state.sections, changes["section"]).name
    words = plain_words(changes.get("content", bullet.content))
    for other in state.bullets.values():
        if other.id != bullet.id and plain_words(other.content) == words and words:
            raise Conflict(f"{other.id} says the same words.", key=other.id)
    after = bullet.model_copy(update=changes)
    if changes.keys() & {"content", "title", "when_to_use", "keywords"}:
        after = after.model_copy(update={"searchable_text": after.default_searchable_text()})
    return after


async def delete_bullet(
    runtime: Runtime,
    tenant_id: UUID,
    place: Place,
    key: str,
    author: Author,
    *,
    if_match: int | None = None,
) -> Outcome:
    """A person takes a bullet out, pinned or not. Raises `NoBullet`."""

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> Plan:
        state, bullet = await _one(session, playbook, key)
        left = {k: b for k, b in state.bullets.items() if k != key}
        result = DeltaResult(index=0, type="DELETE", action="deleted", key=key, before=bullet)
        return Plan("bullet", state.bullets, replace(state, bullets=left), [result])

    return await change_playbook(runtime, tenant_id, place, plan, author, Terms(if_match))


async def _one(
    session: AsyncSession, playbook: PlaybookRow, key: str, content: str | None = None
) -> tuple[PlaybookState, Bullet]:
    said = [fingerprint(content)] if content else []
    state = state_of(
        playbook, by_key(await find_bullets(session, playbook.scope, [key], said=said))
    )
    if key not in state.bullets:
        raise no_bullet(playbook, key)
    return state, state.bullets[key]


def no_bullet(playbook: PlaybookRow, key: str) -> NoBullet:
    """Says which bullet stands for this key today, when it was merged."""
    survivor = playbook.aliases.get(key)
    if survivor is None:
        return NoBullet()
    return NoBullet(f"{key} was merged into {survivor}.", merged_into=survivor)


async def delete_playbook(
    runtime: Runtime,
    tenant_id: UUID,
    place: Place,
    author: Author,
    *,
    if_match: int | None = None,
) -> Outcome:
    """Take all bullets out and the playbook off the list; `restore` brings both back."""

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> Plan:
        bullets = keyed(await bullets_as_of(session, playbook.scope))
        empty = replace(state_of(playbook, {}), bullets={})
        return Plan("delete", bullets, empty, deletes_playbook=True)

    return await change_playbook(runtime, tenant_id, place, plan, author, Terms(if_match))


async def find_playbook(
    session: AsyncSession, place: Place, *, deleted: bool = False
) -> PlaybookRow:
    """Raises `NoPlaybook` for one that is not there or, unless `deleted`, was taken away."""
    playbook = await get_playbook(session, place)
    if playbook is None or (playbook.deleted_at is not None and not deleted):
        raise NoPlaybook
    return playbook
