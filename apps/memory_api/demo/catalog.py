"""What the catalog knows about the tables with rows of tenants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

_TIMES = text("""
select c.relname, a.attname
from pg_class c
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
join pg_attribute t on t.attrelid = c.oid and t.attname = 'tenant_id' and not t.attisdropped
where c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace
  and a.atttypid = 'timestamptz'::regtype and a.attgenerated = ''
order by c.relname, a.attnum
""")
_TABLES = text("""
with recursive tables as (
    select c.oid, c.relname from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
    where c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace
), depths as (
    select oid, relname, 0 depth from tables
    union
    select t.oid, t.relname, d.depth + 1
    from depths d
    join pg_constraint f on f.conrelid = d.oid and f.contype = 'f' and f.confrelid <> d.oid
    join tables t on t.oid = f.confrelid
    where d.depth < 20
)
select relname from depths group by relname order by max(depth), relname
""")


async def load_time_columns(session: AsyncSession) -> Mapping[str, Sequence[str]]:
    """Table → its columns that hold a time."""
    columns: dict[str, list[str]] = defaultdict(list)
    for table, column in await session.execute(_TIMES):
        columns[table].append(column)
    return columns


async def load_tables(session: AsyncSession) -> Sequence[str]:
    """The tables. A table comes before those that its rows refer to."""
    return (await session.scalars(_TABLES)).all()
