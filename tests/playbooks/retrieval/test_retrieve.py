"""Searching and rendering: what is handed out, and that reading writes nothing but retrievals."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from httpx2 import ASGITransport, AsyncClient
from sqlalchemy import event, select

from memory_api.bootstrap import open_runtime
from memory_api.core.ids import new_id
from memory_api.core.settings import Settings
from memory_api.memories.search.query import SearchFilters
from memory_api.playbooks.errors import PlaybookNotFound
from memory_api.playbooks.queries import count_uses
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.retrieval.retrieve import (
    RenderOptions,
    render_playbook,
    search_bullets,
)
from memory_api.playbooks.tables import MemoryUsageRow, RetrievalRow
from memory_api.runtime import Runtime
from tests.conftest import Database
from tests.support.live_service import with_runtime
from tests.support.playbook_api import Book
from tests.support.problems import assert_problem

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


async def test_score_is_sum_of_its_parts(book: Book) -> None:
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


async def test_section_filter_accepts_any_spelling(book: Book) -> None:
    """On every route that takes a section, with a query and without; an unknown one is empty."""
    mistakes = {"mis-00001", "mis-00002"}
    for query in ("order", ""):
        for name in ("MISTAKES TO AVOID", "mistakes_to_avoid", " Mistakes  to-avoid! ", "mis"):
            assert set(await book.search(query, section_filter=[name])) == mistakes
            answer = await book.post("search", query_text=query, section_filter=["pat", name])
            hits = [hit["bullet"] for hit in answer.json()["results"]]
            assert {hit["section"] for hit in hits if hit["id"] in mistakes} == {name}
            assert set(await everywhere(book, query, section_filter=[name])) == mistakes
        assert set(await book.search(query, sections=["mis"])) == mistakes, "the other name"
        assert await book.search(query, section_filter=["no such section"]) == []
        assert await everywhere(book, query, section_filter=["no such section"]) == []
        assert len(await book.search(query, section_filter=["mis", "Other"])) == 4
        assert len(await book.search(query, section_filter=[])) == 6
    for name in ("MISTAKES TO AVOID", "mistakes-to-avoid", "mis"):
        listed = await book.api.get(f"{book.url}/bullets", params={"section": name})
        assert {bullet["id"] for bullet in listed.json()["items"]} == mistakes
        for field in ("sections", "section_filter"):
            block = (await book.post("render", **{field: [name]})).json()
            assert set(block["bullet_keys"]) == mistakes
    listed = await book.api.get(f"{book.url}/bullets", params={"section": "no such section"})
    assert listed.json()["items"] == []


async def test_both_routes_have_same_filters(book: Book) -> None:
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
async def test_inactive_bullets_are_ranked_by_same_formula(book: Book, fusion: str) -> None:
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


async def test_search_or_render_is_two_round_trips(
    book: Book, runtime: Runtime, tenant: Any
) -> None:
    """One call searches, one statement inserts the retrieval, on the same connection and past
    SQLAlchemy.
    """
    playbook = PlaybookRef("default", book.url.rpartition("/")[2])
    orm_statements: list[str] = []
    checkouts: list[Any] = []
    engine = runtime.sessions.engine.sync_engine

    def on_statement(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        orm_statements.append(statement)

    def on_checkout(*_connection: Any) -> None:
        checkouts.append(1)

    await search_bullets(runtime, tenant.id, playbook, "order")
    event.listen(engine, "before_cursor_execute", on_statement)
    event.listen(engine, "checkout", on_checkout)
    try:
        for sections in ((), ("mis",), ("no such section",)):
            filters = SearchFilters(sections=sections)
            await search_bullets(runtime, tenant.id, playbook, "order", filters=filters)
            await search_bullets(runtime, tenant.id, playbook, "order", filters=filters, top_k=0)
            await render_playbook(
                runtime, tenant.id, playbook, RenderOptions("x", sections=sections)
            )
        with pytest.raises(PlaybookNotFound):
            await search_bullets(runtime, tenant.id, PlaybookRef("default", "nobody"), "order")
    finally:
        event.remove(engine, "before_cursor_execute", on_statement)
        event.remove(engine, "checkout", on_checkout)
    assert orm_statements == []
    assert len(checkouts) == 9 + 1


@pytest.mark.parametrize(
    "query", ["", "   ", "the", "x" * 10_000, "😀", "'; drop table memories; --", "a\0b", "%_\\"]
)
async def test_unusual_queries_find_nothing_or_something(book: Book, query: str) -> None:
    assert len(await book.search(query, top_k=3)) <= 3
    assert (await book.post("render", query_text=query)).status_code == 200


async def test_top_k_bounds(book: Book) -> None:
    for top_k in range(7):
        assert len(await book.search("order", top_k=top_k)) == top_k
    for bad in (-1, 10**9, "many"):
        assert_problem(await book.post("search", query_text="x", top_k=bad), 422, "invalid")
    assert_problem(await book.post("search", query_text="x" * 10_001), 422, "invalid")


async def test_rank_by_usefulness(book: Book) -> None:
    query = "Look up an order before changing it"
    for _ in range(20):
        await book.post("bullets/mis-00001/verdicts", tag="helpful")
    assert (await book.search(query))[0] == "pat-00001"
    answer = await book.post("search", query_text=query, rank_by="usefulness", explain=True)
    hits = answer.json()["results"]
    ranks = [hit["combined_score"] * (0.5 + hit["explain"]["usefulness"]) for hit in hits]
    assert ranks == sorted(ranks, reverse=True)
    assert (await book.search("payment order", rank_by="usefulness"))[0] == "mis-00001"


async def test_render_is_the_block_for_a_prompt(book: Book) -> None:
    answer = await book.post("render")
    block = answer.json()
    assert len(block["bullet_keys"]) == 6
    assert all(f"[{key}]" in block["text"] for key in block["bullet_keys"])
    assert "cite" in block["text"]
    again = await book.post("render")
    assert (again.headers["etag"], again.json()["text"]) == (answer.headers["etag"], block["text"])
    assert again.json()["retrieval_id"] != block["retrieval_id"]
    await book.deltas({"type": "ADD", "content": "one more"})
    assert (await book.post("render")).headers["etag"] != answer.headers["etag"]


async def test_render_respects_token_budget(book: Book) -> None:
    for form in ("prompt", "ace"):
        whole = (await book.post("render", format=form, token_budget=5000)).json()
        seen: set[int] = set()
        for budget in range(0, whole["token_count"] + 20, 5):
            block = (await book.post("render", format=form, token_budget=budget)).json()
            assert block["token_count"] <= budget
            assert bool(block["text"]) == bool(block["bullet_keys"])
            seen.add(len(block["bullet_keys"]))
        assert {0, 6} <= seen
        assert len(seen) > 3
    await book.api.patch(book.url, json={"token_budget": 0})
    none = (await book.post("render")).json()
    assert (none["text"], none["bullet_keys"], none["left_out_count"]) == ("", [], 6)


async def test_harmful_bullet_is_not_rendered(book: Book) -> None:
    await book.api.patch(f"{book.url}/bullets/pat-00001", json={"pinned": True})
    for _ in range(4):
        voted = {"tag": "harmful", "trace_id": await book.trace()}
        await book.post("bullets/pat-00001/verdicts", **voted)
    assert "pat-00001" in await book.search("", min_confidence=0), "it is pinned, and stays"
    assert "pat-00001" not in (await book.post("render")).json()["bullet_keys"]
    await book.api.patch(f"{book.url}/bullets/mis-00001", json={"status": "quarantined"})
    assert "mis-00001" not in (await book.post("render")).json()["bullet_keys"]
    assert "mis-00001" not in await book.search("payment", min_confidence=0)


async def test_empty_playbook_renders_nothing(api: AsyncClient) -> None:
    book = Book(api)
    await book.put({"bullets": []})
    block = (await book.post("render", query_text="anything")).json()
    assert (block["text"], block["bullet_keys"], block["token_count"]) == ("", [], 0)
    assert block["left_out_count"] == 0
    assert await book.search("anything") == []


async def test_missing_playbook_renders_nothing_and_is_a_retrieval(
    book: Book, runtime: Runtime, tenant: Any
) -> None:
    """An agent asks before its first run creates the playbook, and also after its deletion."""
    await book.api.delete(book.url)
    for name in ("not_yet", book.url.rpartition("/")[2]):
        answer = await book.api.post(f"/api/v1/playbooks/{name}/render", json={"query_text": "x"})
        assert answer.status_code == 200, answer.text
        block = answer.json()
        assert (block["text"], block["bullet_keys"], block["left_out_count"]) == ("", [], 0)
        assert (block["version"], block["held_out"]) == (0, None)
        async with runtime.sessions.for_tenant(tenant.id) as session:
            row = await session.get(RetrievalRow, (tenant.id, UUID(block["retrieval_id"])))
        assert row is not None
        assert (row.bullet_keys, row.query) == ([], "x")
    assert await book.trace(playbook="not_yet", retrieval_id=block["retrieval_id"])


async def test_small_playbook_is_rendered_whole_the_best_first(book: Book) -> None:
    """`min_match` selects only if not all bullets fit."""
    for query in ("retry a payment", "nothing of this kind at all"):
        block = (await book.post("render", query_text=query, min_match="strong")).json()
        assert len(block["bullet_keys"]) == 6
        assert block["left_out_count"] == 0
    first = (await book.post("render", query_text="retry a payment that timed out")).json()
    assert first["bullet_keys"][0] == "mis-00001"
    large: dict[str, Any] = {"min_match": "weak", "top_k": 6}
    some = (await book.post("render", query_text="retry a payment", **large)).json()
    assert some["bullet_keys"] == ["mis-00001"]
    assert some["left_out_count"] == 5
    none = (await book.post("render", query_text="xyzzy", **large)).json()
    assert (none["text"], none["bullet_keys"], none["left_out_count"]) == ("", [], 6)
    assert none["retrieval_id"]
    unasked = (await book.post("render", min_match="strong", top_k=6)).json()
    assert len(unasked["bullet_keys"]) == 6, "without a query there is nothing to match"


async def test_render_without_trials(book: Book) -> None:
    """They are no bullets that did not fit, and the retrieval does not name them."""
    await book.deltas(
        {"type": "ADD", "section": "pat", "content": "Try: lock the order before you change it."}
    )
    block = (await book.post("render", query_text="change an order")).json()
    assert "Try: lock" in block["text"]
    proven = (await book.post("render", query_text="order", include_trials=False)).json()
    assert "Try:" not in proven["text"]
    assert (len(proven["bullet_keys"]), proven["left_out_count"]) == (6, 0)


async def test_every_search_and_render_is_a_retrieval(
    book: Book, runtime: Runtime, tenant: Any
) -> None:
    search = (await book.post("search", query_text="retry a payment", top_k=2)).json()
    render = (await book.post("render", query_text="order", top_k=3)).json()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        searched = await session.get(RetrievalRow, (tenant.id, UUID(search["retrieval_id"])))
        assert searched is not None
        assert (searched.kind, searched.query, searched.version) == ("search", "retry a payment", 1)
        assert searched.bullet_keys == [hit["bullet"]["id"] for hit in search["results"]]
        scores = [hit["combined_score"] for hit in search["results"]]
        assert searched.scores == pytest.approx(scores)
        rendered = await session.get(RetrievalRow, (tenant.id, UUID(render["retrieval_id"])))
        assert rendered is not None
        assert sorted(rendered.bullet_keys) == sorted(render["bullet_keys"])
        created = [searched.created_at, rendered.created_at]
        start = datetime.min.replace(tzinfo=UTC)
        for since, until in pairwise((start, *created)):  # a period begins where the last one ended
            await count_uses(session, since, until)
        counts = (await session.scalars(select(MemoryUsageRow.use_count))).all()
        assert sum(counts) == len(searched.bullet_keys) + len(rendered.bullet_keys)


async def test_verdict_with_a_retrieval_is_accepted_by_another_process_at_once(
    app: FastAPI, book: Book, settings: Settings, database: Database, tenant: Any
) -> None:
    """A second API process with its own runtime knows the retrieval as soon as the answer of the
    first has left."""
    async with (
        open_runtime(settings, database.url("hansei_app")) as second,
        AsyncClient(
            transport=ASGITransport(with_runtime(app, second)),
            base_url="http://second",
            headers=tenant.auth(),
        ) as other,
    ):
        for path in ("search", "render"):
            answer = (await book.post(path, query_text="order")).json()
            body = {"tag": "helpful", "retrieval_id": answer["retrieval_id"]}
            url = f"{book.url}/bullets/pat-00001/verdicts"
            recorded = await other.post(url, json=body)
            assert recorded.status_code in (200, 201), recorded.text
        unknown = {"tag": "helpful", "retrieval_id": str(new_id())}
        assert_problem(await other.post(url, json=unknown), 422, "invalid")


async def test_retrieval_updates_no_memory_row(
    book: Book, app: FastAPI, runtime: Runtime, tenant: Any
) -> None:
    async def stamps() -> list[Any]:
        async with runtime.sessions.for_tenant(tenant.id) as session:
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
    assert await stamps() == before
