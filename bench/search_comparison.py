"""Search compared with other designs, and with other data in the same database."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from uuid import UUID

import numpy as np

from bench.baselines import InProcess, JsonFile, Plain
from bench.corpus import documents
from bench.fill import add_scope, add_tenants, prepared, settle, tenant_named
from bench.search_lab import QUERIES, LoadedPlaybook, SearchLab
from bench.timing import spread
from memory_api.memories.schemas import MemoryKind


async def baselines(lab: SearchLab) -> None:
    await Plain.make(lab.admin)
    plain = Plain(lab.app)
    for size, playbook in lab.playbooks.items():
        ours = await lab.time(playbook.tenant)
        memory = InProcess(playbook.items)

        async def in_memory(n: int, memory: InProcess = memory) -> object:
            text, question = lab.questions[n % QUERIES]
            return memory.search(text, question.vector)

        async def in_plain(n: int, tenant: UUID = playbook.tenant) -> list[int]:
            text, question = lab.questions[n % QUERIES]
            return await plain.search(tenant, text, question.vector)

        b2, c = await spread(in_memory, QUERIES), await spread(in_plain, QUERIES)
        found = [len(await in_plain(n)) for n in range(QUERIES)]
        b = await json_file(lab, playbook)
        lab.report.row(
            "other_designs",
            f"{size:,}",
            ours,
            f"{b:.0f}" if b else "-",
            f"{b / ours.p50:.0f} ×" if b else "-",
            b2,
            f"{b2.p50 / ours.p50:.2f} ×",
            c,
            f"{c.p50 / ours.p50:.1f} ×",
            f"{np.mean(found):.1f}",
        )


async def json_file(lab: SearchLab, playbook: LoadedPlaybook) -> float:
    """Median milliseconds of a few queries, because they are slow. 0 above 10,000 bullets."""
    if len(playbook.items) > 10_000:
        return 0.0
    with tempfile.TemporaryDirectory() as folder:
        design = JsonFile(Path(folder) / "playbook.json", playbook.items)
        taken: list[float] = []
        for text, _ in lab.questions[: 3 if len(playbook.items) >= 10_000 else 9]:
            begun = time.perf_counter()
            await asyncio.to_thread(design.search, text)
            taken.append((time.perf_counter() - begun) * 1000)
        await asyncio.to_thread(design.close)
    return float(np.median(taken))


async def neighbors(lab: SearchLab) -> None:
    """One playbook alone, in a tenant with many chunks, and with as many quarantined bullets."""
    bullets = await prepared(documents(200, 3))
    alone, crowded = tenant_named("alone"), tenant_named("crowded")
    await add_tenants(lab.admin, [alone, crowded])
    for tenant in (alone, crowded):
        await add_scope(lab.admin, tenant, 1, "main", bullets)
    pool = await prepared(documents(10_000, 4), MemoryKind.CHUNK)
    for scope in range(2, 2 + max(1, lab.form.chunks // len(pool))):
        await add_scope(lab.admin, crowded, scope, f"c{scope}", pool, scope_type="collection")
    thousand = lab.playbooks[1_000]
    half = tenant_named("half")
    await add_tenants(lab.admin, [half])
    await add_scope(lab.admin, half, 1, "main", thousand.items, hidden=1_000)
    await settle(lab.admin)
    for whole, name, crowd, other in (
        (
            alone,
            "200 bullets, alone in the tenant",
            crowded,
            f"with {lab.form.chunks:,} chunks in the tenant",
        ),
        (thousand.tenant, "1,000 bullets", half, "with 1,000 quarantined ones"),
    ):
        first, second = await lab.time(whole), await lab.time(crowd)
        first = min(first, await lab.time(whole), key=lambda s: s.p50)
        second = min(second, await lab.time(crowd), key=lambda s: s.p50)
        lab.report.row("neighbors", name, first, "")
        lab.report.row("neighbors", f"the same {other}", second, f"× {second.p50 / first.p50:.2f}")
