"""One moment of a playbook: its bullets, how it differs from another moment, and its versions."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import hypot
from operator import itemgetter
from typing import Any, Literal

from sqlalchemy.ext.asyncio import AsyncSession

from hansei.evaluation.statistics import wilson_interval
from memory_api.console.comparison import FieldChange, TextComparer
from memory_api.console.timeline.queries import (
    MAX_COUNTED_TRACES,
    list_outcomes,
    load_deciders,
)
from memory_api.core.pagination import Cursor
from memory_api.playbooks import queries
from memory_api.playbooks.bullet_rows import to_bullets
from memory_api.playbooks.editing.edits import require_playbook
from memory_api.playbooks.history.queries import list_changed_bullets, list_first_active_bullets
from memory_api.playbooks.history.schemas import PlaybookDiff, diff_response
from memory_api.playbooks.history.versions import (
    diff_versions,
    parse_version_or_time,
    resolve_version,
)
from memory_api.playbooks.models import Bullet
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.tables import PlaybookRow, PlaybookVersionRow
from memory_api.traces.schemas import OutcomeType

VERSIONS_OF_PAGE = 20
MAX_SHOWN_BULLETS = 100
MAX_SHOWN_CHANGES = 100
CHANGES_OF_ROW = 3


@dataclass(frozen=True)
class ComparedBullet:
    """A bullet that differs between two moments. `kind` is `added`, `removed` or `changed`."""

    key: str
    kind: str
    section: str
    fields: Sequence[FieldChange]


@dataclass(frozen=True)
class ChangeEffect:
    """How agent runs ended after a change, less how they ended before it: the difference of the
    two shares of successes, and its 95 % interval (Newcombe 1998).
    """

    before: VersionSummary
    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> Literal["better", "worse", "unclear"]:
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "unclear"


@dataclass(frozen=True)
class VersionSummary:
    """A version in the list: the first bullets that it changed, how many more it changed, who
    accepted it if it was a proposal, and the agent runs from this version to the next one. `runs`
    and `control_runs`, those without advice, are counts of known outcomes and of successes; None if
    the version is older than the runs that were counted. `effect` compares them with those of the
    version before that has runs.
    """

    row: PlaybookVersionRow
    changes: Sequence[Any]
    more_count: int
    decider: str | None
    runs: tuple[int, int] | None
    control_runs: tuple[int, int] | None
    effect: ChangeEffect | None = None


@dataclass(frozen=True)
class PlaybookMoment:
    """The playbook at a version. `compared_with` is the version that `changes` start from."""

    playbook: PlaybookRow
    version: int
    bullets: Sequence[Bullet]
    bullet_count: int
    compared_with: int
    changes: Sequence[ComparedBullet]
    change_count: int
    versions: Sequence[VersionSummary]
    next_cursor: str | None

    @property
    def is_current(self) -> bool:
        return self.version == self.playbook.version


async def load_moment(
    session: AsyncSession, ref: PlaybookRef, at: str, since: str, cursor: Cursor | None
) -> PlaybookMoment:
    """`at` and `since` are a version number, an ISO 8601 time, or empty. Raises `PlaybookNotFound`,
    `VersionNotFound` and `InvalidRequest`.
    """
    playbook = await require_playbook(session, ref, deleted=True)
    moment = parse_version_or_time(at, "at") if at else playbook.version
    row = await resolve_version(session, playbook, moment)
    version = row.version if row else 0
    bullets = await list_first_active_bullets(
        session, playbook.scope_id, version, MAX_SHOWN_BULLETS
    )
    first = parse_version_or_time(since, "since") if since else max(0, version - 1)
    diff = await diff_versions(session, playbook, first, version, limit=MAX_SHOWN_CHANGES)
    below = cursor.integer("playbook_versions") if cursor else None
    rows = await queries.list_versions(
        session, playbook.scope_id, below=below, limit=VERSIONS_OF_PAGE
    )
    shown = rows[:VERSIONS_OF_PAGE]
    has_more = len(rows) > VERSIONS_OF_PAGE
    return PlaybookMoment(
        playbook=playbook,
        version=version,
        bullets=to_bullets(bullets),
        bullet_count=row.active_count if row else 0,
        compared_with=diff.first,
        changes=compare_diff(diff_response(diff)),
        change_count=diff.changed_count,
        versions=await _summarize(session, playbook, shown),
        next_cursor=(
            Cursor("playbook_versions", (str(shown[-1].version),)).encode() if has_more else None
        ),
    )


async def _summarize(
    session: AsyncSession, playbook: PlaybookRow, rows: Sequence[PlaybookVersionRow]
) -> list[VersionSummary]:
    """`rows` are successive versions, the newest first."""
    if not rows:
        return []
    changed = await list_changed_bullets(
        session, playbook.scope_id, rows[-1].version, rows[0].version, CHANGES_OF_ROW
    )
    runs = await list_outcomes(session, playbook.project_id, playbook.name, rows[-1].created_at)
    counted_since = runs[-1].created_at if len(runs) == MAX_COUNTED_TRACES else None
    starts = [row.created_at for row in reversed(rows)]
    ended: dict[int, list[Any]] = defaultdict(list)
    for run in runs:
        ended[rows[-1].version + bisect_right(starts, run.created_at) - 1].append(run)
    deciders = await load_deciders(session, playbook.scope_id, [row.version for row in rows])
    summaries: list[VersionSummary] = []
    for row in rows:
        shown = [change for change in changed if change.playbook_version == row.version]
        total = row.added_count + row.updated_count + row.removed_count
        is_counted = counted_since is None or row.created_at >= counted_since
        found = ended[row.version]
        summaries.append(
            VersionSummary(
                row=row,
                changes=shown,
                more_count=max(0, total - len(shown)) if shown else 0,
                decider=deciders.get(row.version),
                runs=_count(run for run in found if run.advice != "control")
                if is_counted
                else None,
                control_runs=_count(run for run in found if run.advice == "control")
                if is_counted
                else None,
            )
        )
    return _with_effects(summaries)


def _with_effects(summaries: Sequence[VersionSummary]) -> list[VersionSummary]:
    """`summaries` are the newest first. Versions without runs have no effect."""
    done: list[VersionSummary] = []
    before: VersionSummary | None = None
    for summary in reversed(summaries):
        shown = summary
        if summary.runs and summary.runs[0]:
            if before is not None:
                shown = replace(summary, effect=_compare_runs(before, summary))
            before = shown
        done.insert(0, shown)
    return done


def _compare_runs(before: VersionSummary, after: VersionSummary) -> ChangeEffect:
    old, new = (
        wilson_interval([1.0] * successes + [0.0] * (count - successes))
        for count, successes in (before.runs or (0, 0), after.runs or (0, 0))
    )
    difference = new.mean - old.mean
    low = difference - hypot(new.mean - new.low, old.high - old.mean)
    high = difference + hypot(new.high - new.mean, old.mean - old.low)
    return ChangeEffect(before, difference, low, high)


def _count(runs: Iterable[Any]) -> tuple[int, int]:
    """How many agent runs, and how many of them succeeded."""
    outcomes = [run.effective_outcome for run in runs]
    return len(outcomes), outcomes.count(OutcomeType.SUCCESS)


def compare_diff(diff: PlaybookDiff) -> list[ComparedBullet]:
    """The changes of a difference, by key, compared word by word."""
    pairs: list[tuple[str, str, Bullet | None, Bullet | None]] = [
        *((b.id, "added", None, b) for b in diff.added),
        *((b.id, "removed", b, None) for b in diff.removed),
        *((c.key, "changed", c.before, c.after) for c in diff.changed),
    ]
    comparer = TextComparer()
    return [_compare(comparer, *pair) for pair in sorted(pairs, key=itemgetter(0))]


def _compare(
    comparer: TextComparer, key: str, kind: str, before: Bullet | None, after: Bullet | None
) -> ComparedBullet:
    shown = after or before
    section = shown.section if shown else ""
    return ComparedBullet(key, kind, section, comparer.compare_bullets(before, after))
