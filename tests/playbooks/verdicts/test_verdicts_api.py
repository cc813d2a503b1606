"""Verdicts over HTTP: who may judge as whom, what they are about, and what follows at once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient, Response
from sqlalchemy import delete

from memory_api.core.ids import new_id
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.tables import RetrievalRow
from memory_api.playbooks.verdicts.record import NewVerdict, record_verdicts
from memory_api.runtime import Runtime
from tests.support.playbook_api import Book
from tests.support.problems import assert_names, assert_problem

KEY = "pat-00001"
PLACE = PlaybookRef("default", "book")


@pytest.fixture
async def book(api: AsyncClient) -> Book:
    book = Book(api)
    await book.deltas(*({"type": "ADD", "section": "pat", "content": f"no. {n}"} for n in (1, 2)))
    return book


async def vote(book: Book, tag: str = "harmful", **more: Any) -> Response:
    return await book.post(f"bullets/{KEY}/verdicts", tag=tag, **more)


async def bullet(book: Book) -> dict[str, Any]:
    return (await book.api.get(f"{book.url}/bullets/{KEY}")).json()


async def test_repeated_request_counts_once(book: Book, tenant: Any) -> None:
    first, again = await vote(book, "helpful"), await vote(book, "helpful")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["verdict"]["id"] == first.json()["verdict"]["id"]
    assert (await bullet(book))["helpful"] == 1
    await vote(book, "harmful")
    now = await bullet(book)
    assert (now["helpful"], now["harmful"]) == (0, 1), "another mind, not another vote"
    await vote(book, "harmful", headers=tenant.auth("write"))
    assert (await bullet(book))["harmful"] == 2, "another key is somebody else"


async def test_agent_key_cannot_judge_as_human(book: Book, runtime: Runtime, tenant: Any) -> None:
    trace_id = await book.trace()
    tested = NewVerdict(KEY, "helpful", "human", trace_id=UUID(trace_id))
    await record_verdicts(runtime, tenant.id, PLACE, [tested])
    agent = tenant.auth("write")
    said = await vote(book, trace_id=trace_id, headers=agent)
    assert (said.json()["verdict"]["judge"], said.json()["counted"]) == ("llm", False)
    assert (await bullet(book))["helpful"] == 1
    refused = await vote(book, trace_id=trace_id, judge="human", headers=agent)
    assert "admin" in assert_problem(refused, 403, "forbidden")["detail"]
    person = await vote(book, trace_id=trace_id)
    assert (person.json()["verdict"]["judge"], person.json()["counted"]) == ("human", True)
    relayed = await vote(book, "neutral", trace_id=await book.trace(), judge="llm")
    assert relayed.json()["verdict"]["judge"] == "llm"
    assert_problem(await vote(book, judge="test"), 422, "invalid")


async def test_verdict_requires_existing_trace_and_retrieval(
    book: Book, make_tenant: Any, tenant: Any
) -> None:
    other = await make_tenant()
    foreign = await book.api.post(
        "/api/v1/traces?reflect=never",
        json={"events": [{"event_type": "user_message", "content": "Do it"}]},
        headers=other.auth(),
    )
    elsewhere = await book.trace(project_id="elsewhere")
    for trace_id in (str(new_id()), foreign.json()["trace_id"], elsewhere):
        answer = await vote(book, trace_id=trace_id)
        assert_names(answer, "trace_id")
    stranger = Book(book.api, "stranger")
    await stranger.deltas({"type": "ADD", "section": "pat", "content": "else"})
    for retrieval_id in (str(new_id()), (await stranger.post("render")).json()["retrieval_id"]):
        answer = await vote(book, retrieval_id=retrieval_id)
        assert_names(answer, "retrieval_id")
    assert (await bullet(book))["harmful"] == 0
    mine = (await book.post("render")).json()["retrieval_id"]
    assert (await vote(book, retrieval_id=mine)).status_code == 201


async def test_harmful_bullet_is_quarantined_at_once_and_release_is_kept(
    book: Book, runtime: Runtime, tenant: Any
) -> None:
    for last in (False, False, True):
        answer = (await vote(book, trace_id=await book.trace())).json()
        assert answer["quarantined"] is last
    assert answer["bullet"]["status"] == (await bullet(book))["status"] == "quarantined"
    assert await book.search("no. 1", min_confidence=0) == ["pat-00002"]
    patch = {"status": "active", "reason": "Looked at."}
    (await book.api.patch(f"{book.url}/bullets/{KEY}", json=patch)).raise_for_status()
    helped = (await vote(book, "helpful", trace_id=await book.trace())).json()
    assert (helped["quarantined"], (await bullet(book))["status"]) == (False, "active")
    again = (await vote(book, trace_id=await book.trace())).json()
    assert (again["quarantined"], (await bullet(book))["status"]) == (True, "quarantined")
    assert await book.problems() == []


async def test_verdict_on_a_lost_retrieval(book: Book, tenant: Any, runtime: Runtime) -> None:
    """A crash of PostgreSQL may lose the row of a retrieval. Its ID is signed for one playbook."""
    retrieval_id = (await book.post("render", query_text="no")).json()["retrieval_id"]
    other = Book(book.api, "other")
    await other.deltas({"type": "ADD", "section": "pat", "content": "another"})
    async with runtime.sessions.for_tenant(tenant.id) as session:
        lost = await session.scalars(delete(RetrievalRow).returning(RetrievalRow.id))
    assert [str(row_id) for row_id in lost] == [retrieval_id]
    answer = await vote(book, retrieval_id=retrieval_id)
    assert answer.status_code == 201, answer.text
    assert answer.json()["verdict"]["retrieval_id"] == retrieval_id
    for playbook, invalid_id in ((other, retrieval_id), (book, str(new_id()))):
        refused = await vote(playbook, retrieval_id=invalid_id)
        assert_names(refused, "retrieval_id")
