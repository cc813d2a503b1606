"""Verdicts over HTTP: who may judge as whom, what they are about, and what follows at once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient, Response

from apps.memory_api.core.ids import new_id
from apps.memory_api.playbook.evaluate import Verdict, evaluate
from apps.memory_api.playbook.rows import Place
from apps.memory_api.runtime import Runtime
from tests.http.problems import assert_names, assert_problem
from tests.playbook.rows import Book

KEY = "pat-00001"
PLACE = Place("default", "book")


@pytest.fixture
async def book(api: AsyncClient) -> Book:
    book = Book(api)
    await book.deltas(*({"type": "ADD", "section": "pat", "content": f"no. {n}"} for n in (1, 2)))
    return book


async def vote(book: Book, tag: str = "harmful", **more: Any) -> Response:
    return await book.post(f"bullets/{KEY}/evaluations", tag=tag, **more)


async def bullet(book: Book) -> dict[str, Any]:
    return (await book.api.get(f"{book.url}/bullets/{KEY}")).json()


async def test_a_double_click_counts_once(book: Book, tenant: Any) -> None:
    first, again = await vote(book, "helpful"), await vote(book, "helpful")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["evaluation"]["id"] == first.json()["evaluation"]["id"]
    assert (await bullet(book))["helpful"] == 1
    await vote(book, "harmful")
    now = await bullet(book)
    assert (now["helpful"], now["harmful"]) == (0, 1), "another mind, not another vote"
    await vote(book, "harmful", headers=tenant.auth("write"))
    assert (await bullet(book))["harmful"] == 2, "another key is somebody else"


async def test_an_agent_s_key_is_no_person(book: Book, runtime: Runtime, tenant: Any) -> None:
    trace_id = await book.trace()
    tested = Verdict(KEY, "helpful", "test", trace_id=UUID(trace_id))
    await evaluate(runtime, tenant.id, PLACE, [tested])
    agent = tenant.auth("write")
    said = await vote(book, trace_id=trace_id, headers=agent)
    assert (said.json()["evaluation"]["judge"], said.json()["counts"]) == ("llm", False)
    assert (await bullet(book))["helpful"] == 1
    refused = await vote(book, trace_id=trace_id, judge="human", headers=agent)
    assert "admin" in assert_problem(refused, 403, "forbidden")["detail"]
    person = await vote(book, trace_id=trace_id)
    assert (person.json()["evaluation"]["judge"], person.json()["counts"]) == ("human", True)
    relayed = await vote(book, "neutral", trace_id=await book.trace(), judge="llm")
    assert relayed.json()["evaluation"]["judge"] == "llm"
    assert_problem(await vote(book, judge="test"), 422, "invalid")


async def test_what_a_verdict_is_about_must_be_there(
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
    for render_id in (str(new_id()), (await stranger.post("render")).json()["render_id"]):
        answer = await vote(book, render_id=render_id)
        assert_names(answer, "render_id")
    assert (await bullet(book))["harmful"] == 0
    mine = (await book.post("render")).json()["render_id"]
    assert (await vote(book, render_id=mine)).status_code == 201


async def test_what_becomes_harmful_is_out_of_service_at_once_and_a_release_holds(
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
