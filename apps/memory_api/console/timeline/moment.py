"""One moment of a playbook: its bullets, how it differs from another moment, and its versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.console.charts import Chart, Series, draw_chart
from memory_api.console.comparison import Comparison, compare_texts
from memory_api.core.pagination import Cursor
from memory_api.playbooks import queries
from memory_api.playbooks.bullet_rows import to_bullets
from memory_api.playbooks.editing.edits import require_playbook
from memory_api.playbooks.history.queries import list_first_active_bullets
from memory_api.playbooks.history.schemas import PlaybookDiff, diff_response
from memory_api.playbooks.history.versions import (
    diff_versions,
    parse_version_or_time,
    resolve_version,
)
from memory_api.playbooks.models import Bullet
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.tables import PlaybookRow, PlaybookVersionRow

VERSIONS_OF_PAGE = 50
MAX_SHOWN_BULLETS = 100
MAX_SHOWN_CHANGES = 100


@dataclass(frozen=True)
class ComparedBullet:
    """A bullet that differs between two moments. `kind` is `added`, `removed` or `changed`."""

    key: str
    kind: str
    section: str
    text: Comparison
    notes: Sequence[tuple[str, str, str]]
    """Other fields that differ: name, before, after."""


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
    versions: Sequence[PlaybookVersionRow]
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
        versions=shown,
        next_cursor=(
            Cursor("playbook_versions", (str(shown[-1].version),)).encode() if has_more else None
        ),
    )


def compare_diff(diff: PlaybookDiff) -> list[ComparedBullet]:
    """The changes of a difference, by key, compared word by word."""
    pairs: list[tuple[str, str, Bullet | None, Bullet | None]] = [
        *((b.id, "added", None, b) for b in diff.added),
        *((b.id, "removed", b, None) for b in diff.removed),
        *((c.key, "changed", c.before, c.after) for c in diff.changed),
    ]
    return [_compare(*pair) for pair in sorted(pairs, key=itemgetter(0))]


def _compare(key: str, kind: str, before: Bullet | None, after: Bullet | None) -> ComparedBullet:
    text = compare_texts(before.content if before else "", after.content if after else "")
    notes = _other_changes(before, after) if before and after else ()
    shown = after or before
    return ComparedBullet(key, kind, shown.section if shown else "", text, notes)


def _other_changes(before: Bullet, after: Bullet) -> list[tuple[str, str, str]]:
    names = ("section", "status", "when_to_use", "title", "pinned")
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in names]
    return [(name, _to_text(old), _to_text(new)) for name, old, new in pairs if old != new]


def _to_text(value: object) -> str:
    return ("✓" if value else "") if isinstance(value, bool) else str(value)


def size_chart(
    moment: PlaybookMoment, _: Callable[[str], str], format: Callable[[float | None], str]
) -> Chart:
    """Active bullets after each of the listed versions."""
    rows = list(reversed(moment.versions))
    return draw_chart(
        "step",
        _("Active bullets by version"),
        [str(row.version) for row in rows],
        [Series(_("Active bullets"), [float(row.active_count) for row in rows])],
        format=format,
        label=_("Version"),
    )
