"""Everything that is known about one bullet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.analytics.improvement import first_week
from memory_api.console.comparison import FieldChange, TextComparer
from memory_api.console.days import MONTH_DAYS, last_days, midnight, mondays
from memory_api.console.queries import count_verdicts_by_week, list_counted_verdicts
from memory_api.playbooks import queries
from memory_api.playbooks.bullets.router import bullet_response
from memory_api.playbooks.bullets.schemas import StoredBullet
from memory_api.playbooks.editing.edits import require_bullet
from memory_api.playbooks.effects.holdout import EffectPeriod, list_effects
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.retrieval.queries import count_served_outcomes, list_served_traces
from memory_api.playbooks.tables import BulletVerdictRow

MAX_VERSIONS = 200
MAX_VERDICTS = 10
MAX_SERVED = 8
MIN_VERDICTS = 4
"""Fewer say nothing: even if all are helpful, the usefulness is below one half."""


@dataclass(frozen=True)
class BulletRevision:
    """One version of the bullet, and how it differs from the version before."""

    row: Any
    changes: Sequence[FieldChange]


@dataclass(frozen=True)
class BulletLife:
    """A bullet with its versions (newest first), verdicts, origin and use. `merged_into` is
    the key of the bullet that replaced it.
    """

    bullet: StoredBullet | None
    status: str
    merged_into: str | None
    changes: Sequence[BulletRevision]
    verdicts: Sequence[BulletVerdictRow]
    has_more_verdicts: bool
    outcomes: Any
    """Of the agent runs that had it: `run_count`, `success_count`, `judged_count`."""
    origin: Sequence[Any]
    served: Sequence[Any]
    weeks: Sequence[tuple[date, int, int]]
    """Monday, helpful and harmful verdicts of each of the last 12 weeks; empty without any."""

    @property
    def traces(self) -> list[Any]:
        """The links of the origin to traces, each trace once."""
        seen: dict[Any, Any] = {}
        for link in self.origin:
            if link.trace_id is not None:
                seen.setdefault(link.trace_id, link)
        return list(seen.values())


async def load_life(session: AsyncSession, ref: PlaybookRef, key: str) -> BulletLife:
    """Also of a bullet that was deleted or merged. Raises `BulletNotFound`."""
    row = await require_bullet(session, ref, key, deleted=True)
    versions = await queries.list_bullet_versions(session, row.id, after=0, limit=MAX_VERSIONS)
    verdicts = await list_counted_verdicts(session, row.id, MAX_VERDICTS + 1)
    scope = row.scope_id
    return BulletLife(
        bullet=None if row.status == "deleted" else bullet_response(row),
        status=row.status,
        merged_into=next((v.merged_into for v in reversed(versions) if v.merged_into), None),
        changes=_changes(versions)[::-1],
        verdicts=verdicts[:MAX_VERDICTS],
        has_more_verdicts=len(verdicts) > MAX_VERDICTS,
        outcomes=await count_served_outcomes(session, scope, row.id, key),
        origin=_without_repetition(await queries.list_provenance_links(session, row.id)),
        served=await list_served_traces(session, scope, key, limit=MAX_SERVED),
        weeks=await _load_weeks(session, row.id),
    )


async def _load_weeks(session: AsyncSession, bullet_id: UUID) -> list[tuple[date, int, int]]:
    first = first_week(datetime.now(UTC))
    rows = await count_verdicts_by_week(session, bullet_id, midnight(first))
    counts = {row.week: (row.helpful_count, row.harmful_count) for row in rows}
    return [(day, *counts.get(day, (0, 0))) for day in mondays(first)] if counts else []


def _without_repetition(links: Sequence[Any]) -> list[Any]:
    """What several lessons of the bullet share, such as their episode, once."""
    return list({(link.target_kind, link.target_id): link for link in reversed(links)}.values())[
        ::-1
    ]


def _changes(versions: Sequence[Any]) -> list[BulletRevision]:
    first = [BulletRevision(row, ()) for row in versions[:1]]
    comparer = TextComparer()
    return first + [_compare(comparer, before, row) for before, row in pairwise(versions)]


def _compare(comparer: TextComparer, before: Any, row: Any) -> BulletRevision:
    if row.change_type in ("deleted", "merged"):
        return BulletRevision(row, ())
    return BulletRevision(row, comparer.compare_bullets(before, row))


async def load_effects(
    session: AsyncSession, ref: PlaybookRef, key: str
) -> tuple[datetime, dict[str, Any]]:
    """Since when runs are compared, and basis (`randomized`, `observational`) → outcomes with and
    without the bullet. The period is that of the question `effects`: the last `MONTH_DAYS` days,
    or the time since the bullet was added.
    """
    row = await require_bullet(session, ref, key, deleted=True)
    first = midnight(last_days(MONTH_DAYS)[0])
    found = await list_effects(session, ref, EffectPeriod(since=first), key=key, limit=1)
    return max(first, row.created_at), dict(found[0].sides) if found else {}
