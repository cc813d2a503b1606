"""Moves the times of a tenant's rows from the minute of the load to the days of the history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.demo.history import DAYS

KEPT_TABLES = {"api_keys", "console_sessions", "embedding_models", "upkeep_schedule", "audit_log"}
"""Tables whose times are those of the installation."""
INPUT_USD, OUTPUT_USD = "3", "15"
"""The price of a million tokens in the demo. The recorded reader had none."""
_TIME_COLUMNS = text("""
select c.relname, a.attname
from pg_class c
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
join pg_attribute t on t.attrelid = c.oid and t.attname = 'tenant_id' and not t.attisdropped
where c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace
  and a.atttypid = 'timestamptz'::regtype and a.attgenerated = ''
order by c.relname, a.attnum
""")


@dataclass
class Clock:
    """When each item began, and at which time of the history: day 60 is `now`."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    moments: list[tuple[datetime, datetime]] = field(
        default_factory=list[tuple[datetime, datetime]]
    )

    def begin(self, day: float) -> None:
        """An item of this day begins."""
        shown = self.now - timedelta(days=DAYS - day)
        if self.moments and shown <= self.moments[-1][1]:
            shown = self.moments[-1][1] + timedelta(minutes=1)
        self.moments.append((datetime.now(UTC), shown))


async def move_times(session: AsyncSession, clock: Clock) -> None:
    """Move all times of the session's tenant. The durations of runs stay. Needs the owner role."""
    tenant = {"tenant": current_tenant_id(session)}
    real, shown = zip(*clock.moments, strict=True)
    moments = {"real": real, "shown": shown}
    for table, columns in (await _load_time_columns(session)).items():
        if table not in KEPT_TABLES:
            changes = ", ".join(f"{name} = {_shown(f't.{name}')}" for name in columns)
            change = text(f"update {table} t set {changes} where t.tenant_id = :tenant")
            await session.execute(change, tenant | moments)
    prices = {"input_usd": INPUT_USD, "output_usd": OUTPUT_USD}
    await fetch_rows(session, load_statement("demo/demo.sql", "price_calls"), tenant | prices)
    await fetch_rows(session, load_statement("demo/demo.sql", "count_totals"), tenant)


def _shown(column: str) -> str:
    """The time of the history that belongs to the time of a column."""
    return (
        f"coalesce((select c.shown_at + ({column} - c.real_at)"
        " from unnest(cast(:real as timestamptz[]), cast(:shown as timestamptz[]))"
        " c(real_at, shown_at)"
        f" where c.real_at <= {column} order by c.real_at desc limit 1), {column})"
    )


async def _load_time_columns(session: AsyncSession) -> Mapping[str, Sequence[str]]:
    """Table → its columns that hold a time."""
    columns: dict[str, list[str]] = defaultdict(list)
    for table, column in await session.execute(_TIME_COLUMNS):
        columns[table].append(column)
    return columns
