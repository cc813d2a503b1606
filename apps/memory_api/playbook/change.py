"""Changing a playbook's rows: plan, embed what is new, then lock, plan again and write, all in one
transaction.

A plan is made of what the rows say under the playbook's lock, so two writers end in one history.
No text is embedded while a transaction is open: a plan that needs a text which is not ready lets
the lock go, has it embedded and comes back. Most plans need the same texts both times.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.memory.prepare import Prepared, prepare
from apps.memory_api.playbook.compose import new_sections
from apps.memory_api.playbook.errors import TooBusy
from apps.memory_api.playbook.plan import (
    Changed,
    Diff,
    Outcome,
    Plan,
    Planner,
    Terms,
    check_room,
)
from apps.memory_api.playbook.queries import ensure_playbook, get_playbook
from apps.memory_api.playbook.rows import Author, Place, draft_of, sections_of
from apps.memory_api.playbook.schemas import Bullet
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.playbook.write import write
from apps.memory_api.runtime import Runtime

ATTEMPTS = 20
"""How often a plan may need texts that the plan before it did not."""


async def change_playbook(
    runtime: Runtime,
    tenant_id: UUID,
    place: Place,
    planner: Planner,
    author: Author,
    terms: Terms | None = None,
    *,
    expected: Sequence[Bullet] = (),
) -> Outcome:
    """Plan and write, under the playbook's lock, which is let go of while new texts are embedded.
    Those of the bullets that are `expected` to be new are embedded before it is taken.

    Raises what the planner raises, `NoPlaybook`, `Stale`, `UnderReview`, `Full`, `TooBusy`.
    """
    terms = terms or Terms()
    ready = await _embedded(runtime, tenant_id, place, author, expected)
    for attempt in range(ATTEMPTS):
        async with runtime.sessions.tenant(tenant_id) as session:
            playbook = await get_playbook(session, place, lock=not terms.dry)
            terms.check(playbook, author)
            there = playbook is not None or attempt > 0
            playbook = playbook or await _new(runtime, session, place, make=there)
            plan = await planner(session, playbook)
            if terms.dry:
                return _preview(playbook, plan)
            missing = [bullet for text, bullet in plan.texts.items() if text not in ready]
            if there and not missing:
                outcome = await write(session, playbook, place, plan, ready, author)
                if plan.settle is not None:
                    await plan.settle(outcome)
                return outcome
        ready |= await _embedded(runtime, tenant_id, place, author, missing)
    raise TooBusy


async def _embedded(
    runtime: Runtime, tenant_id: UUID, place: Place, author: Author, bullets: Sequence[Bullet]
) -> dict[str, Prepared]:
    """What search needs of these bullets, by their text."""
    drafts = [draft_of(bullet, place, author) for bullet in bullets]
    items = await prepare(await runtime.embedder_of(tenant_id), drafts) if drafts else []
    return {bullet.searchable_text: item for bullet, item in zip(bullets, items, strict=True)}


async def _new(runtime: Runtime, session: AsyncSession, place: Place, *, make: bool) -> PlaybookRow:
    """A playbook that was not there, made under its lock, or only to plan with."""
    sections = new_sections(runtime.settings, place.name)
    if make:
        return await ensure_playbook(session, place, sections)
    return PlaybookRow(
        scope=0,
        project_id=place.project_id,
        name=place.name,
        version=0,
        active=0,
        sections=[section.model_dump() for section in sections],
        last_numbers={},
        aliases={},
        review="off",
    )


def _preview(playbook: PlaybookRow, plan: Plan) -> Outcome:
    """What writing the plan would come to."""
    check_room(playbook, plan)
    keys = [*plan.gone, *plan.changed]
    diff = Diff(
        playbook.version,
        playbook.version + 1,
        [Changed(key, plan.before.get(key), plan.after.bullets.get(key)) for key in keys],
        sections_of(playbook),
        plan.after.sections,
    )
    changed = bool(keys) or diff.sections_before != diff.sections_after
    active = playbook.active + plan.growth
    return Outcome(playbook.version, changed, active, plan.results, diff)
