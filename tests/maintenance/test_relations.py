"""Entities and clusters, and the search that follows them."""

from __future__ import annotations

from typing import Any

from httpx2 import AsyncClient
from sqlalchemy import select

from memory_api.maintenance.relations import find_entities
from memory_api.memories.tables import EntityRow, MemoryClusterRow
from tests.conftest import TestTenant


async def run_task(api: AsyncClient, drain: Any, tenant: TestTenant, name: str) -> Any:
    answer = await api.post(f"/api/v1/maintenance/{name}")
    await drain(tenant.id)
    run = (await api.get(answer.headers["location"])).json()
    assert run["state"] == "done", run
    return run["result"]


async def add(api: AsyncClient, content: str, **fields: Any) -> str:
    answer = await api.post("/api/v1/memories", json={"content": content} | fields)
    answer.raise_for_status()
    return answer.json()["id"]


def test_entities_of_a_text() -> None:
    text = "It edits src/app/main.py, then ./main.py, and runs pip install Numpy. See example.com."
    assert find_entities(text, "tool_error", ["refund", 3, "refund"]) == [
        ("tool", "refund"),
        ("error", "tool_error"),
        ("file", "src/app/main.py"),
        ("file", "main.py"),
        ("library", "numpy"),
    ]
    assert find_entities("(" * 20_000 + "a/" * 9_000, None, None) == []
    assert len(find_entities(" ".join(f"f{n}.py" for n in range(99)), None, None)) == 20


async def test_search_adds_related_memories(api, tenant, drain, runtime) -> None:
    found = await add(api, "Quarterly totals are read from report.csv", kind="insight")
    other = await add(api, "Umlauts break when report.csv is opened", kind="insight")
    await add(api, "Ask the customer for a receipt", kind="insight")
    used = {"tools": ["read_table"]}
    await add(api, "Open the table once", kind="chunk", metadata=used)
    await add(api, "Close the table", kind="episode", metadata=used)
    elsewhere = await add(api, "report.csv", kind="insight", project_id="elsewhere")
    assert await run_task(api, drain, tenant, "entities") == {
        "memories_read": 5,
        "mentions_added": 4,
    }
    assert (await run_task(api, drain, tenant, "entities"))["memories_read"] == 0
    body = {"query_text": "quarterly totals", "top_k": 1, "related": True}
    answer = (await api.post("/api/v1/search", json=body)).json()
    assert [hit["memory"]["id"] for hit in answer["results"]] == [found]
    (related,) = answer["related"]
    assert related["memory"]["id"] == other
    assert (related["related_to"], related["via"]) == ([found], ["file:report.csv"])
    assert (await api.post("/api/v1/search", json=body | {"related": False})).json()[
        "related"
    ] == []
    await api.post("/api/v1/erasures", json={"target_kind": "memory", "target_id": elsewhere})
    await drain(tenant.id)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = await session.execute(
            select(EntityRow.project_id, EntityRow.name).where(EntityRow.tenant_id == tenant.id)
        )
        assert {tuple(row) for row in rows} == {
            ("default", "report.csv"),
            ("default", "read_table"),
        }, "an entity is erased with its last memory"


async def test_words_of_a_template_join_no_tasks_with_other_tools(
    api, tenant, drain, runtime
) -> None:
    text = "The run failed because the call was sent twice without a change of its arguments"
    ids = [
        await add(api, f"{text}{end}", kind="reflection", metadata={"tools": tools})
        for end, tools in (
            (".", ["refund"]),
            (" now.", ["deploy", "rollback"]),
            (" now!", ["deploy"]),
        )
    ]
    await run_task(api, drain, tenant, "clusters")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = await session.execute(
            select(MemoryClusterRow.memory_id, MemoryClusterRow.cluster_id).where(
                MemoryClusterRow.tenant_id == tenant.id
            )
        )
        clusters = {str(memory_id): str(cluster_id) for memory_id, cluster_id in rows}
    assert clusters == dict.fromkeys(ids[1:], ids[1])


async def test_words_of_a_template_join_no_reflections_on_other_tasks(
    api, tenant, drain, runtime
) -> None:
    text = "Task: {}. Outcome: failure. The call e0000 of `run` failed: “Connection refused”."
    tasks = ("Water the tomatoes in bed 4", "Translate the contract", "Water the tomatoes in bed 5")
    ids = [
        await add(
            api,
            text.format(task),
            kind="reflection",
            metadata={"tools": ["run"], "task_description": task},
        )
        for task in tasks
    ]
    await run_task(api, drain, tenant, "clusters")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = await session.execute(
            select(MemoryClusterRow.memory_id).where(MemoryClusterRow.tenant_id == tenant.id)
        )
        assert {str(memory_id) for (memory_id,) in rows} == {ids[0], ids[2]}


async def test_similar_memories_are_one_cluster(api, tenant, drain, runtime) -> None:
    text = "Check that the order was delivered before you refund it"
    ids = [await add(api, f"{text}{end}", kind="strategy") for end in (".", "!", " now.")]
    await add(api, "Retry the upload with a shorter file name", kind="strategy")
    result = await run_task(api, drain, tenant, "clusters")
    assert result == {"memories_read": 4, "memories_clustered": 3}
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = await session.execute(
            select(MemoryClusterRow.memory_id, MemoryClusterRow.cluster_id).where(
                MemoryClusterRow.tenant_id == tenant.id
            )
        )
        clusters = {str(memory_id): str(cluster_id) for memory_id, cluster_id in rows}
    assert clusters == dict.fromkeys(ids, ids[0])
    body = {"query_text": "delivered", "top_k": 1, "related": True}
    answer = (await api.post("/api/v1/search", json=body)).json()
    assert {hit["memory"]["id"] for hit in answer["related"]} < set(ids)
    assert {via for hit in answer["related"] for via in hit["via"]} == {"cluster"}
