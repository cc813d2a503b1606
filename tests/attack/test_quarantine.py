"""A write key tries to remove bullets with invented traces."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient

from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.verdicts.quarantine import quarantine_harmful_bullets
from memory_api.playbooks.verdicts.record import NewVerdict, record_verdicts
from memory_api.runtime import Runtime
from tests.support.api_calls import new_trace
from tests.support.playbook_api import Book

KEY = "pat-00001"


@pytest.fixture
async def book(api: AsyncClient) -> Book:
    book = Book(api)
    await book.deltas(*({"type": "ADD", "section": "pat", "content": f"no. {n}"} for n in (1, 2)))
    return book


async def judge(book: Book, agent: dict[str, str], **more: Any) -> dict[str, Any]:
    answer = await book.post(f"bullets/{KEY}/verdicts", tag="harmful", headers=agent, **more)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_invented_traces_do_not_quarantine_a_bullet(book: Book, tenant: Any) -> None:
    agent = tenant.auth("write")
    for _ in range(6):
        answer = await judge(book, agent, trace_id=await new_trace(book.api))
        assert not answer["quarantined"]
    assert answer["bullet"]["harmful"] == 6
    assert answer["bullet"]["status"] == "active"
    assert KEY in (await book.post("render")).json()["bullet_keys"], "it is also served"


async def test_retrieval_of_other_bullets_is_no_evidence(book: Book, tenant: Any) -> None:
    agent = tenant.auth("write")
    for _ in range(4):
        found = await book.post("search", query_text="no. 2", top_k=1)
        assert [r["bullet"]["id"] for r in found.json()["results"]] == ["pat-00002"]
        trace_id = await new_trace(book.api, retrieval_id=found.json()["retrieval_id"])
        assert not (await judge(book, agent, trace_id=trace_id))["quarantined"]


async def test_agent_that_used_the_bullet_is_heard(book: Book, tenant: Any) -> None:
    agent = tenant.auth("write")
    for last in (False, False, True):
        retrieval = (await book.post("render")).json()["retrieval_id"]
        trace_id = await new_trace(book.api, retrieval_id=retrieval, playbook="book")
        answer = await judge(book, agent, trace_id=trace_id)
        assert answer["quarantined"] is last
    assert KEY not in (await book.post("render")).json()["bullet_keys"]


async def test_reviewed_playbook_gets_a_proposal(book: Book, tenant: Any) -> None:
    await book.api.patch(book.url, json={"review_mode": "required"})
    agent = tenant.auth("write")
    for _ in range(5):
        retrieval = (await book.post("render")).json()["retrieval_id"]
        answer = await judge(
            book, agent, trace_id=await new_trace(book.api, retrieval_id=retrieval)
        )
        assert (answer["quarantined"], answer["bullet"]["status"]) == (False, "active")
    waiting = (await book.api.get(f"{book.url}/proposals")).json()["items"]
    assert [p["deltas"][0]["bullet_id"] for p in waiting] == [KEY]
    rejected = f"{book.url}/proposals/{waiting[0]['id']}/reject"
    assert (await book.api.post(rejected, json={})).status_code == 204
    await judge(book, agent, trace_id=await new_trace(book.api))
    assert (await book.api.get(f"{book.url}/proposals")).json()["items"] == []


async def test_verdicts_that_are_not_counted_protect_no_bullet(
    book: Book, runtime: Runtime, tenant: Any
) -> None:
    """A failed run gives two verdicts: that of the model, and that of its outcome as evidence."""
    ref = PlaybookRef("default", "book")
    for _ in range(4):
        retrieval = (await book.post("render")).json()["retrieval_id"]
        trace_id = await new_trace(book.api, retrieval_id=retrieval, playbook="book")
        verdicts = [
            NewVerdict(KEY, "harmful", judge, trace_id=UUID(trace_id), retrieval_id=UUID(retrieval))
            for judge in ("outcome", "llm")
        ]
        await record_verdicts(runtime, tenant.id, ref, verdicts)
    assert KEY not in (await book.post("render")).json()["bullet_keys"]
    author = ChangeAuthor("curator")
    assert list(await quarantine_harmful_bullets(runtime, tenant.id, ref, author)) == [KEY]
