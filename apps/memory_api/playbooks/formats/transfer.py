"""Loads and imports a whole playbook, in the formats of `serialization.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.isolated_work import MAX_INLINE_SIZE
from memory_api.core.json_input import replace_unstorable
from memory_api.core.schemas import MAX_TAGS
from memory_api.core.secret_redaction import redact
from memory_api.playbooks.bullet_rows import bullets_by_key, sections_of, to_bullets, to_state
from memory_api.playbooks.editing.plan import (
    MAX_ACTIVE_BULLETS,
    ChangeConditions,
    ChangePlan,
    ChangeResult,
)
from memory_api.playbooks.editing.transaction import change_playbook
from memory_api.playbooks.errors import invalid_document
from memory_api.playbooks.formats.serialization import ParsedPlaybook, parse_playbook
from memory_api.playbooks.models import (
    MAX_TAG,
    MAX_TEXT,
    Bullet,
    CorruptPlaybook,
    Playbook,
    PlaybookMetadata,
)
from memory_api.playbooks.queries import list_bullets_as_of
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.sections import (
    DEFAULT_SECTIONS,
    SectionDefinition,
    find_section,
    join_sections,
    normalize_section_name,
)
from memory_api.playbooks.state import raise_counters
from memory_api.playbooks.tables import PlaybookRow
from memory_api.playbooks.usefulness import harm_rate, should_quarantine
from memory_api.playbooks.verdicts.quarantine import quarantine_reason, set_status
from memory_api.runtime import Runtime

_TEXTS = ("section", "content", "searchable_text", "source_trajectory", "when_to_use", "title")
_LISTS = ("keywords", "tags")
_SHORT_FORMAT_FIELDS = ("section", "content", "helpful", "harmful", "when_to_use")
"""The fields of a bullet in the formats `sections` and `ace`. An import changes those of the file.
"""


async def load_playbook(session: AsyncSession, playbook: PlaybookRow) -> Playbook:
    """The current playbook: every bullet that is not deleted, in order."""
    bullets = to_bullets(await list_bullets_as_of(session, playbook.scope_id))
    return Playbook.model_construct(metadata=playbook_metadata(playbook), bullets=bullets)


def playbook_metadata(playbook: PlaybookRow) -> PlaybookMetadata:
    return PlaybookMetadata(created_at=playbook.created_at, updated_at=playbook.updated_at)


async def replace_playbook(
    runtime: Runtime,
    tenant_id: UUID,
    ref: PlaybookRef,
    text: str | bytes,
    author: ChangeAuthor,
    *,
    if_match: int | None = None,
    dry_run: bool = False,
) -> tuple[ChangeResult, tuple[str, ...]]:
    """Replaces the playbook by the content of this text, as one version. Also returns notes on what
    was not imported.

    Deletes bullets that the text does not contain, and quarantines harmful ones. The formats
    `sections` and `ace` leave other fields of a bullet, and bullets that are not active, unchanged.
    Raises `InvalidRequest`, with the location, for an invalid text. Nothing is changed then.
    """
    cache: list[tuple[tuple[SectionDefinition, ...], ParsedPlaybook]] = []

    async def parse(sections: tuple[SectionDefinition, ...]) -> ParsedPlaybook:
        """Parses the text once for a playbook with these sections."""
        if not cache or cache[-1][0] != sections:
            is_large = len(text) > MAX_INLINE_SIZE
            work = partial(_parse, text, sections)
            cache.append((sections, await asyncio.to_thread(work) if is_large else work()))
        return cache[-1][1]

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> ChangePlan:
        parsed = await parse(sections_of(playbook))
        before = bullets_by_key(await list_bullets_as_of(session, playbook.scope_id))
        return _plan_import(playbook, before, parsed)

    conditions = ChangeConditions(if_match, create_missing=True, dry_run=dry_run)
    result = await change_playbook(runtime, tenant_id, ref, plan, author, conditions)
    return result, cache[-1][1].notes


def _parse(text: str | bytes, sections: Sequence[SectionDefinition]) -> ParsedPlaybook:
    """The text as a playbook that can be stored, without secrets."""
    try:
        parsed = parse_playbook(text, sections)
        _check_limits(parsed.playbook)
        parsed.playbook.bullets = [_sanitize_bullet(bullet) for bullet in parsed.playbook.bullets]
    except CorruptPlaybook as error:
        raise invalid_document(error) from error
    return parsed


def _plan_import(
    playbook: PlaybookRow, before: Mapping[str, Bullet], parsed: ParsedPlaybook
) -> ChangePlan:
    imported = parsed.playbook.bullets
    if parsed.form == "bullets":
        after = {bullet.id: bullet for bullet in imported}
    else:
        after = {bullet.id: _update_bullet(before.get(bullet.id), bullet) for bullet in imported}
        after |= {k: b for k, b in before.items() if b.status != "active" and k not in after}
    state = replace(
        to_state(playbook, after),
        sections=_plan_sections(playbook, before, after, parsed),
        key_counters=raise_counters(playbook.key_counters, after),
    )
    positions = {bullet.id: index for index, bullet in enumerate(imported)}
    created_at = _created_at(parsed)
    plan = ChangePlan("import", before, state, positions=positions, created_at=created_at)
    return _quarantine_harmful(plan)


def _created_at(parsed: ParsedPlaybook) -> datetime | None:
    """The time in the file, if it has one that is not in the future and that can be stored. Only
    the format `bullets` has it.
    """
    metadata = parsed.playbook.metadata
    if parsed.form != "bullets" or "created_at" not in metadata.model_fields_set:
        return None
    first = datetime.min.replace(tzinfo=UTC)
    return metadata.created_at if first <= metadata.created_at <= datetime.now(UTC) else None


def _quarantine_harmful(plan: ChangePlan) -> ChangePlan:
    """The import with its harmful bullets quarantined. A bullet that has no more harmful verdicts
    than before is unchanged, because a person may have activated it.
    """
    bullets = plan.after.bullets
    helpful, harmful = (
        sum(getattr(bullet, name) for bullet in bullets.values() if bullet.status == "active")
        for name in ("helpful", "harmful")
    )
    reasons: dict[str, str] = {}
    for key, bullet in bullets.items():
        known = plan.before.get(key)
        if bullet.pinned or bullet.status != "active":
            continue
        if known is not None and known.harmful >= bullet.harmful:
            continue
        base_rate = harm_rate(helpful - bullet.helpful, harmful - bullet.harmful)
        if should_quarantine(bullet.helpful, bullet.harmful, base_rate):
            reasons[key] = quarantine_reason(bullet.helpful, bullet.harmful)
    return set_status(plan, {key: bullets[key] for key in reasons}, "quarantined", reasons)


def _plan_sections(
    playbook: PlaybookRow,
    before: Mapping[str, Bullet],
    after: Mapping[str, Bullet],
    parsed: ParsedPlaybook,
) -> tuple[SectionDefinition, ...]:
    """The sections after an import.

    A new playbook with the default sections takes those of the file if any of them is not a
    default. Otherwise the formats `sections` and `ace` replace the sections, except those still
    used. The format `bullets` adds the sections that its bullets name, and removes sections without
    a description that have lost their last bullet.
    """
    known = sections_of(playbook)
    used_before, used_after = (
        {normalize_section_name(b.section) for b in bullets.values()} for bullets in (before, after)
    )
    if playbook.version == 0 and known == DEFAULT_SECTIONS:
        has_custom = any(find_section(known, section.name) is None for section in parsed.sections)
        return parsed.sections if has_custom else known
    if parsed.form != "bullets":
        used = [section for section in known if normalize_section_name(section.name) in used_after]
        return join_sections(parsed.sections, used)
    emptied = used_before - used_after
    remaining = [s for s in known if s.description or normalize_section_name(s.name) not in emptied]
    return join_sections(remaining, parsed.sections)


def _update_bullet(before: Bullet | None, imported: Bullet) -> Bullet:
    """The bullet with the fields that the formats `sections` and `ace` contain."""
    if before is None:
        return imported
    given = [name for name in _SHORT_FORMAT_FIELDS if name in imported.model_fields_set]
    after = before.model_copy(update={name: getattr(imported, name) for name in given})
    if (after.content, after.when_to_use) != (before.content, before.when_to_use):
        after = after.model_copy(update={"searchable_text": after.default_searchable_text()})
    return after.model_copy(update={"status": "active"})


def _check_limits(playbook: Playbook) -> None:
    """Raises CorruptPlaybook for a bullet that cannot be stored, or too many."""
    active_count = sum(bullet.status == "active" for bullet in playbook.bullets)
    if active_count > MAX_ACTIVE_BULLETS:
        reason = (
            f"a playbook has at most {MAX_ACTIVE_BULLETS:,} active bullets, this one"
            f" {active_count:,}. Import them as several playbooks, or store texts that need no"
            " counters as documents of a collection"
        )
        raise CorruptPlaybook("bullets", reason)
    for index, bullet in enumerate(playbook.bullets):
        if not bullet.content.strip():
            raise CorruptPlaybook(f"bullets[{index}].content", f"{bullet.id} has no content")
        for name in _TEXTS:
            if len(getattr(bullet, name)) > MAX_TEXT:
                raise CorruptPlaybook(
                    f"bullets[{index}].{name}", f"longer than {MAX_TEXT} characters"
                )
        if len(bullet.tags) > MAX_TAGS or any(not 0 < len(t) <= MAX_TAG for t in bullet.tags):
            reason = f"at most {MAX_TAGS} tags of 1 to {MAX_TAG} characters are allowed"
            raise CorruptPlaybook(f"bullets[{index}].tags", reason)
        if bullet.status == "deleted":
            raise CorruptPlaybook(f"bullets[{index}].status", "a deleted bullet cannot be imported")


def _sanitize_bullet(bullet: Bullet) -> Bullet:
    """The bullet without secrets and without characters that PostgreSQL cannot store."""
    texts = {name: _sanitize(getattr(bullet, name)) for name in _TEXTS}
    lists = {name: [_sanitize(item) for item in getattr(bullet, name)] for name in _LISTS}
    changed = {k: v for k, v in (texts | lists).items() if v != getattr(bullet, k)}
    return bullet.model_copy(update=changed) if changed else bullet


def _sanitize(text: str) -> str:
    return redact(replace_unstorable(text)).text
