"""The reference of docs/analytics-views.md: a section for each view, from the comments of the
database. And analytics_results.md: the results of the examples on the sample data.

`python -m tests.support.analytics_reference` writes both; tests/analytics/test_reference.py
compares.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from bench.analytics_rows import SAMPLE, fill
from tests.support.paths import ROOT
from tests.support.postgres import TEMPLATE, embedded

DOCUMENT = ROOT / "docs" / "analytics-views.md"
RESULTS = Path(__file__).parent / "analytics_results.md"
START, END = "<!-- reference: generated -->", "<!-- end of the reference -->"
MAX_CELL_LENGTH = 48
COMMON = 3
"""A column with the same meaning in this many views is described once, above the sections."""

_BLOCKS = re.split(
    r"^-- name: (\w+)\n",
    (Path(__file__).parent / "analytics_examples.sql").read_text(encoding="utf-8"),
    flags=re.MULTILINE,
)[1:]
EXAMPLES = dict(zip(_BLOCKS[::2], map(str.strip, _BLOCKS[1::2]), strict=True))
"""View or function → its example. Examples name their period: the sample data is from 2025."""

VIEWS = """
select c.relname name, obj_description(c.oid, 'pg_class') about from pg_class c
where c.relnamespace = 'analytics'::regnamespace and c.relkind = 'v'
"""
FUNCTIONS = """
select proname name, obj_description(oid, 'pg_proc') about, pg_get_function_arguments(oid) arguments
from pg_proc
where pronamespace = 'analytics'::regnamespace and proname in ('playbook_at', 'playbook_diff')
"""
COLUMNS = """
select attname name, col_description(attrelid, attnum) about
from pg_attribute where attrelid = ('analytics.' || $1)::regclass and attnum > 0
  and attname not in ('tenant_id', 'project_id', 'playbook')
order by attnum
"""
FUNCTION_COLUMNS = """
select a.name, col_description('analytics.bullets'::regclass, b.attnum) about
from pg_proc p
cross join lateral unnest(p.proallargtypes, p.proargnames, p.proargmodes) with ordinality a(type, name, mode, number)
left join pg_attribute b on b.attrelid = 'analytics.bullets'::regclass and b.attname = a.name
where p.pronamespace = 'analytics'::regnamespace and p.proname = $1 and a.mode = 't'
order by a.number
"""  # noqa: E501
MEANINGS = {
    "version": "Version of the playbook at this time.",
    "change": "added, removed or changed.",
    "status_before": "Status at the first time; null if it was added.",
    "status_after": "Status at the second time; null if it was removed.",
    "content_before": "Text at the first time; null if it was added.",
    "content_after": "Text at the second time; null if it was removed.",
}
"""Columns of functions that the view `bullets` does not have. PostgreSQL stores no comments on
them.
"""


async def render_reference(connection: Any) -> str:
    """The common columns, and the sections of all views and functions."""
    views = {row["name"]: row for row in await connection.fetch(VIEWS)}
    functions = {row["name"]: row for row in await connection.fetch(FUNCTIONS)}
    assert {*views, *functions} == EXAMPLES.keys()
    columns: dict[str, list[tuple[str, str]]] = {}
    for name in EXAMPLES:
        rows = await connection.fetch(COLUMNS if name in views else FUNCTION_COLUMNS, name)
        columns[name] = [(f"`{c['name']}`", c["about"] or MEANINGS[c["name"]]) for c in rows]
    uses = Counter(cell for cells in columns.values() for cell in cells)
    common = [cell for cell, count in uses.items() if count >= COMMON]
    sections = ["\n".join(_table(("common column", "meaning"), common))]
    for name, cells in columns.items():
        question, omits = (views.get(name) or functions[name])["about"].split("\nDoes not show: ")
        lines = [f"### `{name}`", "", question, ""]
        if name in functions:
            lines += [f"Arguments: `{functions[name]['arguments']}`.", ""]
        own = [cell for cell in cells if cell not in common]
        shared = ", ".join(cell[0] for cell in cells if cell in common)
        lines += [*_table(("column", "meaning"), own), ""]
        lines += [f"Common columns: {shared}.", ""] if shared else []
        sections.append("\n".join([*lines, f"**Does not show:** {omits}"]))
    return "\n\n".join(sections)


async def render_results(connection: Any) -> str:
    """The examples with their results, as the login of the sample sees them."""
    sections = ["# Results of analytics_examples.sql on the sample data"]
    for name, example in EXAMPLES.items():
        rows = await connection.fetch(example)
        assert rows, name
        shown = [[_cell(value) for value in row.values()] for row in rows]
        sections.append("\n".join([f"## {name}", "", *_table(list(rows[0].keys()), shown)]))
    return "\n\n".join(sections) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    if value is None or isinstance(value, (int, date)):
        return "" if value is None else str(value)
    if isinstance(value, str):
        return value if len(value) <= MAX_CELL_LENGTH else value[: MAX_CELL_LENGTH - 1] + "…"
    return f"{float(value):.4g}"


def replace_reference(document: str, reference: str) -> str:
    head, rest = document.split(START)
    return f"{head}{START}\n\n{reference}\n\n{END}{rest.split(END)[1]}"


async def write() -> None:
    with tempfile.TemporaryDirectory() as folder, embedded(Path(folder)) as server:
        await server.make_template()
        tenant = UUID(int=1)
        await fill(server.url("postgres", TEMPLATE), tenant, SAMPLE)
        owner = await asyncpg.connect(server.url("hansei_owner", TEMPLATE))
        login = await owner.fetchval("select analytics.create_login($1, 'x')", tenant)
        await owner.close()
        connection = await asyncpg.connect(server.url("postgres", TEMPLATE))
        await connection.execute(f"set session authorization {login}; set search_path = analytics")
        try:
            reference = await render_reference(connection)
            RESULTS.write_text(await render_results(connection), encoding="utf-8")
        finally:
            await connection.close()
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(replace_reference(text, reference), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(write())
