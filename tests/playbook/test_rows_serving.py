"""Searching and rendering: what is handed out, and that reading writes nothing but servings."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient
from sqlalchemy import select

from apps.memory_api.core.db import Sessions
from apps.memory_api.core.ids import new_id
from apps.memory_api.playbook.queries import get_serving
from apps.memory_api.playbook.servings import Served, ServingLog
from apps.memory_api.playbook.tables import MemoryUsage, Serving
from apps.memory_api.runtime import Runtime
from tests.http.problems import assert_problem
from tests.playbook.rows import Book

LESSONS = {
    "pat": ["Look up an order before changing it", "注文番号を必ず確認してから返金する"],
    "mis": ["Do not retry a payment that timed out", "อย่าลืมตรวจสอบรหัส"],
    "oth": ["لا تغلق التذكرة قبل رد العميل", "先查询库存再下单"],
}


@pytest.fixture
async def book(api: AsyncClient) -> Book:
    book = Book(api)
    await book.deltas(
        *({"type": "ADD", "section": s, "content": c} for s, cs in LESSONS.items() for c in cs)
    )
    return book


@pytest.mark.parametrize("content", [c for contents in LESSONS.values() for c in contents])
async def test_search_in_any_language(book: Book, content: str) -> None:
    answer = await book.post("search", query_text=content, top_k=1, explain=True)
    (hit,) = answer.json()["results"]
    assert hit["bullet"]["content"] == content
    assert hit["explain"]["why"] == "words and meaning"
    assert hit["explain"]["dense_rank"] == 1


async def test_scores_are_those_of_the_sum(book: Book) -> None:
    for fusion, alpha in (("minmax", 0.25), ("anchored", 0.7)):
        answer = await book.post(
            "search", query_text="retry an order", fusion=fusion, alpha=alpha, min_confidence=0
        )
        hits = answer.json()["results"]
        assert len(hits) == 6
        for hit in hits:
            total = alpha * hit["vector_score"] + (1 - alpha) * hit["bm25_score"]
            assert hit["combined_score"] == pytest.approx(total, abs=1e-5)
        scores = [hit["combined_score"] for hit in hits]
        assert scores == sorted(scores, reverse=True)


async def test_sections_in_any_spelling(book: Book) -> None:
    for name in ("MISTAKES TO AVOID", "mistakes_to_avoid", "mis"):
        assert set(await book.search("order", section_filter=[name])) == {"mis-00001", "mis-00002"}
    assert await book.search("order", section_filter=["no such section"]) == []
    assert len(await book.search("order", section_filter=[])) == 6


@pytest.mark.parametrize(
    "query", ["", "   ", "the", "x" * 10_000, "😀", "'; drop table memories; --", "a\0b", "%_\\"]
)
async def test_strange_queries(book: Book, query: str) -> None:
    assert len(await book.search(query, top_k=3)) <= 3
    assert (await book.post("render", query_text=query)).status_code == 200


async def test_how_many(book: Book) -> None:
    for top_k in range(7):
        assert len(await book.search("order", top_k=top_k)) == top_k
    for bad in (-1, 10**9, "many"):
        assert_problem(await book.post("search", query_text="x", top_k=bad), 422, "invalid")
    assert_problem(await book.post("search", query_text="x" * 10_001), 422, "invalid")


async def test_rank_by_usefulness(book: Book) -> None:
    query = "Look up an order before changing it"
    for _ in range(20):
        await book.post("bullets/mis-00001/evaluations", tag="helpful")
    assert (await book.search(query))[0] == "pat-00001"
    answer = await book.post("search", query_text=query, rank_by="usefulness", explain=True)
    hits = answer.json()["results"]
    ranks = [hit["combined_score"] * (0.5 + hit["explain"]["usefulness"]) for hit in hits]
    assert ranks == sorted(ranks, reverse=True)
    assert (await book.search("payment order", rank_by="usefulness"))[0] == "mis-00001"


async def test_render_is_the_block_for_a_prompt(book: Book) -> None:
    answer = await book.post("render")
    block = answer.json()
    assert len(block["keys"]) == 6
    assert all(f"[{key}]" in block["text"] for key in block["keys"])
    assert "cite" in block["text"]
    again = await book.post("render")
    assert (again.headers["etag"], again.json()["text"]) == (answer.headers["etag"], block["text"])
    assert again.json()["render_id"] != block["render_id"]
    await book.deltas({"type": "ADD", "content": "one more"})
    assert (await book.post("render")).headers["etag"] != answer.headers["etag"]


async def test_render_keeps_to_its_budget(book: Book) -> None:
    for form in ("prompt", "ace"):
        whole = (await book.post("render", format=form, token_budget=5000)).json()
        seen: set[int] = set()
        for budget in range(0, whole["tokens"] + 20, 5):
            block = (await book.post("render", format=form, token_budget=budget)).json()
            assert block["tokens"] <= budget
            assert bool(block["text"]) == bool(block["keys"])
            seen.add(len(block["keys"]))
        assert {0, 6} <= seen
        assert len(seen) > 3
    await book.api.patch(book.url, json={"token_budget": 0})
    assert (await book.post("render")).json()["text"] == ""


async def test_what_surely_harms_is_not_rendered(book: Book) -> None:
    for _ in range(4):
        await book.post("bullets/pat-00001/evaluations", tag="harmful")
    assert "pat-00001" not in (await book.post("render")).json()["keys"]
    await book.api.patch(f"{book.url}/bullets/mis-00001", json={"status": "quarantined"})
    assert "mis-00001" not in (await book.post("render")).json()["keys"]
    assert "mis-00001" not in await book.search("payment", min_confidence=0)


async def test_an_empty_playbook_says_nothing(api: AsyncClient) -> None:
    book = Book(api)
    await book.put({"bullets": []})
    block = (await book.post("render", query_text="anything")).json()
    assert (block["text"], block["keys"], block["tokens"]) == ("", [], 0)
    assert await book.search("anything") == []


async def test_every_search_and_render_is_a_serving(
    book: Book, app: FastAPI, runtime: Runtime, tenant: Any
) -> None:
    search = (await book.post("search", query_text="retry a payment", top_k=2)).json()
    render = (await book.post("render", query_text="order", top_k=3)).json()
    await app.state.servings.flush()
    async with runtime.sessions.tenant(tenant.id) as session:
        served = await get_serving(session, UUID(search["render_id"]))
        assert served is not None
        assert (served.kind, served.query, served.version) == ("search", "retry a payment", 1)
        assert served.keys == [hit["bullet"]["id"] for hit in search["results"]]
        assert served.scores == pytest.approx([h["combined_score"] for h in search["results"]])
        block = await get_serving(session, UUID(render["render_id"]))
        assert block is not None
        assert sorted(block.keys) == sorted(render["keys"])
        uses = (await session.scalars(select(MemoryUsage.uses))).all()
        assert sum(uses) == len(served.keys) + len(block.keys)


async def test_reading_rewrites_no_row(
    book: Book, app: FastAPI, runtime: Runtime, tenant: Any
) -> None:
    async def stamps() -> list[Any]:
        async with runtime.sessions.tenant(tenant.id) as session:
            connection = await session.connection()
            found: list[Any] = []
            for table in ("memories", "memory_vectors", "postings", "playbooks", "scope_stats"):
                rows = await connection.exec_driver_sql(
                    f"select xmin::text, xmax::text, ctid::text from {table} order by ctid"
                )
                found.append(rows.all())
            return found

    before = await stamps()
    assert all(before)
    await book.search("order")
    await book.post("render", query_text="order")
    await book.now()
    await book.now(as_of=1)
    await app.state.servings.flush()
    assert await stamps() == before


def served(tenant_id: UUID, n: int = 0) -> Served:
    return Served(tenant_id, 1, 1, "search", f"query {n}", [new_id()], ["pat-00001"], [0.5])


async def test_servings_are_written_at_the_end_and_for_each_tenant(
    runtime: Runtime, make_tenant: Any
) -> None:
    tenants = [(await make_tenant()).id for _ in range(2)]
    async with ServingLog(runtime.sessions).running() as log:
        for n in range(1_100):
            log.add(served(tenants[n % 2], n))
    for tenant_id in tenants:
        async with runtime.sessions.tenant(tenant_id) as session:
            assert len((await session.scalars(select(Serving.render_id))).all()) == 550


async def test_a_serving_that_cannot_be_written_waits(
    runtime: Runtime, owner: Sessions, tenant: Any
) -> None:
    async with owner.shared() as session:
        await (await session.connection()).exec_driver_sql(
            "revoke insert on servings from hansei_app"
        )
    log = ServingLog(runtime.sessions)
    log.add(served(tenant.id))
    try:
        with pytest.raises(Exception, match="permission denied"):
            await log.flush()
    finally:
        async with owner.shared() as session:
            await (await session.connection()).exec_driver_sql(
                "grant insert on servings to hansei_app"
            )
    await log.flush()
    async with runtime.sessions.tenant(tenant.id) as session:
        assert len((await session.scalars(select(Serving.render_id))).all()) == 1
