"""Documents that are cheap to send and take gigabytes or hours to read."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient

from memory_api.collections import extraction
from memory_api.collections.extraction import UnreadableDocument, extract_isolated
from memory_api.core import isolated_work
from memory_api.core.isolated_work import (
    ISOLATION,
    MAX_PROCESS_BYTES,
    WorkTimeout,
    run_isolated,
)
from memory_api.runs.tables import RunRow
from tests.conftest import TestTenant
from tests.support.worker_processes import WorkerProcess
from tests.support.worker_processes import queue_run as queue_run
from tests.support.worker_processes import read_run as read_run
from tests.support.worker_processes import start_worker as start_worker
from tests.support.worker_processes import wait_for_run as wait_for_run

SLOW_DOCUMENTS = """
async def never(runtime, run):
    print("READS", flush=True)
    await asyncio.sleep(600)
steps["chunk"] = InterruptedStep("chunk", never)
"""
URL = "/api/v1/collections"
TENANT = UUID(int=1)
MAX_WAIT_SECONDS = 60.0
"""On a machine that is busy with other tests. The attack took ten minutes."""


@pytest.fixture
def isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ISOLATION, "is_enabled", True)
    monkeypatch.setattr(ISOLATION, "_limiter", None)


async def test_work_that_needs_too_much_memory_is_stopped(isolation: None) -> None:
    with pytest.raises(WorkTimeout, match="memory"):
        await run_isolated(partial(bytearray, 2 * MAX_PROCESS_BYTES), 1, TENANT, max_inline_size=0)
    assert await run_isolated(os.getpid, 1, TENANT, max_inline_size=0) != os.getpid()


async def test_tag_with_many_attributes_does_not_fill_the_memory(isolation: None) -> None:
    """20 MB of attributes took 3 GB of the worker."""
    with pytest.raises(UnreadableDocument) as caught:
        await extract_isolated(b"<a " + b"a=b " * 4_000_000 + b">x", "text/html", TENANT)
    assert caught.value.code == "too_slow"
    assert "memory" in str(caught.value)


async def test_document_is_read_and_split_in_another_process(
    api: AsyncClient, drain: Any, tenant: Any, isolation: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 MB of headings took 800 MB of the worker."""
    calls: list[str] = []

    async def record(work: Any, _seconds: float) -> Any:
        calls.append(work.func.__name__)
        return work()

    monkeypatch.setattr(isolated_work, "_run_in_process", record)
    (await api.post(URL, json={"name": "c"})).raise_for_status()
    sent = await api.post(f"{URL}/c/documents", params={"source": "a.md"}, content=b"# Rules")
    await drain(tenant.id)
    document = (await api.get(f"{URL}/c/documents/{sent.json()['id']}")).json()
    assert (document["state"], calls) == ("done", ["extract_clean_text", "split_pages"])


async def test_document_past_its_time_budget_fails_with_a_reason(
    api: AsyncClient, drain: Any, tenant: Any, isolation: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "MAX_SECONDS", 0.0)
    (await api.post(URL, json={"name": "c"})).raise_for_status()
    sent = await api.post(f"{URL}/c/documents", params={"source": "a.md"}, content=b"# Rules")
    await drain(tenant.id)
    document = (await api.get(f"{URL}/c/documents/{sent.json()['id']}")).json()
    assert (document["state"], document["error"]["code"]) == ("failed", "too_slow")
    runs = (await api.get("/api/v1/runs", params={"kind": "chunk"})).json()["items"]
    assert [(run["state"], run["attempt_count"]) for run in runs] == [("done", 1)]


def test_reason_leaves_the_process() -> None:
    error = pickle.loads(pickle.dumps(UnreadableDocument("empty", "The document is empty.")))
    assert (error.code, str(error)) == ("empty", "The document is empty.")


async def test_documents_delay_no_other_tenant(
    api: AsyncClient,
    http: AsyncClient,
    start_worker: Callable[..., Awaitable[WorkerProcess]],
    make_tenant: Callable[[], Awaitable[TestTenant]],
    queue_run: Callable[[], Awaitable[RunRow]],
    wait_for_run: Callable[[UUID], Awaitable[RunRow]],
) -> None:
    """Two tenants send documents that take ten minutes each: they had all slots of a worker."""
    for tenant in (await make_tenant(), await make_tenant()):
        (await http.post(URL, json={"name": "c"}, headers=tenant.auth())).raise_for_status()
        for number in range(6):
            sent = await http.post(
                f"{URL}/c/documents",
                params={"source": f"{number}.md"},
                content=b"# Rules",
                headers=tenant.auth(),
            )
            assert sent.status_code == 202, sent.text
    worker = await start_worker(patch=SLOW_DOCUMENTS)
    for _ in range(3):
        await worker.wait_for_line("READS")
        worker.lines.clear()
    async with asyncio.timeout(MAX_WAIT_SECONDS):
        await wait_for_run((await queue_run()).id)
