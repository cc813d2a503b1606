"""POST /api/v1/search over a whole project: all its playbooks, and whatever else it remembers."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient, Response

from tests.support.api_calls import new_memory
from tests.support.playbook_api import Book
from tests.support.problems import assert_names, assert_problem

SAID = {
    "retail": ("pat", "Look up the order before a refund"),
    "客服": ("mis", "返金の前に注文番号を確認する"),
    "airline": ("oth", "A refund of a flight needs its seat"),
}


@pytest.fixture
async def books(api: AsyncClient) -> dict[str, Book]:
    made = {name: Book(api, name) for name in SAID}
    for name, (section, content) in SAID.items():
        await made[name].deltas(
            {"type": "ADD", "section": section, "content": content, "tags": [name]}
        )
    return made


async def find(api: AsyncClient, query_text: str, **more: Any) -> list[dict[str, Any]]:
    answer = await api.post("/api/v1/search", json={"query_text": query_text} | more)
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]


def names(hits: list[dict[str, Any]]) -> list[str | None]:
    return [hit["playbook"] for hit in hits]


@pytest.mark.usefixtures("books")
async def test_search_finds_bullets_of_every_playbook(api: AsyncClient) -> None:
    for query in ("refund", ""):
        assert set(names(await find(api, query, kinds=["bullet"]))) == set(SAID)
    assert names(await find(api, "a seat in a flight", kinds=["bullet"], top_k=1)) == ["airline"]
    assert names(await find(api, "注文番号", kinds=["bullet"], top_k=1)) == ["客服"]
    assert set(names(await find(api, "refund", layers=["rm"]))) == set(SAID)
    assert await find(api, "refund", kinds=["bullet"], project_id="elsewhere") == []
    assert await find(api, "refund", kinds=["reflection"]) == []


@pytest.mark.usefixtures("books")
async def test_bullets_and_memories_are_ranked_together(api: AsyncClient) -> None:
    await new_memory(api, "The refund failed: the order was pending", title="why")
    hits = await find(api, "refund of a pending order", explain=True)
    assert len(hits) == 4
    assert (hits[0]["playbook"], hits[0]["memory"]["title"]) == (None, "why")
    scores = [hit["combined_score"] for hit in hits]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.usefixtures("books")
async def test_filters_hold_over_all_playbooks(api: AsyncClient) -> None:
    async def filtered(**more: Any) -> list[str | None]:
        return names(await find(api, "refund 返金", kinds=["bullet"], **more))

    assert await filtered(playbook="retail") == ["retail"]
    assert await filtered(section_filter=["OTHERS"]) == ["airline"]
    assert set(await filtered(section_filter=["OTHERS", "MISTAKES TO AVOID"])) == {
        "airline",
        "客服",
    }
    assert await filtered(tags=["客服"]) == ["客服"]
    assert await filtered(tags=["nobody"]) == []
    assert await filtered(min_confidence=0.51) == []
    assert await filtered(since="2999-01-01T00:00:00Z") == []
    assert len(await filtered(until="2999-01-01T00:00:00Z")) == 3


async def test_inactive_and_deleted_bullets_are_not_found(
    api: AsyncClient, books: dict[str, Book]
) -> None:
    for name, status in (("retail", "quarantined"), ("airline", "archived")):
        (bullet,) = await books[name].bullets()
        url = f"{books[name].url}/bullets/{bullet['id']}"
        assert (await api.patch(url, json={"status": status})).is_success
    assert names(await find(api, "refund 返金", kinds=["bullet"])) == ["客服"]
    await api.delete(books["客服"].url)
    assert await find(api, "refund 返金", kinds=["bullet"]) == []
    assert await find(api, "", kinds=["bullet"]) == []


async def test_playbooks_of_other_tenants_are_not_found(
    api: AsyncClient, books: dict[str, Book], make_tenant: Any
) -> None:
    other = await make_tenant()
    answer = await api.post(
        "/api/v1/search", json={"query_text": "refund"}, headers=other.auth("read")
    )
    assert answer.json()["results"] == []


async def test_mixed_language_text_is_found(api: AsyncClient) -> None:
    """Arabic, Thai, Chinese, Japanese and English in one bullet: each of them finds it."""
    book = Book(api, "mixed")
    await book.deltas(
        {"type": "ADD", "content": "Retry 支払いが失敗したら تحقق من الرصيد แล้วลองใหม่ 先查询库存"},
        {"type": "ADD", "content": "Close the ticket 今日は終わり وداعا ลาก่อน 再见"},
    )
    for query in ("retry", "支払い", "الرصيد", "ลองใหม่", "查询库存", "retry الرصيد 库存"):
        (first, *_) = await find(api, query, kinds=["bullet"], top_k=1, explain=True)
        assert first["memory"]["key"] == "oth-00001", query
        assert first["explain"]["bm25"] > 0, query


async def test_unknown_playbook_finds_nothing(api: AsyncClient) -> None:
    async def search(playbook: str) -> Response:
        return await api.post("/api/v1/search", json={"query_text": "x", "playbook": playbook})

    assert_problem(await search("nope"), 404, "not_found")
    assert_names(await search("../../etc"), "playbook")
    await api.put("/api/v1/playbooks/empty", json={"bullets": []})
    assert (await search("empty")).json()["results"] == []


@pytest.mark.parametrize(
    ("url", "body", "field"),
    [
        ("trajectories/reflect", {"trajectory": {"query": "q"}, "dataset": "a/b"}, "dataset"),
        ("trajectories/reflect", {"trajectory": {"query": "q", "dataset": "a/b"}},
         "trajectory.dataset"),
        ("transcripts/reflect", {"messages": [], "playbook": "../x"}, "playbook"),
    ],
)  # fmt: skip
async def test_invalid_playbook_name_is_reported_by_field(
    api: AsyncClient, url: str, body: dict[str, Any], field: str
) -> None:
    answer = await api.post(f"/api/v1/{url}", json=body)
    fields = [error["field"] for error in assert_problem(answer, 422)["errors"]]
    assert any(name.startswith(field) for name in fields)
