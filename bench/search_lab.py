"""What the bench `search` measures on: a filled database, and the questions that it asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg

from bench.corpus import documents
from bench.fill import PROJECT, add_scope, add_tenants, prepared, settle, tenant_named
from bench.report import Report
from bench.server import MeasuredServer
from bench.timing import Spread, spread
from memory_api.memories.index.drafts import PreparedMemory
from memory_api.memories.search.query import SEARCH_CALL, EmbeddedQuery, build_call

QUERIES = 60
TIMES = 180


@dataclass(frozen=True)
class Form:
    """How much is measured."""

    sizes: Sequence[int]
    small_tenants: int
    chunks: int

    @property
    def name(self) -> str:
        return f"{self.sizes}, {self.small_tenants:,} small tenants, {self.chunks:,} chunks"


FULL = Form((100, 1_000, 10_000, 100_000), 2_000, 200_000)
SHORT = Form((100, 1_000, 10_000), 200, 20_000)


@dataclass
class LoadedPlaybook:
    """The content of a playbook, in memory."""

    tenant: UUID
    items: list[PreparedMemory]
    first: int
    """`seq` of the first item in the database; the others follow."""


@dataclass
class SearchLab:
    """Everything a measurement needs."""

    server: MeasuredServer
    admin: asyncpg.Connection[Any]
    app: asyncpg.Connection[Any]
    form: Form
    report: Report
    questions: list[tuple[str, EmbeddedQuery]] = field(
        default_factory=list[tuple[str, EmbeddedQuery]]
    )
    playbooks: dict[int, LoadedPlaybook] = field(default_factory=dict[int, LoadedPlaybook])

    async def find(
        self, connection: Any, tenant: UUID, n: int, name: str = "main", top_k: int = 10
    ) -> list[Any]:
        """One search as the service sends it."""
        _, question = self.questions[n % len(self.questions)]
        address = (PROJECT, "playbook", name)
        return await connection.fetch(
            SEARCH_CALL, tenant, *build_call(question, [address], {"top_k": top_k})
        )

    async def time(self, tenant: UUID, name: str = "main") -> Spread:
        async def call(n: int) -> object:
            return await self.find(self.app, tenant, n, name)

        return await spread(call, TIMES)


async def fill(lab: SearchLab) -> None:
    """Insert the playbooks, then the small tenants. Searches are timed before and after these."""
    for size in lab.form.sizes:
        tenant = tenant_named(f"n{size}")
        items = await prepared(documents(size, size))
        await add_tenants(lab.admin, [tenant])
        first = await add_scope(lab.admin, tenant, 1, "main", items)
        lab.playbooks[size] = LoadedPlaybook(tenant, items, first)
    await settle(lab.admin)
    alone = await lab.time(lab.playbooks[1_000].tenant)
    pool = await prepared(documents(2_000, 1))
    small = [tenant_named(f"small{n}") for n in range(lab.form.small_tenants)]
    await add_tenants(lab.admin, small)
    for n, tenant in enumerate(small):
        await add_scope(lab.admin, tenant, 1, "main", [pool[(n * 7 + j) % 2000] for j in range(40)])
    await settle(lab.admin)
    crowded = await lab.time(lab.playbooks[1_000].tenant)
    lab.report.row("neighbors", "1,000 bullets, alone in the database", alone, "")
    lab.report.row(
        "neighbors",
        f"the same with {len(small):,} other tenants",
        crowded,
        f"× {crowded.p50 / alone.p50:.2f}",
    )
