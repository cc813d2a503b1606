"""Changes of a playbook by deltas, of single bullets, and of its settings. Each becomes a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.api.deps import Session
from memory_api.core.errors import Conflict, InvalidRequest
from memory_api.memories.index.drafts import fingerprint
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.bullet_rows import active_bullets_by_key, bullets_by_key, to_state
from memory_api.playbooks.deltas import DeltaError, apply_deltas, normalize_content
from memory_api.playbooks.editing.plan import (
    ChangeConditions,
    ChangePlan,
    ChangePlanner,
    ChangeResult,
    DeltaSources,
)
from memory_api.playbooks.editing.transaction import change_playbook
from memory_api.playbooks.errors import PlaybookNotFound, bullet_not_found, invalid_delta
from memory_api.playbooks.models import Bullet, DeltaContextItem, DeltaResult
from memory_api.playbooks.queries import find_bullets, get_playbook, list_bullets_as_of
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.sections import (
    SectionDefinition,
    find_section,
    normalize_section_name,
    with_fallback,
)
from memory_api.playbooks.state import PlaybookState
from memory_api.playbooks.tables import PlaybookRow
from memory_api.runtime import Runtime
from memory_api.tenants.audit_log import record_audit_event


async def load_affected_state(
    session: AsyncSession, playbook: PlaybookRow, deltas: Sequence[DeltaContextItem]
) -> PlaybookState:
    """The part of the playbook that these deltas can affect: the bullets that they name, and those
    with the same content.
    """
    keys = {key for d in deltas for key in (d.bullet_id, *d.source_ids) if key}
    fingerprints = {fingerprint(d.content) for d in deltas if d.content.strip()}
    rows = await find_bullets(session, playbook.scope_id, keys, fingerprints=sorted(fingerprints))
    return to_state(playbook, active_bullets_by_key(rows))


def apply_or_reject(
    state: PlaybookState, deltas: Sequence[DeltaContextItem]
) -> tuple[PlaybookState, list[DeltaResult]]:
    """`apply_deltas`, but raises `InvalidRequest` with the index and the field of the delta."""
    try:
        return apply_deltas(state, deltas)
    except DeltaError as error:
        raise invalid_delta(error) from error


def plan_deltas(
    deltas: Sequence[DeltaContextItem], sources: DeltaSources, *, require_sections: bool = False
) -> ChangePlanner:
    """A planner that applies these deltas. With `require_sections`, an ADD to an unknown section
    raises `InvalidRequest`. Without, as for deltas of a model, its bullet goes to OTHERS.
    """

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> ChangePlan:
        before = await load_affected_state(session, playbook, deltas)
        if require_sections:
            _check_sections(before.sections, deltas)
        after, results = apply_or_reject(before, deltas)
        changed = [r for r in results if r.key and r.action in ("added", "updated", "merged")]
        return ChangePlan(
            "deltas",
            before.bullets,
            after,
            results,
            sources={r.key or "": sources[r.index] for r in changed if r.index in sources},
            absorbed={r.key or "": [b.id for b in r.absorbed] for r in changed if r.absorbed},
            reasons=_change_reasons(results),
        )

    return plan


def _check_sections(
    sections: Sequence[SectionDefinition], deltas: Sequence[DeltaContextItem]
) -> None:
    for index, delta in enumerate(deltas):
        if delta.type == "ADD" and delta.section.strip():
            require_section(sections, delta.section, f"deltas.{index}.section")


def _change_reasons(results: Sequence[DeltaResult]) -> dict[str, str]:
    reasons = {r.key: r.reason for r in results if r.key and r.action != "rejected"}
    for result in results:
        for bullet in result.absorbed:
            reasons[bullet.id] = f"Merged into {result.key}. {result.reason}".strip()
    return reasons


async def apply_deltas_to_playbook(
    runtime: Runtime,
    tenant_id: UUID,
    ref: PlaybookRef,
    deltas: Sequence[DeltaContextItem],
    author: ChangeAuthor,
    *,
    sources: DeltaSources | None = None,
    if_match: int | None = None,
    dry_run: bool = False,
) -> ChangeResult:
    """Applies deltas, all or none, as one version. Creates a missing playbook.

    Raises `InvalidRequest` with the index of the delta, `VersionMismatch`, `ReviewRequired` and
    `PlaybookFull`.
    """
    planner = plan_deltas(deltas, sources or {}, require_sections=True)
    conditions = ChangeConditions(if_match, create_missing=True, dry_run=dry_run)
    return await change_playbook(runtime, tenant_id, ref, planner, author, conditions)


async def add_bullet(
    runtime: Runtime,
    tenant_id: UUID,
    ref: PlaybookRef,
    delta: DeltaContextItem,
    author: ChangeAuthor,
    *,
    pinned: bool = False,
    if_match: int | None = None,
) -> ChangeResult:
    """Adds a bullet. Raises `Conflict` if another bullet has the same content, and `InvalidRequest`
    for an unknown section.
    """

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> ChangePlan:
        before = await load_affected_state(session, playbook, [delta])
        require_section(before.sections, delta.section)
        after, (result,) = apply_or_reject(before, [delta])
        key = result.key or ""
        if result.action == "rejected":
            raise Conflict(f"Bullet {key} already has this content.", key=key)
        if pinned:
            bullet = after.bullets[key].model_copy(update={"pinned": True})
            after = replace(after, bullets={**after.bullets, key: bullet})
            result = result.model_copy(update={"after": bullet})
        return ChangePlan("bullet", before.bullets, after, [result])

    conditions = ChangeConditions(if_match, create_missing=True)
    return await change_playbook(runtime, tenant_id, ref, plan, author, conditions)


async def edit_bullet(
    runtime: Runtime,
    tenant_id: UUID,
    ref: PlaybookRef,
    key: str,
    fields: Mapping[str, Any],
    author: ChangeAuthor,
    *,
    if_match: int | None = None,
) -> ChangeResult:
    """Changes texts, section, status or pin of a bullet. A pinned bullet can be changed too.

    Raises `BulletNotFound`, `Conflict` if another bullet has the same content, and `InvalidRequest`
    for an unknown section.
    """

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> ChangePlan:
        state, bullet = await _load_bullet(session, playbook, key, fields.get("content"))
        after = _updated_bullet(state, bullet, fields)
        result = DeltaResult(
            index=0, type="UPDATE", action="updated", key=key, before=bullet, after=after
        )
        changed = replace(state, bullets={**state.bullets, key: after})
        return ChangePlan("bullet", state.bullets, changed, [result])

    return await change_playbook(runtime, tenant_id, ref, plan, author, ChangeConditions(if_match))


def require_section(
    sections: Sequence[SectionDefinition], name: str, field: str = "section"
) -> SectionDefinition:
    """The section with this name or slug. Raises `InvalidRequest`, which lists the known
    sections.
    """
    known = with_fallback(sections)
    section = find_section(known, name)
    if section is None:
        names = ", ".join(section.name for section in known)
        raise InvalidRequest(f"Unknown section '{name}'. Use one of: {names}.", field=field)
    return section


def _updated_bullet(state: PlaybookState, bullet: Bullet, fields: Mapping[str, Any]) -> Bullet:
    changes = dict(fields)
    if "section" in changes:
        changes["section"] = require_section(state.sections, changes["section"]).name
    if "status" in changes:
        changes["awaiting_confirmation"] = False
    content = normalize_content(changes.get("content", bullet.content))
    for other in state.bullets.values():
        if other.id != bullet.id and normalize_content(other.content) == content and content:
            raise Conflict(f"Bullet {other.id} already has this content.", key=other.id)
    after = bullet.model_copy(update=changes)
    if changes.keys() & {"content", "title", "when_to_use", "keywords"}:
        after = after.model_copy(update={"searchable_text": after.default_searchable_text()})
    return after


async def delete_bullet(
    runtime: Runtime,
    tenant_id: UUID,
    ref: PlaybookRef,
    key: str,
    author: ChangeAuthor,
    *,
    if_match: int | None = None,
) -> ChangeResult:
    """Deletes a bullet, pinned or not. Raises `BulletNotFound`."""

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> ChangePlan:
        state, bullet = await _load_bullet(session, playbook, key)
        others = {k: b for k, b in state.bullets.items() if k != key}
        result = DeltaResult(index=0, type="DELETE", action="deleted", key=key, before=bullet)
        return ChangePlan("bullet", state.bullets, replace(state, bullets=others), [result])

    return await change_playbook(runtime, tenant_id, ref, plan, author, ChangeConditions(if_match))


async def _load_bullet(
    session: AsyncSession, playbook: PlaybookRow, key: str, content: str | None = None
) -> tuple[PlaybookState, Bullet]:
    """The bullet, in a state that also has the bullets with this content. Raises
    `BulletNotFound`.
    """
    fingerprints = [fingerprint(content)] if content else []
    rows = await find_bullets(session, playbook.scope_id, [key], fingerprints=fingerprints)
    state = to_state(playbook, active_bullets_by_key(rows))
    if key not in state.bullets:
        raise bullet_not_found(playbook, key)
    return state, state.bullets[key]


async def delete_playbook(
    runtime: Runtime,
    tenant_id: UUID,
    ref: PlaybookRef,
    author: ChangeAuthor,
    *,
    if_match: int | None = None,
) -> ChangeResult:
    """Deletes all bullets and the playbook. `restore_playbook` restores both."""

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> ChangePlan:
        bullets = bullets_by_key(await list_bullets_as_of(session, playbook.scope_id))
        empty = replace(to_state(playbook, {}), bullets={})
        return ChangePlan("delete", bullets, empty, deletes_playbook=True)

    return await change_playbook(runtime, tenant_id, ref, plan, author, ChangeConditions(if_match))


async def require_playbook(
    session: AsyncSession, ref: PlaybookRef, *, deleted: bool = False
) -> PlaybookRow:
    """The playbook. Raises `PlaybookNotFound` if it is missing or, unless `deleted`, was
    deleted.
    """
    playbook = await get_playbook(session, ref)
    if playbook is None or (playbook.deleted_at is not None and not deleted):
        raise PlaybookNotFound
    return playbook


async def require_bullet(
    session: Session, ref: PlaybookRef, key: str, *, deleted: bool = False
) -> MemoryRow:
    """The bullet. Raises `BulletNotFound` if it is missing or, unless `deleted`, was deleted or
    merged; then also `PlaybookNotFound` for a deleted playbook.
    """
    playbook = await require_playbook(session, ref, deleted=deleted)
    row = (await find_bullets(session, playbook.scope_id, [key])).get(key)
    if row is None or (row.status == "deleted" and not deleted):
        raise bullet_not_found(playbook, key)
    return row


SETTING_NAMES = ("review_mode", "token_budget", "max_bullets", "holdout_share", "focus")


async def update_settings(
    runtime: Runtime,
    tenant_id: UUID,
    ref: PlaybookRef,
    fields: Mapping[str, Any],
    author: ChangeAuthor,
    *,
    if_match: int | None = None,
) -> None:
    """Sets `sections` and the settings in `SETTING_NAMES` that `fields` contains, as one version
    unless nothing changes. Creates a missing playbook. The audit log gets the changed settings.
    """
    sections: Sequence[SectionDefinition] | None = fields.get("sections")
    if sections is not None:
        _check_unique(sections)

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> ChangePlan:
        state = to_state(playbook, {})
        if sections is not None:
            state = replace(state, sections=with_fallback(sections))

        changed = {
            name: fields[name]
            for name in SETTING_NAMES
            if name in fields and getattr(playbook, name) != fields[name]
        }

        async def set_settings(_result: ChangeResult) -> None:
            playbook.deleted_at = None
            for name, value in changed.items():
                setattr(playbook, name, value)
            if changed:
                details = {"project_id": ref.project_id, "settings": changed}
                await record_audit_event(
                    session, "playbook.configured", f"playbook:{ref.name}", details
                )

        return ChangePlan("settings", {}, state, changed_settings=changed, after_write=set_settings)

    await change_playbook(
        runtime, tenant_id, ref, plan, author, ChangeConditions(if_match, create_missing=True)
    )


def _check_unique(sections: Sequence[SectionDefinition]) -> None:
    """Raises `InvalidRequest` for two sections with the same name or slug."""
    for field, values in (
        ("name", [normalize_section_name(section.name) for section in sections]),
        ("slug", [section.slug for section in sections]),
    ):
        if len(set(values)) < len(values):
            raise InvalidRequest(f"Two sections have the same {field}.", field="sections")
