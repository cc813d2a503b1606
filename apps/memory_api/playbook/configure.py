"""What a playbook is beside its bullets: sections, limits, whether deltas wait for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import Invalid
from apps.memory_api.playbook.change import change_playbook
from apps.memory_api.playbook.plan import Outcome, Plan, Terms
from apps.memory_api.playbook.rows import Author, Place, state_of
from apps.memory_api.playbook.sections import SectionDefinition, normal_name, with_fallback
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.runtime import Runtime

LIMITS = ("review", "token_budget", "max_bullets", "holdout")


async def configure(
    runtime: Runtime,
    tenant_id: UUID,
    place: Place,
    fields: Mapping[str, Any],
    author: Author,
    *,
    if_match: int | None = None,
) -> None:
    """Set what is given of `sections` and of `LIMITS`; makes the playbook. Other sections are a new
    version, other limits are not.
    """
    sections: Sequence[SectionDefinition] | None = fields.get("sections")
    if sections is not None:
        _check(sections)

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> Plan:
        state = state_of(playbook, {})
        if sections is not None:
            state = replace(state, sections=with_fallback(sections))

        async def settle(_outcome: Outcome) -> None:
            playbook.deleted_at = None
            for name in LIMITS:
                if name in fields:
                    setattr(playbook, name, fields[name])

        return Plan("settings", {}, state, settle=settle)

    await change_playbook(runtime, tenant_id, place, plan, author, Terms(if_match, create=True))


def _check(sections: Sequence[SectionDefinition]) -> None:
    """Two sections never share a name or a counter of keys."""
    for field, values in (
        ("name", [normal_name(section.name) for section in sections]),
        ("slug", [section.slug for section in sections]),
    ):
        if len(set(values)) < len(values):
            raise Invalid(f"Two sections share a {field}.", field="sections")
