"""A score of relevance means the same for every query, whatever else is in the scope."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient

from tests.support.api_calls import new_memory
from tests.support.playbook_api import Book

FLIGHTS = (
    "Check the baggage allowance of the fare before adding a bag.",
    "A basic economy flight cannot be changed. Offer to cancel it and book again.",
    "Ask for the reservation number before you look up a flight.",
    "Compensate a delayed flight only after the delay is confirmed.",
    "Use the payment method of the profile for an upgrade of the cabin.",
)
ABOUT_FLIGHTS = "change of a basic economy flight"
FOREIGN = ("返品", "refund", "warranty of the batteries", "SELECT name FROM employees", "🎉🎉")


@pytest.fixture
async def book(api: AsyncClient) -> Book:
    book = Book(api)
    await book.deltas(
        *({"type": "ADD", "section": "mis", "content": content} for content in FLIGHTS)
    )
    return book


async def hits(book: Book, query: str, **more: Any) -> list[dict[str, Any]]:
    answer = await book.post("search", query_text=query, min_confidence=0, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]


@pytest.mark.parametrize("query", FOREIGN)
async def test_unrelated_texts_score_near_zero(book: Book, query: str) -> None:
    found = await hits(book, query, explain=True)
    assert len(found) == len(FLIGHTS)
    assert {hit["match"] for hit in found} == {"none"}
    assert max(hit["combined_score"] for hit in found) < 0.2
    assert all(hit["explain"]["cosine"] < 0.5 for hit in found)
    for least in ("weak", "strong"):
        assert await hits(book, query, min_match=least) == []


async def test_match_of_a_hit(book: Book) -> None:
    first, *others = await hits(book, ABOUT_FLIGHTS)
    assert first["bullet"]["content"] == FLIGHTS[1]
    assert first["match"] == "strong"
    assert {hit["match"] for hit in others} <= {"weak", "none"}
    strong = await hits(book, ABOUT_FLIGHTS, min_match="strong")
    assert [hit["bullet"]["id"] for hit in strong] == [first["bullet"]["id"]]


async def test_match_does_not_depend_on_the_fusion(book: Book) -> None:
    """The scores of `minmax` and `rrf` are relative to this search; `match` is not."""
    by_fusion = [
        {hit["bullet"]["id"]: hit["match"] for hit in await hits(book, ABOUT_FLIGHTS, **how)}
        for how in ({}, {"fusion": "minmax"}, {"fusion": "rrf"}, {"alpha": 1.0}, {"explain": True})
    ]
    assert all(each == by_fusion[0] for each in by_fusion)
    assert set(by_fusion[0].values()) > {"strong"}
    for fusion in ("minmax", "rrf"):
        assert {hit["match"] for hit in await hits(book, "refund", fusion=fusion)} == {"none"}


async def test_scores_do_not_depend_on_the_best_hit(book: Book) -> None:
    """A better bullet lowers no other score by more than its share in the rarity of the words."""
    before = {hit["bullet"]["id"]: hit["combined_score"] for hit in await hits(book, "a refund")}
    content = "A refund needs the reservation."
    await book.deltas({"type": "ADD", "section": "mis", "content": content})
    best, *others = await hits(book, "a refund")
    assert (best["bullet"]["content"], best["match"]) == (content, "strong")
    for hit in others:
        assert hit["combined_score"] == pytest.approx(before[hit["bullet"]["id"]], abs=0.01)


async def test_min_match_of_a_render(book: Book) -> None:
    async def keys(query: str, **more: Any) -> list[str]:
        answer = await book.post("render", query_text=query, **more)
        return answer.json()["bullet_keys"]

    large = {"top_k": len(FLIGHTS)}
    assert len(await keys("refund", **large)) == len(FLIGHTS)
    assert len(await keys("refund", min_match="weak")) == len(FLIGHTS), "all of them fit"
    assert await keys("refund", min_match="weak", **large) == []
    assert len(await keys(ABOUT_FLIGHTS, min_match="strong", **large)) == 1


async def test_an_empty_query_has_no_match(book: Book) -> None:
    found = await hits(book, "", min_match="strong")
    assert [hit["match"] for hit in found] == [None] * len(FLIGHTS)


async def test_match_of_memories_of_any_status(api: AsyncClient) -> None:
    """Inactive memories are ranked in Python, by the same formula."""
    ids = [await new_memory(api, content) for content in FLIGHTS]

    async def search(status: str) -> list[tuple[str, str | None, float]]:
        body = {"query_text": ABOUT_FLIGHTS, "status": status}
        results = (await api.post("/api/v1/search", json=body)).json()["results"]
        return [(h["memory"]["id"], h["match"], round(h["combined_score"], 2)) for h in results]

    active = await search("active")
    for memory_id in ids:
        await api.patch(f"/api/v1/memories/{memory_id}", json={"status": "archived"})
    assert await search("archived") == active
    assert active[0][:2] == (ids[1], "strong")


async def test_unknown_match_is_rejected(book: Book) -> None:
    answer = await book.post("search", query_text="x", min_match="good")
    assert answer.status_code == 422
    assert "'strong', 'weak' or 'none'" in answer.text
