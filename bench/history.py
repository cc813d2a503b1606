"""Reading a playbook as of a version or a time: `python -m bench history [--short]`.

With ten thousand bullets and a million revisions: the time to read the playbook as of a version or
a time, to compare two versions, and to read the current version.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Annotated, Any
from uuid import UUID

import asyncpg
import typer
from sqlalchemy.ext.asyncio import AsyncSession

from bench.corpus import documents
from bench.fill import PROJECT, add_tenants, tenant_named
from bench.http_client import Caller
from bench.report import Report
from bench.server import MeasuredServer, api, connect, measured_server
from bench.timing import spread
from memory_api.auth.identity import KeyScope
from memory_api.auth.queries import create_key
from memory_api.bootstrap import freeze_startup_objects
from memory_api.core.db import Sessions, open_engine
from memory_api.core.ids import new_id
from memory_api.playbooks.editing.edits import require_playbook
from memory_api.playbooks.formats.transfer import load_playbook
from memory_api.playbooks.history.versions import diff_versions, load_as_of
from memory_api.playbooks.queries import list_bullets_as_of
from memory_api.playbooks.ref import PlaybookRef

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
PLACE = PlaybookRef(PROJECT, "main")
Reader = Callable[[AsyncSession, int], Awaitable[object]]
"""Reads a playbook at a version."""
CHANGES = 100
"""Maximum revisions per bullet."""

MEMORIES = (
    *("tenant_id", "id", "project_id", "layer", "kind", "scope_id", "key", "section", "content"),
    *("searchable_text", "tokenizer", "fingerprint", "source", "revision", "playbook_version"),
    "created_at",
)
REVISIONS = (
    *("tenant_id", "memory_id", "revision", "playbook_version", "scope_id", "key", "section"),
    "content",
    *("tags", "importance", "status", "pinned", "created_at"),
)
SPANS = (
    *(
        "tenant_id",
        "bullet_id",
        "from_version",
        "until_version",
        "scope_id",
        "section",
        "content",
        "status",
    ),
    "pinned",
)


def changes(bullets: int, versions: int) -> list[list[int]]:
    """For each bullet, the versions that changed it: version 1 and random later ones."""
    draw = random.Random(3)
    return [sorted({1, *(draw.randint(2, versions) for _ in range(CHANGES - 1))})
            for _ in range(bullets)]  # fmt: skip


TABLES = ("memories", "memory_revisions", "bullet_spans", "playbooks", "playbook_versions")


async def fill(admin: asyncpg.Connection[Any], tenant: UUID, bullets: int, versions: int) -> int:
    """Insert a playbook with all its versions. Returns the number of revisions."""
    await add_tenants(admin, [tenant])
    await admin.execute(
        "insert into scopes (tenant_id, id, project_id, type, name) values ($1, 1, $2, $3, $4)",
        *(tenant, PROJECT, "playbook", PLACE.name),
    )
    await admin.execute("set session_replication_role = replica")
    await admin.execute(
        "insert into playbooks (tenant_id, scope_id, project_id, name, version, active_count,"
        " sections)"
        " values ($1, 1, $2, $3, $4, $5, '[]')",
        *(tenant, PROJECT, PLACE.name, versions, bullets),
    )
    await admin.copy_records_to_table(
        "playbook_versions",
        columns=("tenant_id", "scope_id", "version", "change_type", "added_count", "updated_count",
                 "removed_count", "active_count", "created_at"),
        records=((tenant, 1, v, "deltas", 0, 10, 0, bullets, BEGUN + timedelta(minutes=v))
                 for v in range(1, versions + 1)),
    )  # fmt: skip
    ids = [new_id() for _ in range(bullets)]
    texts, when = documents(bullets, 5), changes(bullets, versions)

    def rows() -> Iterator[tuple[Any, ...]]:
        for n, (identity, text, changed) in enumerate(zip(ids, texts, when, strict=True)):
            yield (
                *(tenant, identity, PROJECT, "rm", "bullet", 1, f"pat-{n:05d}", "PATTERNS", text),
                *(text, "bench", b"", "playbook", len(changed), changed[-1], BEGUN),
            )

    def revisions() -> Iterator[tuple[Any, ...]]:
        """In the order in which the trigger would have inserted them."""
        made = ((v, n, i) for n, changed in enumerate(when) for i, v in enumerate(changed, 1))
        for version, n, number in sorted(made):
            yield (
                *(tenant, ids[n], number, version, 1, f"pat-{n:05d}", "PATTERNS"),
                *(f"{texts[n]} ({version})", [], 0.5, "active", False),
                BEGUN + timedelta(minutes=version),
            )

    def spans() -> Iterator[tuple[Any, ...]]:
        ended = ((b, n, a) for n, changed in enumerate(when) for a, b in pairwise(changed))
        for until, n, since in sorted(ended):
            yield (
                *(tenant, ids[n], since, until, 1, "PATTERNS", f"{texts[n]} ({since})"),
                *("active", False),
            )

    await admin.copy_records_to_table("memories", columns=MEMORIES, records=rows())
    await admin.copy_records_to_table("memory_revisions", columns=REVISIONS, records=revisions())
    await admin.copy_records_to_table("bullet_spans", columns=SPANS, records=spans())
    await admin.execute("set session_replication_role = origin")
    for table in TABLES:
        await admin.execute(f"vacuum (analyze) {table}")
    return sum(map(len, when))


async def measure(server: MeasuredServer, report: Report, bullets: int, versions: int) -> None:
    admin = await connect(server.url("postgres"))
    tenant = tenant_named("history")
    total = await fill(admin, tenant, bullets, versions)
    await admin.close()
    freeze_startup_objects()  # as the service does
    sessions = Sessions(open_engine(server.url("hansei_app"), pool_size=1))
    for name, read in readers(versions).items():

        async def call(n: int, read: Reader = read) -> object:
            async with sessions.for_tenant(tenant) as session:
                return await read(session, 1 + n * 7919 % versions)

        report.row("history", name, await spread(call, 40))
    await sessions.close()
    await over_http(server, report, tenant, versions)
    report.row("history", "bullets, revisions, versions", f"{bullets:,}, {total:,}, {versions:,}")


async def over_http(server: MeasuredServer, report: Report, tenant: UUID, versions: int) -> None:
    owner = Sessions(open_engine(server.url("hansei_owner"), pool_size=1))
    async with owner.for_tenant(tenant) as session:
        key = (await create_key(session, scopes=[KeyScope.READ]))[1].text
    await owner.close()
    path = f"/api/v1/playbooks/{PLACE.name}"
    with api(server) as port:
        caller = Caller(port, key)
        for name, query in (("as_of a version: over HTTP", "?as_of={}"), ("now: over HTTP", "")):

            async def call(n: int, query: str = query) -> object:
                return await caller.ask("GET", path + query.format(1 + n * 7919 % versions))

            report.row("history", name, await spread(call, 40))
        await caller.close()


def readers(versions: int) -> dict[str, Reader]:
    """The timed operations, each at a version."""

    async def nothing(_session: AsyncSession, _version: int) -> None:
        return None

    async def rows(session: AsyncSession, version: int) -> object:
        return await list_bullets_as_of(session, 1, version)

    async def whole(session: AsyncSession, version: int) -> object:
        return await load_as_of(session, await require_playbook(session, PLACE), version)

    async def at_a_time(session: AsyncSession, version: int) -> object:
        then = BEGUN + timedelta(minutes=version, seconds=30)
        return await load_as_of(session, await require_playbook(session, PLACE), then)

    async def between(session: AsyncSession, version: int) -> object:
        playbook = await require_playbook(session, PLACE)
        return await diff_versions(session, playbook, version, min(versions, version + 1))

    async def now(session: AsyncSession, _version: int) -> object:
        return await load_playbook(session, await require_playbook(session, PLACE))

    return {
        "an empty transaction": nothing,
        "as_of a version: its rows": rows,
        "as_of a version: a Playbook": whole,
        "as_of a time: a Playbook": at_a_time,
        "now: a Playbook": now,
        "diff of two consecutive versions": between,
    }


def main(
    short: Annotated[bool, typer.Option(help="A thousand bullets, a tenth of the rows.")] = False,
) -> None:
    bullets = 1_000 if short else 10_000
    report = Report(
        "history",
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load "
        f"{os.getloadavg()[0]:.1f} at the start. p50 / p95 in ms, the moments spread over all "
        "versions.",
    )
    report.table("history", "A playbook of the past", "", "ms")
    with measured_server() as server:
        asyncio.run(measure(server, report, bullets, versions=bullets * CHANGES // 10))
    report.finish(write=not short)


if __name__ == "__main__":
    typer.run(main)
