"""Memories over HTTP: brought, read, changed, forgotten, with their history."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from httpx2 import AsyncClient

from tests.support.api_calls import count, new_key, new_memory, new_trace
from tests.support.problems import assert_names, assert_problem, without_instance

FULL = {
    "kind": "strategy",
    "content": "  Ask first.\r\nThen act. e\u0301 é ﬁ ",
    "title": "Asking",
    "when_to_use": "When in doubt",
    "keywords": ["ask"],
    "tags": ["care", "ask"],
    "importance": 0.25,
    "confidence": 1.0,
    "source": "a person",
    "session_id": "s",
    "metadata": {"a": [1, None, {"b": "c"}]},
    "reason": "seen often",
}


async def found(api: AsyncClient, query_text: str, **more: object) -> list[str]:
    body = {"query_text": query_text, "top_k": 1000} | more
    answer = await api.post("/api/v1/search", json=body)
    assert answer.status_code == 200, answer.text
    return [hit["memory"]["id"] for hit in answer.json()["results"]]


async def listed(api: AsyncClient, query: str = "") -> list[str]:
    answer = await api.get(f"/api/v1/memories{query}")
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


async def test_created_memory_is_returned(api: AsyncClient) -> None:
    trace_id = await new_trace(api)
    answer = await api.post("/api/v1/memories", json=FULL | {"trace_id": trace_id})
    assert answer.status_code == 201
    body = answer.json()
    assert answer.headers["location"] == f"/api/v1/memories/{body['id']}"
    back = (await api.get(answer.headers["location"])).json()
    assert body == back | {"sanitized": False}
    assert {name: back[name] for name in FULL if name != "reason"} == {
        name: value for name, value in FULL.items() if name != "reason"
    }
    assert back["trace_id"] == trace_id
    assert (back["layer"], back["status"], back["revision"]) == ("rm", "active", 1)
    assert (back["helpful"], back["harmful"], back["confidence_score"]) == (0, 0, 0.5)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "content"),
        ({"content": ""}, "content"),
        ({"content": "x" * 100_001}, "content"),
        ({"content": 5}, "content"),
        ({"content": "x", "kind": "thought"}, "kind"),
        ({"content": "x", "importance": 1.01}, "importance"),
        ({"content": "x", "importance": -0.01}, "importance"),
        ({"content": "x", "importance": "high"}, "importance"),
        ({"content": "x", "importance": None}, "importance"),
        ({"content": "x", "confidence": 2}, "confidence"),
        ({"content": "x", "tags": ["t"] * 65}, "tags"),
        ({"content": "x", "tags": ["t" * 65]}, "tags.0"),
        ({"content": "x", "tags": [""]}, "tags.0"),
        ({"content": "x", "tags": "t"}, "tags"),
        ({"content": "x", "tags": [1]}, "tags.0"),
        ({"content": "x", "keywords": ["t"] * 65}, "keywords"),
        ({"content": "x", "title": "t" * 129}, "title"),
        ({"content": "x", "source": "t" * 129}, "source"),
        ({"content": "x", "session_id": "t" * 129}, "session_id"),
        ({"content": "x", "project_id": "t" * 129}, "project_id"),
        ({"content": "x", "project_id": ""}, "project_id"),
        ({"content": "x", "when_to_use": "t" * 10_001}, "when_to_use"),
        ({"content": "x", "metadata": []}, "metadata"),
        ({"content": "x", "trace_id": "x"}, "trace_id"),
        ({"content": "x", "status": "deleted"}, "status"),
        ({"content": "x", "helpful": 100}, "helpful"),
    ],
)
async def test_invalid_field_is_reported(api, tenant, runtime, body, field: str) -> None:
    assert_names(await api.post("/api/v1/memories", json=body), field)
    rows = await count(runtime, tenant.id)
    assert rows["memories"] == rows["memory_vectors"] == rows["postings"] == 0


async def test_limits_are_inclusive(api: AsyncClient) -> None:
    body = {
        "content": "word " * 20_000,
        "title": "t" * 128,
        "tags": [f"{n:064}" for n in range(64)],
        "keywords": [f"k{n:063}" for n in range(64)],
        "when_to_use": "w" * 10_000,
        "importance": 1,
        "confidence": 0,
    }
    back = await api.post("/api/v1/memories", json=body)
    assert back.status_code == 201, back.text
    assert {name: back.json()[name] for name in body} == body


@pytest.mark.parametrize("tiny", [1e-300, 5e-324, 1e-46, 1e-38, 0.0, 1e-37])
async def test_tiny_score_becomes_zero(api: AsyncClient, tiny: float) -> None:
    answer = await api.post("/api/v1/memories", json={"content": "x", "importance": tiny})
    assert answer.status_code == 201, answer.text
    assert answer.json()["importance"] == (tiny if tiny == 1e-37 else 0)
    assert await found(api, "x", min_importance=tiny, min_confidence=tiny, alpha=tiny)


async def test_content_without_words_is_stored(api: AsyncClient) -> None:
    for content in ("!!!", "\u200b", "😀", "\u0301", "。"):
        memory_id = await new_memory(api, content)
        assert (await api.get(f"/api/v1/memories/{memory_id}")).json()["content"] == content
        assert memory_id in await found(api, "")


async def test_update_is_searchable_at_once(api: AsyncClient) -> None:
    memory_id = await new_memory(api, "Refund only delivered orders", tags=["retail"])
    await new_memory(api, "An entirely different remark about weather")
    assert (await found(api, "refund delivered"))[0] == memory_id
    patch = {"content": "Cancel pending orders", "tags": ["cancel"], "reason": "policy changed"}
    answer = await api.patch(f"/api/v1/memories/{memory_id}", json=patch)
    assert answer.status_code == 200
    assert answer.json()["content"] == "Cancel pending orders"
    assert answer.json()["revision"] == 2
    assert (await found(api, "cancel pending"))[0] == memory_id
    assert await found(api, "cancel", tags=["retail"]) == []
    assert await found(api, "cancel", tags=["cancel"]) == [memory_id]
    body = {"query_text": "refund delivered", "explain": True}
    hits = (await api.post("/api/v1/search", json=body)).json()["results"]
    assert all(hit["explain"]["bm25"] == 0 for hit in hits)


async def test_history_has_actor_change_and_reason(api: AsyncClient) -> None:
    memory_id = await new_memory(api, "one", reason="first")
    url = f"/api/v1/memories/{memory_id}"
    await api.patch(url, json={"content": "two", "reason": "second"})
    await api.patch(url, json={"importance": 0.9})
    await api.patch(url, json={"status": "archived", "reason": "old"})
    history = (await api.get(f"{url}/revisions")).json()["items"]
    assert [r["revision"] for r in history] == [1, 2, 3, 4]
    assert [r["content"] for r in history] == ["one", "two", "two", "two"]
    assert [r["importance"] for r in history] == [0.5, 0.5, 0.9, 0.9]
    assert [r["status"] for r in history] == ["active"] * 3 + ["archived"]
    assert [r["reason"] for r in history] == ["first", "second", None, "old"]
    assert all(r["actor"].startswith("key:") for r in history)


async def test_unchanged_update_makes_no_revision(api: AsyncClient) -> None:
    memory_id = await new_memory(api, "same", tags=["t"])
    url = f"/api/v1/memories/{memory_id}"
    for patch in ({}, {"content": "same"}, {"tags": ["t"]}, {"reason": "no reason"}):
        answer = await api.patch(url, json=patch)
        assert answer.status_code == 200
        assert answer.json()["revision"] == 1
    assert len((await api.get(f"{url}/revisions")).json()["items"]) == 1
    assert await found(api, "same") == [memory_id]


@pytest.mark.parametrize("status", ["quarantined", "archived"])
async def test_inactive_memory_is_kept_and_not_found(api: AsyncClient, status: str) -> None:
    memory_id = await new_memory(api, "Set aside for a while")
    url = f"/api/v1/memories/{memory_id}"
    await api.patch(url, json={"status": status})
    assert (await api.get(url)).json()["status"] == status
    assert await found(api, "Set aside") == []
    assert await found(api, "") == []
    assert await listed(api) == []
    assert await listed(api, f"?status={status}") == [memory_id]
    await api.patch(url, json={"content": "Changed while set aside"})
    assert await found(api, "Changed") == []
    await api.patch(url, json={"status": "active"})
    assert await found(api, "Changed aside") == [memory_id]


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"content": None}, "content"),
        ({"content": ""}, "content"),
        ({"tags": None}, "tags"),
        ({"keywords": None}, "keywords"),
        ({"importance": None}, "importance"),
        ({"importance": 7}, "importance"),
        ({"status": None}, "status"),
        ({"status": "deleted"}, "status"),
        ({"pinned": None}, "pinned"),
        ({"pinned": "maybe"}, "pinned"),
        ({"kind": "bullet"}, "kind"),
        ({"helpful": 5}, "helpful"),
        ({"title": ""}, "title"),
        ({"reason": "x" * 2001}, "reason"),
    ],
)
async def test_invalid_update_is_reported_and_changes_nothing(api, patch, field: str) -> None:
    memory_id = await new_memory(api, "steady", title="Title")
    url = f"/api/v1/memories/{memory_id}"
    before = (await api.get(url)).json()
    answer = await api.patch(url, json={"when_to_use": "always"} | patch)
    assert_names(answer, field)
    assert (await api.get(url)).json() == before
    assert await found(api, "steady") == [memory_id]


async def test_optional_text_can_be_removed(api: AsyncClient) -> None:
    memory_id = await new_memory(api, "x", title="Zebra", when_to_use="Giraffe")
    url = f"/api/v1/memories/{memory_id}"
    answer = await api.patch(url, json={"title": None, "when_to_use": None})
    assert (answer.json()["title"], answer.json()["when_to_use"]) == (None, None)
    body = {"query_text": "zebra giraffe", "explain": True}
    hits = (await api.post("/api/v1/search", json=body)).json()["results"]
    assert [hit["explain"]["bm25"] for hit in hits] == [0]


async def test_deletion_is_soft_and_final(api: AsyncClient, tenant, runtime) -> None:
    memory_id = await new_memory(api, "Forget me soon")
    url = f"/api/v1/memories/{memory_id}"
    answer = await api.delete(f"{url}?reason=asked%20to")
    assert answer.status_code == 204
    assert answer.content == b""
    for method, path, body in (
        ("GET", url, None),
        ("GET", f"{url}/links", None),
        ("PATCH", url, {"content": "back?"}),
        ("DELETE", url, None),
    ):
        assert_problem(await api.request(method, path, json=body), 404, "not_found")
    assert await found(api, "Forget") == []
    assert await found(api, "") == []
    assert await listed(api) == []
    assert_names(await api.get("/api/v1/memories?status=deleted"), "status")
    history = (await api.get(f"{url}/revisions")).json()["items"]
    assert [(r["status"], r["reason"]) for r in history] == [
        ("active", None),
        ("deleted", "asked to"),
    ]
    rows = await count(runtime, tenant.id)
    assert (rows["memories"], rows["memory_vectors"], rows["postings"]) == (1, 0, 0)


async def test_inactive_memory_can_be_deleted(api: AsyncClient) -> None:
    memory_id = await new_memory(api, "first archived, then forgotten")
    url = f"/api/v1/memories/{memory_id}"
    await api.patch(url, json={"status": "archived"})
    assert (await api.delete(url)).status_code == 204
    assert await listed(api, "?status=archived") == []


async def test_links_are_listed_in_both_directions(api: AsyncClient, tenant, drain) -> None:
    related = await new_memory(api, "known before")
    trace_id = await new_trace(api, reflect="always", related_memory_ids=[related])
    await drain(tenant.id)
    lessons = (await api.get("/api/v1/memories?kind=reflection&layer=rm")).json()["items"]
    lesson = next(item for item in lessons if item["id"] != related)
    links = (await api.get(f"/api/v1/memories/{lesson['id']}/links")).json()["items"]
    assert ("derived_from", "trace", trace_id) in {
        (link["relation"], link["target_kind"], link["target_id"]) for link in links
    }
    back = (await api.get(f"/api/v1/memories/{related}/links")).json()["items"]
    assert [(link["source_id"], link["relation"]) for link in back] == [
        (lesson["id"], "related_to")
    ]


async def test_lists_are_filtered(api: AsyncClient) -> None:
    ids = {
        name: await new_memory(api, name, **more)
        for name, more in {
            "a": {"tags": ["x"]},
            "b": {"kind": "insight", "tags": ["x", "y"]},
            "c": {"kind": "chunk"},
            "d": {"project_id": "other"},
        }.items()
    }
    assert await listed(api) == [ids["c"], ids["b"], ids["a"]]
    assert await listed(api, "?kind=insight&kind=chunk") == [ids["c"], ids["b"]]
    assert await listed(api, "?layer=sm") == [ids["c"]]
    assert await listed(api, "?layer=reflective") == [ids["b"], ids["a"]]
    assert await listed(api, "?tag=y&tag=nobody") == [ids["b"]]
    assert await listed(api, "?project_id=other") == [ids["d"]]
    assert await listed(api, f"?trace_id={uuid4()}") == []
    for query, field in (
        ("?kind=x", "kind.0"),
        ("?layer=x", "layer.0"),
        ("?status=x", "status"),
        ("?trace_id=x", "trace_id"),
        ("?" + "&".join(["tag=a"] * 65), "tag"),
    ):
        assert_names(await api.get(f"/api/v1/memories{query}"), field)


async def test_key_of_project_does_not_see_other_projects(api: AsyncClient) -> None:
    mine = await new_memory(api, "mine", project_id="mine")
    other = await new_memory(api, "other", project_id="other")
    bound = await new_key(api, "write", project_id="mine")
    listing = (await api.get("/api/v1/memories", headers=bound)).json()["items"]
    assert [item["id"] for item in listing] == [mine]
    answer = await api.get("/api/v1/memories?project_id=other", headers=bound)
    assert_names(answer, "project_id", 403)
    made = await api.post("/api/v1/memories", json={"content": "new"}, headers=bound)
    assert made.json()["project_id"] == "mine"
    for body in ({"content": "x", "project_id": "other"}, {"content": "x", "project": "other"}):
        answer = await api.post("/api/v1/memories", json=body, headers=bound)
        assert_names(answer, "project_id", 403)
    answer = await api.post(
        "/api/v1/search", json={"query_text": "other", "project_id": "other"}, headers=bound
    )
    assert_names(answer, "project_id", 403)
    for method, tail, body in (
        ("GET", "", None),
        ("PATCH", "", {"content": "x"}),
        ("DELETE", "", None),
        ("GET", "/revisions", None),
        ("GET", "/links", None),
    ):
        answers = [
            await api.request(method, f"/api/v1/memories/{which}{tail}", json=body, headers=bound)
            for which in (other, UUID(int=5))
        ]
        assert_problem(answers[0], 404, "not_found")
        assert without_instance(answers[0]) == without_instance(answers[1])
    assert (await api.get(f"/api/v1/memories/{other}")).json()["content"] == "other"


async def test_invalid_id_is_reported(api: AsyncClient) -> None:
    for tail in ("", "/revisions", "/links"):
        assert_names(await api.get(f"/api/v1/memories/x{tail}"), "memory_id")
