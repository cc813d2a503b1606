"""POST /api/v1/search: what it finds, its filters, its scores."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient

from tests.support.api_calls import new_memory
from tests.support.problems import assert_names, assert_problem

TEXTS = {
    "timeout": "The database query ran into a timeout after thirty seconds",
    "refund": "A refund needs a delivered order",
    "cache": "Look into the cache before asking the server",
    "japanese": "注文が保留中の場合は返金できません",
}


async def hits(api: AsyncClient, query_text: str, **more: Any) -> list[dict[str, Any]]:
    answer = await api.post("/api/v1/search", json={"query_text": query_text} | more)
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]


async def names(api: AsyncClient, query_text: str, **more: Any) -> list[str]:
    return [hit["memory"]["title"] for hit in await hits(api, query_text, **more)]


@pytest.fixture
async def memories(api: AsyncClient) -> dict[str, str]:
    return {
        name: await new_memory(
            api,
            content,
            title=name,
            kind="strategy" if name == "cache" else "reflection",
            tags=[name, "all"],
            importance=0.9 if name == "refund" else 0.3,
        )
        for name, content in TEXTS.items()
    }


@pytest.mark.usefixtures("memories")
@pytest.mark.parametrize("fusion", ["anchored", "minmax", "rrf"])
@pytest.mark.parametrize("alpha", [None, 0, 0.4, 1])
@pytest.mark.parametrize(
    ("query", "first"),
    [("database timeout", "timeout"), ("REFUND delivered", "refund"), ("返金", "japanese")],
)
async def test_best_match_comes_first(api, fusion: str, alpha, query: str, first: str) -> None:
    found = await hits(api, query, fusion=fusion, alpha=alpha, explain=True)
    assert found[0]["memory"]["title"] == first
    scores = [hit["combined_score"] for hit in found]
    assert scores == sorted(scores, reverse=True)
    weight = {"anchored": 0.3, "minmax": 0.5, "rrf": 0.5}[fusion] if alpha is None else alpha
    for hit in found:
        expected = weight * hit["vector_score"] + (1 - weight) * hit["bm25_score"]
        assert hit["combined_score"] == pytest.approx(expected, abs=1e-5)
        assert -1.01 <= hit["explain"]["cosine"] <= 1.01
        assert hit["explain"]["bm25"] >= 0


@pytest.mark.usefixtures("memories")
async def test_explanation_only_on_request(api: AsyncClient) -> None:
    assert {hit["explain"] for hit in await hits(api, "cache")} == {None}


@pytest.mark.usefixtures("memories")
async def test_search_filters(api: AsyncClient) -> None:
    assert set(await names(api, "order")) == set(TEXTS)
    assert await names(api, "order", kinds=["strategy"]) == ["cache"]
    assert await names(api, "order", layers=["sm"]) == []
    assert len(await names(api, "order", layers=["rm", "em"])) == 4
    assert set(await names(api, "order", tags=["refund", "cache"])) == {"refund", "cache"}
    assert await names(api, "order", tags=["nobody"]) == []
    assert await names(api, "order", min_importance=0.9) == ["refund"]
    assert await names(api, "order", min_importance=0.91) == []
    assert len(await names(api, "order", min_confidence=0.5)) == 4
    assert await names(api, "order", min_confidence=0.51) == []
    assert await names(api, "order", error_categories=["tool_error"]) == []
    assert await names(api, "order", section_filter=["nobody"]) == []
    assert await names(api, "order", project_id="nobody") == []
    assert len(await names(api, "order", since="2020-01-01T00:00:00Z")) == 4
    assert await names(api, "order", until="2020-01-01T00:00:00Z") == []
    assert await names(api, "order", since="2999-01-01T00:00:00", until="2000-01-01") == []


@pytest.mark.usefixtures("memories")
async def test_filters_apply_without_query(api: AsyncClient) -> None:
    assert set(await names(api, "")) == set(TEXTS)
    assert (await names(api, ""))[0] == "refund"
    assert await names(api, "", kinds=["strategy"]) == ["cache"]
    assert await names(api, "", tags=["refund", "nobody"]) == ["refund"]
    assert await names(api, "", min_importance=0.9) == ["refund"]
    assert await names(api, "", until="2020-01-01T00:00:00Z") == []
    assert await names(api, "", top_k=1) == ["refund"]
    assert {hit["combined_score"] for hit in await hits(api, "")} == {0.0}


@pytest.mark.usefixtures("memories")
async def test_top_k_limits_results(api: AsyncClient) -> None:
    for k in (0, 1, 3, 4, 1000):
        assert len(await hits(api, "order", top_k=k)) == min(k, 4)


@pytest.mark.usefixtures("memories")
@pytest.mark.parametrize("query", ["!!!", "   ", "\u200b", "\0", "😀", "の" * 10_000, "a" * 10_000])
async def test_unusual_queries_are_answered(api: AsyncClient, query: str) -> None:
    assert len(await hits(api, query)) <= 4


async def test_search_without_memories_is_empty(api: AsyncClient) -> None:
    assert await hits(api, "anything") == []
    assert await hits(api, "") == []


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"query_text": "x" * 10_001}, "query_text"),
        ({"query_text": None}, "query_text"),
        ({"query_text": 7}, "query_text"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 1001}, "top_k"),
        ({"top_k": 10**30}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"top_k": "many"}, "top_k"),
        ({"alpha": 1.1}, "alpha"),
        ({"alpha": -0.1}, "alpha"),
        ({"fusion": "none"}, "fusion"),
        ({"kinds": ["x"]}, "kinds.0"),
        ({"kinds": ["chunk"] * 8}, "kinds"),
        ({"layers": ["x"]}, "layers.0"),
        ({"layers": [{}]}, "layers.0"),
        ({"tags": ["x"] * 65}, "tags"),
        ({"min_confidence": 2}, "min_confidence"),
        ({"since": "x"}, "since"),
        ({"until": "9999-12-31T23:59:59-12:00"}, "until"),
        ({"playbook": "x" * 129}, "playbook"),
        ({"playbook": "../../etc/passwd"}, "playbook"),
        ({"section_filter": ["x" * 129]}, "section_filter.0"),
        ({"section_filter": ["x"] * 65}, "section_filter"),
        ({"status": "deleted"}, "status"),
        ({"project_id": "x" * 129}, "project_id"),
        ({"explain": "x"}, "explain"),
    ],
)
async def test_invalid_field_is_reported(api: AsyncClient, more, field: str) -> None:
    answer = await api.post("/api/v1/search", json={"query_text": "x"} | more)
    assert_names(answer, field)


async def test_project_and_dataset_are_aliases(api: AsyncClient) -> None:
    await new_memory(api, "somewhere", title="here", project="p")
    assert await names(api, "somewhere", project="p") == ["here"]


async def test_unknown_playbook_is_reported_and_not_created(api: AsyncClient) -> None:
    for name in ("playbook", "dataset"):
        answer = await api.post("/api/v1/search", json={"query_text": "x", name: "nobody"})
        assert_problem(answer, 404, "not_found")
    assert (await api.get("/api/v1/playbooks")).json()["items"] == []
