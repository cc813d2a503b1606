"""A playbook at any version or time, what lies between two of them, and the way back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import Invalid, NotFound
from apps.memory_api.playbook.change import change_playbook
from apps.memory_api.playbook.import_export import metadata_of
from apps.memory_api.playbook.plan import Changed, Diff, Outcome, Plan, Terms
from apps.memory_api.playbook.queries import (
    bullets_as_of,
    changed_between,
    get_version,
    sections_at,
    version_at,
)
from apps.memory_api.playbook.rows import (
    Author,
    Place,
    keyed,
    sections_of,
    state_of,
    to_bullets,
)
from apps.memory_api.playbook.schemas import Bullet, Playbook
from apps.memory_api.playbook.sections import SectionDefinition
from apps.memory_api.playbook.tables import PlaybookRow, PlaybookVersion
from apps.memory_api.runtime import Runtime

Moment = int | datetime
"""A version, or a time: the version that held then."""


class NoVersion(NotFound):
    """The playbook never had such a version."""


def read_moment(text: str, field: str) -> Moment:
    """A version's number, or a time in ISO 8601, UTC unless it says otherwise. Raises `Invalid`."""
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid("A version's number or a time (ISO 8601).", field=field) from None


async def resolve_version(
    session: AsyncSession, playbook: PlaybookRow, moment: Moment
) -> PlaybookVersion | None:
    """The version of a moment; None is the empty playbook before the first. Raises `NoVersion`."""
    if isinstance(moment, datetime):
        return await version_at(session, playbook.scope, moment)
    if moment == 0:
        return None
    found = await get_version(session, playbook.scope, moment)
    if found is None:
        raise NoVersion(f"This playbook has versions 0 to {playbook.version}.")
    return found


async def read_as_of(
    session: AsyncSession, playbook: PlaybookRow, moment: Moment
) -> tuple[int, Playbook]:
    """The version and the playbook of a moment. Texts are of then, counters of today."""
    version = await resolve_version(session, playbook, moment)
    metadata = metadata_of(playbook)
    if version is None:
        metadata.updated_at = metadata.created_at
        return 0, Playbook(metadata=metadata)
    rows = await bullets_as_of(session, playbook.scope, version.version)
    metadata.updated_at = version.created_at
    return version.version, Playbook.model_construct(metadata=metadata, bullets=to_bullets(rows))


async def compare(
    session: AsyncSession, playbook: PlaybookRow, first: Moment, last: Moment
) -> Diff:
    """What changed from one moment to the other; either may be the earlier."""
    a = await resolve_version(session, playbook, first)
    b = await resolve_version(session, playbook, last)
    from_version, to_version = (v.version if v else 0 for v in (a, b))
    scope = playbook.scope
    low, high = sorted((from_version, to_version))
    ids = await changed_between(session, scope, low, high)
    before = keyed(await bullets_as_of(session, scope, from_version, ids))
    after = keyed(await bullets_as_of(session, scope, to_version, ids))
    keys = dict.fromkeys([*before, *after])
    changed = [Changed(key, before.get(key), after.get(key)) for key in keys]
    return Diff(
        from_version,
        to_version,
        [c for c in changed if c.before != c.after],
        await _sections(session, scope, from_version),
        await _sections(session, scope, to_version),
    )


async def _sections(session: AsyncSession, scope: int, version: int) -> list[SectionDefinition]:
    stored = await sections_at(session, scope, version)
    return [SectionDefinition.model_validate(section) for section in stored]


async def restore(
    runtime: Runtime,
    tenant_id: UUID,
    place: Place,
    moment: Moment,
    author: Author,
    *,
    if_match: int | None = None,
    dry: bool = False,
) -> Outcome:
    """Make content, status and sections what they were, as a new version; a deleted playbook comes
    back. Evidence stays, and so do the numbers of keys that were given since.
    """

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> Plan:
        version, then = await read_as_of(session, playbook, moment)
        before = keyed(await bullets_as_of(session, playbook.scope))
        after = {b.id: _again(before.get(b.id), b) for b in then.bullets}
        sections = await _sections(session, playbook.scope, version) or sections_of(playbook)
        state = replace(state_of(playbook, after), sections=tuple(sections))
        return Plan("restore", before, state)

    terms = Terms(if_match, revive=True, dry=dry)
    return await change_playbook(runtime, tenant_id, place, plan, author, terms)


def _again(now: Bullet | None, then: Bullet) -> Bullet:
    """The bullet of then; untouched where only what is never restored differs."""
    if now is None or now.model_copy(update={"searchable_text": then.searchable_text}) != then:
        return then
    return now
