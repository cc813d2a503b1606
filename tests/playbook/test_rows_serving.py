"""Searching and rendering: what is handed out, and that reading writes nothing but servings."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient
from sqlalchemy import event, select

from apps.memory_api.core.db import Sessions
from apps.memory_api.core.ids import new_id
from apps.memory_api.memory.find import Filters
from apps.memory_api.playbook.errors import NoPlaybook
from apps.memory_api.playbook.queries import get_serving
from apps.memory_api.playbook.rows import Place
from apps.memory_api.playbook.serve import Order, render_playbook, search_bullets
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
    """On every route that takes a section, with a query and without; an unknown one is empty."""
    mistakes = {"mis-00001", "mis-00002"}
    for query in ("order", ""):
        for name in ("MISTAKES TO AVOID", "mistakes_to_avoid", " Mistakes  to-avoid! ", "mis"):
            assert set(await book.search(query, section_filter=[name])) == mistakes
            assert set(await everywhere(book, query, section_filter=[name])) == mistakes
        assert await book.search(query, section_filter=["no such section"]) == []
        assert await everywhere(book, query, section_filter=["no such section"]) == []
        assert len(await book.search(query, section_filter=["mis", "Other"])) == 4
        assert len(await book.search(query, section_filter=[])) == 6
    for name in ("MISTAKES TO AVOID", "mistakes-to-avoid", "mis"):
        listed = await book.api.get(f"{book.url}/bullets", params={"section": name})
        assert {bullet["id"] for bullet in listed.json()["items"]} == mistakes
        block = (await book.post("render", section_filter=[name])).json()
        assert set(block["keys"]) == mistakes
    listed = await book.api.get(f"{book.url}/bullets", params={"section": "no such section"})
    assert listed.json()["items"] == []


async def test_filters_are_the_same_on_both_routes(book: Book) -> None:
    await book.api.patch(f"{book.url}/bullets/pat-00001", json={"tags": ["shop"]})
    for query in ("order", ""):
        for some in (
            {"tags": ["shop"]},
            {"kinds": ["bullet"]},
            {"kinds": ["strategy"]},
            {"min_confidence": 0.6},
            {"min_importance": 0.6},
            {"error_categories": ["tool_error"]},
            {"since": "2020-01-01"},
            {"until": "2020-01-01"},
            {"status": "active"},
            {"status": "archived"},
            {"top_k": 0},
        ):
            here = await book.search(query, **({"min_confidence": 0.3} | some))
            assert here == await everywhere(book, query, **some), some
    assert await book.search("order", tags=["shop"]) == ["pat-00001"]
    assert len(await book.search("order", kinds=["bullet"])) == 6
    assert await book.search("order", kinds=["strategy"]) == []
    assert await book.search("order", until="2020-01-01") == []


async def everywhere(book: Book, query: str, **more: Any) -> list[str]:
    """The keys that the project's search finds in this playbook."""
    body = {"query_text": query, "playbook": book.url.rpartition("/")[2]} | more
    answer = await book.api.post("/api/v1/search", json=body)
    assert answer.status_code == 200, answer.text
    return [hit["memory"]["key"] for hit in answer.json()["results"]]


@pytest.mark.parametrize("fusion", ["anchored", "minmax", "rrf"])
async def test_what_is_set_aside_is_ranked_by_the_same_formula(book: Book, fusion: str) -> None:
    """The same bullets get the same scores, active or not."""
    query = "Look up an order before a payment"
    how: dict[str, Any] = {"fusion": fusion, "explain": True, "min_confidence": 0, "top_k": 5}
    active = (await book.post("search", query_text=query, **how)).json()["results"]
    for n, key in enumerate(k for s in LESSONS for k in (f"{s}-00001", f"{s}-00002")):
        status = "quarantined" if n % 2 else "archived"
        patched = await book.api.patch(f"{book.url}/bullets/{key}", json={"status": status})
        assert patched.status_code == 200
        assert await book.search(query, min_confidence=0, status=status) != []
    for key in await book.search("", status="archived", min_confidence=0):
        await book.api.patch(f"{book.url}/bullets/{key}", json={"status": "quarantined"})
    aside = (await book.post("search", query_text=query, status="quarantined", **how)).json()
    assert await book.search(query) == []
    assert [hit["bullet"]["id"] for hit in aside["results"]] == [h["bullet"]["id"] for h in active]
    for before, now in zip(active, aside["results"], strict=True):
        assert now["bullet"]["status"] == "quarantined"
        assert now["explain"] == pytest.approx(before["explain"], abs=1e-3)
        for score in ("vector_score", "bm25_score", "combined_score"):
            assert now[score] == pytest.approx(before[score], abs=1e-3)
    assert aside["version"] > 1
    assert await everywhere(book, query, status="quarantined", top_k=2) == await book.search(
        query, status="quarantined", top_k=2, min_confidence=0
    )


async def test_a_search_or_render_of_a_playbook_is_one_round_trip(
    book: Book, runtime: Runtime, tenant: Any, app: FastAPI
) -> None:
    place = Place("default", book.url.rpartition("/")[2])
    await app.state.servings.flush()  # what others handed out, which is written every second
    log = ServingLog(runtime.sessions)
    sent: list[str] = []
    borrowed: list[Any] = []
    engine = runtime.sessions.engine.sync_engine

    def hear(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        sent.append(statement)

    def lend(*_connection: Any) -> None:
        borrowed.append(1)

    await search_bullets(runtime, log, tenant.id, place, "order")
    event.listen(engine, "before_cursor_execute", hear)
    event.listen(engine, "checkout", lend)
    try:
        for sections in ((), ("mis",), ("no such section",)):
            filters = Filters(sections=sections)
            await search_bullets(runtime, log, tenant.id, place, "order", filters=filters)
            await search_bullets(runtime, log, tenant.id, place, "order", filters=filters, top_k=0)
            await render_playbook(runtime, log, tenant.id, place, Order("x", sections=sections))
        with pytest.raises(NoPlaybook):
            await search_bullets(runtime, log, tenant.id, Place("default", "nobody"), "order")
    finally:
        event.remove(engine, "before_cursor_execute", hear)
        event.remove(engine, "checkout", lend)
    assert sent == [], "beside the one call, which goes past SQLAlchemy"
    assert len(borrowed) == 10


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
    none = (await book.post("render")).json()
    assert (none["text"], none["keys"], none["left_out"]) == ("", [], 6)


async def test_what_surely_harms_is_not_rendered(book: Book) -> None:
    await book.api.patch(f"{book.url}/bullets/pat-00001", json={"pinned": True})
    for _ in range(4):
        voted = {"tag": "harmful", "trace_id": await book.trace()}
        await book.post("bullets/pat-00001/evaluations", **voted)
    assert "pat-00001" in await book.search("", min_confidence=0), "it is pinned, and stays"
    assert "pat-00001" not in (await book.post("render")).json()["keys"]
    await book.api.patch(f"{book.url}/bullets/mis-00001", json={"status": "quarantined"})
    assert "mis-00001" not in (await book.post("render")).json()["keys"]
    assert "mis-00001" not in await book.search("payment", min_confidence=0)


async def test_an_empty_playbook_says_nothing(api: AsyncClient) -> None:
    book = Book(api)
    await book.put({"bullets": []})
    block = (await book.post("render", query_text="anything")).json()
    assert (block["text"], block["keys"], block["tokens"]) == ("", [], 0)
    assert block["left_out"] == 0
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
