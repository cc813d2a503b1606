"""Spec 5, "Storage": every documented field, read back from the rows themselves (S5.5, S5.20,
S5.24 to S5.26, S5.54), one episode a trace, and observation_count."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from httpx2 import AsyncClient

from tests.conftest import TestTenant
from tests.spec.conftest import Rows

GENERATE = "/api/v1/reflections/generate"


async def generated(api: AsyncClient, run: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = await api.post(GENERATE, json=run | more)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_every_documented_field_is_a_column(
    api: AsyncClient, tenant: TestTenant, rows: Rows, timeout_run: Any
) -> None:
    session = str(uuid4())
    body = await generated(api, timeout_run, session_id=session)
    reflection, strategy = await rows("select * from memories where layer = 'rm' order by seq")
    assert str(reflection["id"]) == body["reflection_id"]
    assert str(strategy["id"]) == body["strategy_id"]
    assert (reflection["content"], strategy["content"]) == (
        body["reflection_text"],
        body["strategy_text"],
    )
    assert (reflection["kind"], strategy["kind"]) == ("reflection", "strategy")
    for row in (reflection, strategy):
        assert row["tenant_id"] == tenant.id
        assert row["project_id"] == "default"
        assert row["source"] == "reflection_engine_v2"
        assert row["layer"] == "rm"
        assert row["confidence"] == pytest.approx(body["confidence"])
        assert row["error_category"] == "timeout_error"
        assert row["outcome"] == "timeout"
        assert row["session_id"] == session
        assert row["source_event_ids"] == body["source_event_ids"]
        assert str(row["trace_id"]) == body["trace_id"]
        assert str(row["change_run_id"]) == body["run_id"]
        assert row["metadata"]["outcome"] == "timeout"
        assert row["metadata"]["task_description"] == "Fetch customer order history"
        assert row["metadata"]["event_count"] == 2
        assert row["metadata"]["session_id"] == session


async def test_strategy_has_tag_and_higher_importance(
    api: AsyncClient, rows: Rows, timeout_run: Any
) -> None:
    body = await generated(api, timeout_run)
    reflection, strategy = await rows("select * from memories where layer = 'rm' order by seq")
    assert reflection["tags"] == body["tags"]
    assert strategy["tags"] == [*body["tags"], "strategy"]
    assert reflection["importance"] == pytest.approx(body["importance"])
    assert strategy["importance"] == pytest.approx(min(1.0, body["importance"] * 1.1))


async def test_events_are_stored_unchanged(api: AsyncClient, rows: Rows, timeout_run: Any) -> None:
    await generated(api, timeout_run)
    first, second = await rows("select * from trace_events order by seq")
    assert (first["event_id"], first["event_type"]) == ("e1", "tool_call")
    assert first["content"] == "Called database query with complex JOIN"
    assert first["metadata"] == {"tool": "postgres_query"}
    assert first["timestamp"].isoformat() == "2026-01-02T03:04:05+00:00"
    assert second["error"] == {"message": "Timeout", "code": "QUERY_TIMEOUT"}
    (trace,) = await rows("select * from traces")
    assert trace["error"] == timeout_run["error"]
    assert trace["task_goal"] == "Retrieve all orders for customer analysis"


async def test_related_memories_are_linked(api: AsyncClient, rows: Rows, timeout_run: Any) -> None:
    known = await api.post("/api/v1/memories", json={"content": "orders has 40 million rows"})
    body = await generated(api, timeout_run, related_memory_ids=[known.json()["id"]])
    links = await rows(
        "select source_id, target_id from memory_links where relation = 'related_to'"
    )
    assert [(str(x["source_id"]), str(x["target_id"])) for x in links] == [
        (body["reflection_id"], known.json()["id"])
    ]


async def test_trace_has_one_episode_after_repeated_reflection(
    api: AsyncClient, tenant: TestTenant, rows: Rows, drain: Any, timeout_run: Any
) -> None:
    opened = {k: v for k, v in timeout_run.items() if k not in {"outcome", "error", "tenant_id"}}
    sent = await api.post("/api/v1/traces", json=opened)
    trace_id = sent.json()["trace_id"]
    for outcome in (
        {"outcome": "timeout"},
        {"outcome": "timeout", "test_report": "E   assert 1 == 2"},
    ):
        told = await api.post(f"/api/v1/traces/{trace_id}/outcome", json=outcome)
        assert told.status_code == 200, told.text
        assert await drain(tenant.id) == 2, "evaluated, then reflected on"
    assert len(await rows("select id from runs where kind = 'reflect' and state = 'done'")) == 2
    (episode,) = await rows("select * from memories where layer = 'em'")
    assert (episode["kind"], episode["key"]) == ("episode", trace_id)
    assert str(episode["trace_id"]) == trace_id
    assert "Fetch customer order history" in episode["content"]


async def test_repeated_reflection_increments_observations_without_row(
    api: AsyncClient, rows: Rows, timeout_run: Any
) -> None:
    first = await generated(api, timeout_run, external_id="a")
    second = await generated(api, timeout_run, external_id="b")
    assert (first["result"], second["result"]) == ("stored", "already_known")
    assert second["reflection_id"] == first["reflection_id"]
    assert second["strategy_id"] == first["strategy_id"]
    kept = await rows("select observation_count from memories where layer = 'rm'")
    assert [row["observation_count"] for row in kept] == [2, 2]
    assert len(await rows("select id from memories where layer = 'em'")) == 2
    links = await rows(
        "select source_id from memory_links"
        " where relation = 'derived_from' and target_kind = 'trace'"
        f" and source_id = '{first['reflection_id']}'"
    )
    assert len(links) == 2


async def test_other_project_stores_its_own_memory(
    api: AsyncClient, rows: Rows, timeout_run: Any
) -> None:
    first = await generated(api, timeout_run, project_id="a")
    second = await generated(api, timeout_run, project_id="b")
    assert second["result"] == "stored"
    assert second["reflection_id"] != first["reflection_id"]
