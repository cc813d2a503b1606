"""A whole playbook in and out, in the forms of `formats`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.body import clean_text
from apps.memory_api.core.redaction import redact
from apps.memory_api.core.schemas import MAX_TAGS
from apps.memory_api.playbook.change import change_playbook
from apps.memory_api.playbook.errors import corrupt
from apps.memory_api.playbook.formats import Imported, import_playbook
from apps.memory_api.playbook.keys import lift
from apps.memory_api.playbook.plan import Outcome, Plan, Terms
from apps.memory_api.playbook.queries import bullets_as_of
from apps.memory_api.playbook.rows import Author, Place, keyed, sections_of, state_of, to_bullets
from apps.memory_api.playbook.schemas import Bullet, CorruptPlaybook, Playbook, PlaybookMetadata
from apps.memory_api.playbook.sections import (
    DEFAULT_SECTIONS,
    SectionDefinition,
    find_section,
    join_sections,
    normal_name,
)
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.runtime import Runtime

MAX_TEXT = 100_000
MAX_TAG = 64
_TEXTS = ("section", "content", "searchable_text", "source_trajectory", "when_to_use", "title")
_LISTS = ("keywords", "tags")
_CARRIED = ("section", "content", "helpful", "harmful")
"""What spec 4's and ACE's forms say of a bullet; the rest stays as it is."""


async def read_playbook(session: AsyncSession, playbook: PlaybookRow) -> Playbook:
    """The playbook as it is now: every bullet that is not deleted, in its order."""
    bullets = to_bullets(await bullets_as_of(session, playbook.scope))
    return Playbook.model_construct(metadata=metadata_of(playbook), bullets=bullets)


def metadata_of(playbook: PlaybookRow) -> PlaybookMetadata:
    return PlaybookMetadata(created_at=playbook.created_at, updated_at=playbook.updated_at)


async def put_playbook(
    runtime: Runtime,
    tenant_id: UUID,
    place: Place,
    text: str | bytes,
    author: Author,
    *,
    if_match: int | None = None,
    dry: bool = False,
) -> tuple[Outcome, tuple[str, ...]]:
    """Make the playbook what this text says, as one version; answers also what was not kept.

    Bullets that are not in the text go. A form that has only sections, keys, texts and two counters
    leaves the rest of a bullet as it is, and bullets that are not active alone. Raises `Invalid`,
    naming the place, when the text is no playbook: nothing is changed then.
    """
    last: list[tuple[tuple[SectionDefinition, ...], Imported]] = []

    def imported(sections: tuple[SectionDefinition, ...]) -> Imported:
        """What the text says to a playbook with these sections, read once for the same ones."""
        if not last or last[-1][0] != sections:
            last.append((sections, _read(text, sections)))
        return last[-1][1]

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> Plan:
        found = imported(sections_of(playbook))
        before = keyed(await bullets_as_of(session, playbook.scope))
        return _replace(playbook, before, found)

    terms = Terms(if_match, create=True, dry=dry)
    outcome = await change_playbook(runtime, tenant_id, place, plan, author, terms)
    return outcome, last[-1][1].notes


def _read(text: str | bytes, sections: Sequence[SectionDefinition]) -> Imported:
    try:
        found = import_playbook(text, sections)
        _check(found.playbook)
    except CorruptPlaybook as error:
        raise corrupt(error) from error
    return found


def _replace(playbook: PlaybookRow, before: Mapping[str, Bullet], found: Imported) -> Plan:
    given = [_clean(bullet) for bullet in found.playbook.bullets]
    if found.form == "spec2":
        after = {bullet.id: bullet for bullet in given}
    else:
        after = {bullet.id: _carried(before.get(bullet.id), bullet) for bullet in given}
        after |= {k: b for k, b in before.items() if b.status != "active" and k not in after}
    state = replace(
        state_of(playbook, after),
        sections=_sections(playbook, before, after, found),
        last_numbers=lift(playbook.last_numbers, after),
    )
    places = {bullet.id: n for n, bullet in enumerate(given)}
    return Plan("import", before, state, places=places)


def _sections(
    playbook: PlaybookRow,
    before: Mapping[str, Bullet],
    after: Mapping[str, Bullet],
    found: Imported,
) -> tuple[SectionDefinition, ...]:
    """A first file with sections of its own says which there are, where nobody defined others;
    later spec 4's and ACE's forms do. A file of spec 2 only uses them: what is defined stays, but
    not what only had its bullets.
    """
    known = sections_of(playbook)
    had, now = ({normal_name(b.section) for b in some.values()} for some in (before, after))
    if playbook.version == 0 and known == DEFAULT_SECTIONS:
        own = any(find_section(known, section.name) is None for section in found.sections)
        return found.sections if own else known
    if found.form != "spec2":
        used = [section for section in known if normal_name(section.name) in now]
        return join_sections(found.sections, used)
    gone = {n for s in known if not s.description and (n := normal_name(s.name)) in had - now}
    kept = [section for section in known if normal_name(section.name) not in gone]
    return join_sections(kept, found.sections)


def _carried(before: Bullet | None, given: Bullet) -> Bullet:
    """The bullet with what a small form says of it."""
    if before is None:
        return given
    after = before.model_copy(update={name: getattr(given, name) for name in _CARRIED})
    if after.content != before.content:
        after = after.model_copy(update={"searchable_text": after.default_searchable_text()})
    return after.model_copy(update={"status": "active"})


def _check(playbook: Playbook) -> None:
    """The limits of what rows and labels hold."""
    for n, bullet in enumerate(playbook.bullets):
        if not bullet.content.strip():
            raise CorruptPlaybook(f"bullets[{n}].content", f"{bullet.id} says nothing")
        for name in _TEXTS:
            if len(getattr(bullet, name)) > MAX_TEXT:
                raise CorruptPlaybook(f"bullets[{n}].{name}", f"longer than {MAX_TEXT}")
        if len(bullet.tags) > MAX_TAGS or any(not 0 < len(t) <= MAX_TAG for t in bullet.tags):
            reason = f"more than {MAX_TAGS} tags, or one that has not 1 to {MAX_TAG} characters"
            raise CorruptPlaybook(f"bullets[{n}].tags", reason)
        if bullet.status == "deleted":
            raise CorruptPlaybook(f"bullets[{n}].status", "a deleted bullet cannot be brought in")


def _clean(bullet: Bullet) -> Bullet:
    """The bullet without what PostgreSQL cannot store, and without secrets."""
    texts = {name: _storable(getattr(bullet, name)) for name in _TEXTS}
    lists = {name: [_storable(item) for item in getattr(bullet, name)] for name in _LISTS}
    changed = {k: v for k, v in (texts | lists).items() if v != getattr(bullet, k)}
    return bullet.model_copy(update=changed) if changed else bullet


def _storable(text: str) -> str:
    return redact(clean_text(text)).text


async def save_playbook(
    runtime: Runtime, tenant_id: UUID, place: Place, playbook: Playbook, author: Author
) -> Outcome:
    """Spec 2's `save` over the rows: the playbook is then exactly this one."""
    text = playbook.model_dump_json(exclude={"bullets": {"__all__": {"confidence_score"}}})
    return (await put_playbook(runtime, tenant_id, place, text, author))[0]
