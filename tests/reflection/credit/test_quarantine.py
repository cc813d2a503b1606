"""A bullet that the verdicts of runs make harmful goes out of service with the next upkeep."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient

from memory_api.curation.cleanup import enqueue_cleanups
from memory_api.runtime import Runtime
from tests.reflection.trajectories.test_trajectories_api import body, bullet, playbook
from tests.reflection.transcripts.test_transcripts_api import MORE
from tests.support.model_service import Service
from tests.support.playbook_api import Book
from tests.support.reflections import reflected
from tests.support.transcripts import tag

KEY = "pat-00001"
TRANSCRIPT = {"messages": MORE, "playbook": "coding"}
JUDGED = reflected(verdicts=[tag(KEY, "harmful", "It misled.")])


Drain = Callable[[UUID], Awaitable[int]]


async def upkeep(runtime: Runtime, tenant: Any, drain: Drain) -> None:
    await drain(tenant.id)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await enqueue_cleanups(runtime, session) == 1
    await drain(tenant.id)


async def accuse(book: Book, times: int) -> None:
    for _ in range(times):
        given = {"tag": "harmful", "trace_id": await book.trace()}
        (await book.post(f"bullets/{KEY}/verdicts", **given)).raise_for_status()


@pytest.mark.parametrize(
    ("url", "sent"),
    [("/api/v1/transcripts/reflect", TRANSCRIPT), ("/api/v1/trajectories/reflect", body())],
)
async def test_third_harmful_verdict_of_model_quarantines(
    service: Service, worker_runtime: Runtime, drain: Drain, url: str, sent: dict[str, Any]
) -> None:
    await playbook(service.api)
    await accuse(Book(service.api, "coding"), 2)
    service.stub.behave = lambda call: JUDGED
    (await service.api.post(url, json=sent)).raise_for_status()
    await upkeep(worker_runtime, service.tenant, drain)
    now = await bullet(service.api, KEY)
    assert (now["harmful"], now["status"]) == (3, "quarantined")


async def test_third_harmful_verdict_of_contrast_quarantines(
    api: AsyncClient, tenant: Any, worker_runtime: Runtime, drain: Drain
) -> None:
    book = Book(api)
    await book.deltas({"type": "ADD", "section": "pat", "content": "no. 1"})
    await accuse(book, 2)
    run = {"task_key": "task", "events": [{"event_type": "user_message", "content": "Do it"}]}
    bad = {"outcome": "failure", "playbook": "book", "used_bullet_keys": [KEY]}
    for attempt in [bad, {"outcome": "success"}] * 4:
        (await api.post("/api/v1/traces", json=run | attempt)).raise_for_status()
    await upkeep(worker_runtime, tenant, drain)
    (now,) = await book.bullets()
    assert (now["harmful"], now["status"]) == (3, "quarantined")
