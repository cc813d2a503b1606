"""Tags are stored in lower case and found in any case."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from httpx2 import AsyncClient

from memory_api.core.schemas import fold_tags
from tests.conftest import Database, TestTenant
from tests.support.playbook_api import Book


def test_folded_tags_are_distinct() -> None:
    assert fold_tags(["VIP", "vip", "Ärger", "客服"]) == ["vip", "ärger", "客服"]


async def create(api: AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await api.post("/api/v1/memories", json={"content": "Ask for the invoice."} | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def found(api: AsyncClient, tag: str) -> list[list[str]]:
    """The IDs that the list, a search and a search without text find by this tag."""
    listed = (await api.get("/api/v1/memories", params={"tag": tag})).json()["items"]
    results = [[item["id"] for item in listed]]
    for query in ("invoice", ""):
        body = {"query_text": query, "tags": [tag], "min_importance": 0, "min_confidence": 0}
        answer = await api.post("/api/v1/search", json=body)
        assert answer.status_code == 200, answer.text
        results.append([hit["memory"]["id"] for hit in answer.json()["results"]])
    return results


@pytest.mark.parametrize("tag", ["vip", "VIP", "Vip"])
async def test_tag_is_found_in_any_case(api: AsyncClient, tag: str) -> None:
    memory = await create(api, tags=["ViP", "vip", "Other"])
    assert memory["tags"] == ["vip", "other"]
    assert await found(api, tag) == [[memory["id"]]] * 3
    assert await found(api, "nobody") == [[]] * 3


async def test_updated_tags_are_folded(api: AsyncClient) -> None:
    memory = await create(api)
    url = f"/api/v1/memories/{memory['id']}"
    assert (await api.patch(url, json={"tags": ["Late"]})).json()["tags"] == ["late"]
    assert await found(api, "LATE") == [[memory["id"]]] * 3


async def test_tags_stored_before_folding_are_found(
    api: AsyncClient, database: Database, tenant: TestTenant
) -> None:
    memory = await create(api, tags=["vip"])
    owner = await asyncpg.connect(database.url("postgres"))
    try:
        await owner.execute("set session_replication_role = replica")  # without a revision
        query = "update memories set tags = '{VIP}' where id = $1"
        assert await owner.execute(query, memory["id"]) == "UPDATE 1"
        query = "update labels set name = 'VIP' where tenant_id = $1 and name = 'vip'"
        assert await owner.execute(query, tenant.id) == "UPDATE 1"
    finally:
        await owner.close()
    assert await found(api, "vip") == [[memory["id"]]] * 3


async def test_tags_of_a_reflection_are_folded(api: AsyncClient) -> None:
    body = {"reflection_text": "The call timed out.", "tags": ["TimeOut"]}
    stored = (await api.post("/api/v1/reflections", json=body)).json()
    memory = (await api.get(f"/api/v1/memories/{stored['reflection_id']}")).json()
    assert memory["tags"] == ["timeout"]
    query = {"query_text": "call", "tags": ["TIMEOUT"], "min_importance": 0}
    hits = (await api.post("/api/v1/reflections/query", json=query)).json()["reflections"]
    assert [hit["id"] for hit in hits] == [stored["reflection_id"]]


async def test_tags_of_a_bullet_are_folded(api: AsyncClient) -> None:
    book = Book(api)
    made = await book.post("bullets", content="Ask first", section="pat", tags=["Mail", "MAIL"])
    assert made.status_code == 201, made.text
    assert [one["tags"] for one in await book.bullets()] == [["mail"]]
    await book.deltas({"type": "UPDATE", "bullet_id": "pat-00001", "tags": ["Post"]})
    assert [one["tags"] for one in await book.bullets()] == [["post"]]
    assert await book.search("ask", tags=["POST"], min_confidence=0) == ["pat-00001"]
    listed = await api.get(f"{book.url}/bullets", params={"tag": "pOST"})
    assert [one["id"] for one in listed.json()["items"]] == ["pat-00001"]
