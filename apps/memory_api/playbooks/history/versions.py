"""A playbook at any version or time, the differences between two versions, and restore."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.errors import InvalidRequest, NotFound
from memory_api.playbooks.bullet_rows import bullets_by_key, sections_of, to_bullets, to_state
from memory_api.playbooks.editing.plan import (
    BulletChange,
    ChangeConditions,
    ChangePlan,
    ChangeResult,
    VersionDiff,
)
from memory_api.playbooks.editing.transaction import change_playbook
from memory_api.playbooks.formats.transfer import playbook_metadata
from memory_api.playbooks.history.queries import find_different_bullets
from memory_api.playbooks.models import Bullet, Playbook
from memory_api.playbooks.queries import (
    get_sections_at,
    get_version,
    get_version_at,
    list_bullets_as_of,
)
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.sections import SectionDefinition
from memory_api.playbooks.tables import PlaybookRow, PlaybookVersionRow
from memory_api.runtime import Runtime

VersionOrTime = int | datetime
"""A version number, or a time, which selects the version that was current then."""


class VersionNotFound(NotFound):
    """Version not found."""


def parse_version_or_time(text: str, field: str) -> VersionOrTime:
    """Parses a version number or an ISO 8601 time, UTC by default. Raises `InvalidRequest`."""
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"`{field}` must be a version number or an ISO 8601 time.", field=field
        ) from None


async def resolve_version(
    session: AsyncSession, playbook: PlaybookRow, moment: VersionOrTime
) -> PlaybookVersionRow | None:
    """The version at a moment. None is the empty playbook before version 1. Raises
    `VersionNotFound`.
    """
    if isinstance(moment, datetime):
        return await get_version_at(session, playbook.scope_id, moment)
    if moment == 0:
        return None
    version = await get_version(session, playbook.scope_id, moment)
    if version is None:
        raise VersionNotFound(
            f"Version not found. This playbook has versions 1 to {playbook.version}; 0 is empty."
        )
    return version


async def load_as_of(
    session: AsyncSession, playbook: PlaybookRow, moment: VersionOrTime
) -> tuple[int, Playbook]:
    """The version number and the playbook at a moment. Counters are the current ones."""
    version = await resolve_version(session, playbook, moment)
    metadata = playbook_metadata(playbook)
    if version is None:
        metadata.updated_at = metadata.created_at
        return 0, Playbook(metadata=metadata)
    rows = await list_bullets_as_of(session, playbook.scope_id, version.version)
    metadata.updated_at = version.created_at
    return version.version, Playbook.model_construct(metadata=metadata, bullets=to_bullets(rows))


async def diff_versions(
    session: AsyncSession,
    playbook: PlaybookRow,
    first: VersionOrTime,
    last: VersionOrTime,
    *,
    limit: int | None = None,
) -> VersionDiff:
    """The changes from one moment to another: all, or the first `limit` by key. `last` may be the
    earlier moment.
    """
    first_row = await resolve_version(session, playbook, first)
    last_row = await resolve_version(session, playbook, last)
    from_version, to_version = (row.version if row else 0 for row in (first_row, last_row))
    scope = playbook.scope_id
    found = await find_different_bullets(session, scope, from_version, to_version, limit)
    before = bullets_by_key(await list_bullets_as_of(session, scope, from_version, found.ids))
    after = bullets_by_key(await list_bullets_as_of(session, scope, to_version, found.ids))
    keys = dict.fromkeys([*before, *after])
    return VersionDiff(
        from_version,
        to_version,
        [BulletChange(key, before.get(key), after.get(key)) for key in keys],
        found.count,
        await _load_sections(session, scope, from_version),
        await _load_sections(session, scope, to_version),
    )


async def _load_sections(
    session: AsyncSession, scope: int, version: int
) -> list[SectionDefinition]:
    stored = await get_sections_at(session, scope, version)
    return [SectionDefinition.model_validate(section) for section in stored]


async def restore_playbook(
    runtime: Runtime,
    tenant_id: UUID,
    ref: PlaybookRef,
    moment: VersionOrTime,
    author: ChangeAuthor,
    *,
    if_match: int | None = None,
    dry_run: bool = False,
) -> ChangeResult:
    """Restores texts, status and sections of a moment as a new version. Also restores a deleted
    playbook. The verdict counters stay, and no key is ever given to another bullet.
    """

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> ChangePlan:
        version, past = await load_as_of(session, playbook, moment)
        before = bullets_by_key(await list_bullets_as_of(session, playbook.scope_id))
        after = {b.id: _restored_bullet(before.get(b.id), b) for b in past.bullets}
        sections = await _load_sections(session, playbook.scope_id, version) or sections_of(
            playbook
        )
        state = replace(to_state(playbook, after), sections=tuple(sections))
        return ChangePlan("restore", before, state)

    conditions = ChangeConditions(if_match, restore_deleted=True, dry_run=dry_run)
    return await change_playbook(runtime, tenant_id, ref, plan, author, conditions)


def _restored_bullet(current: Bullet | None, past: Bullet) -> Bullet:
    """The past bullet, or the current one if they differ only in the search text."""
    if current is None:
        return past
    same_search_text = current.model_copy(update={"searchable_text": past.searchable_text})
    return current if same_search_text == past else past
