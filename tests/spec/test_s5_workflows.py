"""Spec 5, "Core Workflows": what the engine makes of its input, and the documents' examples (S5.1,
S5.2 to S5.4, S5.16 to S5.19, S5.31, S5.38, S5.58)."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest
from httpx2 import AsyncClient

from memory_api.library.reflection_engine import NothingLearned, ReflectionEngineV2
from memory_api.llm.model_session import ModelSession
from memory_api.llm.registry import open_llm
from memory_api.reflection.evidence import Evidence
from memory_api.reflection.generate import GeneratedReflection, generate_reflection
from memory_api.reflection.schemas import ReflectionResult
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.traces.schemas import ErrorCategory, ErrorInfo, Event, EventType, OutcomeType
from tests.conftest import TestTenant
from tests.spec.conftest import Rows
from tests.support.stub_provider import StubProvider, answer

GENERATE = "/api/v1/reflections/generate"


async def reflect(engine: ReflectionEngineV2, run: dict[str, Any], **more: Any) -> ReflectionResult:
    return await engine.generate_reflection(ReflectionContext.model_validate(run | more))


async def test_documented_timeout_example(engine: ReflectionEngineV2, timeout_run: Any) -> None:
    result = await reflect(engine, timeout_run)
    assert "complex JOIN" in result.reflection_text
    assert "Query timeout after 30 seconds" in result.reflection_text
    assert result.strategy_text is not None
    assert "narrow or split" in result.strategy_text
    assert result.error_category is ErrorCategory.TIMEOUT_ERROR
    assert "timeout" in result.tags
    assert result.source_event_ids == ["e1", "e2"]


async def test_documented_cache_example_teaches_the_rules_nothing(
    engine: ReflectionEngineV2, cache_run: Any
) -> None:
    """Two events without a fault. What made the run succeed is a question for a model."""
    with pytest.raises(NothingLearned):
        await reflect(engine, cache_run)


async def test_documented_test_example(engine: ReflectionEngineV2, tenant: TestTenant) -> None:
    context = ReflectionContext(
        events=[Event(event_id="e1", event_type=EventType.ERROR_EVENT, content="Timeout")],
        outcome=OutcomeType.FAILURE,
        error=ErrorInfo(error_category=ErrorCategory.TIMEOUT_ERROR, error_message="Timeout"),
        tenant_id=tenant.slug,
        project_id="test-project",
    )
    result = await engine.generate_reflection(context)
    assert result.reflection_text
    assert result.importance > 0.0
    assert "timeout" in result.tags


async def test_plain_success_stores_the_episode_only(
    api: AsyncClient, rows: Rows, timeout_run: Any
) -> None:
    body = (await api.post(GENERATE, json=timeout_run | {"outcome": "success"})).json()
    assert (body["result"], body["reflection_text"]) == ("nothing_found", None)
    assert [row["kind"] for row in await rows("select kind from memories")] == ["episode"]


@pytest.mark.parametrize("outcome", [one for one in OutcomeType if one != "success"])
async def test_every_outcome_is_reflected_on_and_stored(
    api: AsyncClient, rows: Rows, timeout_run: Any, outcome: OutcomeType
) -> None:
    answer = await api.post(GENERATE, json=timeout_run | {"outcome": outcome.value})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["reflection_text"]
    assert body["result"] == "stored"
    (kept,) = await rows("select outcome, metadata from memories where kind = 'reflection'")
    assert kept["outcome"] == kept["metadata"]["outcome"] == outcome.value
    (trace,) = await rows("select outcome from traces")
    assert trace["outcome"] == outcome.value


@pytest.mark.parametrize("outcome", ["failure", "error", "timeout", "partial"])
async def test_failure_reflection_has_task_events_and_error(
    engine: ReflectionEngineV2, cache_run: Any, outcome: str
) -> None:
    """Without the error the same events say something else: what is stated is really used."""
    error = {"error_category": "permission_error", "error_message": "Quota of zebras exceeded"}
    told = await reflect(engine, cache_run, outcome=outcome, error=error)
    untold = await reflect(engine, cache_run, outcome=outcome)
    assert "Quota of zebras exceeded" in told.reflection_text
    assert "zebras" not in untold.reflection_text
    assert told.error_category is ErrorCategory.PERMISSION_ERROR
    assert untold.error_category is not ErrorCategory.PERMISSION_ERROR
    for result in (told, untold):
        assert "Semantic search for user query" in result.reflection_text
        assert "cached embeddings" in result.reflection_text


async def test_goal_replaces_missing_description(
    engine: ReflectionEngineV2, timeout_run: Any
) -> None:
    described = await reflect(engine, timeout_run)
    goal = await reflect(engine, timeout_run, task_description=None)
    assert timeout_run["task_description"] in described.reflection_text
    assert timeout_run["task_goal"] in goal.reflection_text
    assert timeout_run["task_goal"] not in described.reflection_text


@pytest.mark.parametrize(
    ("message", "category", "tag"),
    [
        ("Connection refused by db:5432", "network_error", "network"),
        ("Permission denied: /etc/shadow", "permission_error", "permission"),
        ("Query timeout after 30 seconds", "timeout_error", "timeout"),
    ],
)
async def test_category_and_tags_are_derived(
    engine: ReflectionEngineV2, timeout_run: Any, message: str, category: str, tag: str
) -> None:
    events = [
        {"event_type": "tool_call", "tool_name": "orders", "content": "orders(42)"},
        {"event_type": "error_event", "content": message},
    ]
    result = await reflect(engine, timeout_run, events=events, outcome="failure", error=None)
    assert result.error_category == category
    assert tag in result.tags
    assert "orders" in result.tags


@pytest.mark.parametrize(("error", "outcome"), [("lost the lock", "failure")])
async def test_agent_reports_after_task(
    engine: ReflectionEngineV2, tenant: TestTenant, rows: Rows, error: str | None, outcome: str
) -> None:
    """The integration of the document: collect events, choose the outcome by the error, generate,
    store."""
    context = ReflectionContext(
        events=[
            Event(event_type=EventType.TOOL_CALL, tool_name="lock", content="lock(orders)"),
            Event(event_type=EventType.TOOL_RESPONSE, tool_name="lock", content=error or "held"),
        ],
        outcome=OutcomeType.FAILURE if error else OutcomeType.SUCCESS,
        error=ErrorInfo(error_message=error) if error else None,
        task_description="User's task",
        tenant_id=tenant.slug,
        project_id="shop",
    )
    result = await engine.generate_reflection(context)
    ids = await engine.store_reflection(result, tenant.slug, "shop")
    kept = await rows("select id, project_id, outcome, content from memories order by seq")
    assert {str(row["id"]) for row in kept} == set(ids.values())
    assert {(row["project_id"], row["outcome"]) for row in kept} == {("shop", outcome)}
    assert kept[0]["content"] == result.reflection_text


async def test_generating_stores_nothing(
    engine: ReflectionEngineV2, timeout_run: Any, rows: Rows
) -> None:
    await reflect(engine, timeout_run)
    assert await rows("select id from memories") == []


async def test_interrupted_run_is_reported_as_such(
    engine: ReflectionEngineV2, cache_run: Any
) -> None:
    """The call was answered: only the agent said nothing after it."""
    broken = await reflect(engine, cache_run, outcome="failure")
    assert "no message or answer follows" in broken.reflection_text
    late = await reflect(engine, cache_run, outcome="timeout")
    assert "The trace ends with tool call 1" in late.reflection_text


async def test_configured_model_reflects(
    pool: asyncpg.Pool, timeout_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ReflectionEngineV2(pool)`, as the document creates it."""
    said = {"reflection": "No index.", "strategy": "Add an index.", "tags": ["sql"]}
    with StubProvider() as stub:
        monkeypatch.setenv("HANSEI_LLM_PROVIDER", "openai")
        monkeypatch.setenv("HANSEI_LLM_MODEL", "the-one-configured")
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", stub.openai_url)
        stub.queue(answer(json.dumps(said | {"importance": 0.8, "confidence": 0.7})))
        result = await reflect(ReflectionEngineV2(pool), timeout_run)
        assert [call.model for call in stub.calls] == ["the-one-configured"]
    assert (result.reflection_text, result.strategy_text) == ("No index.", "Add an index.")


async def test_custom_model_reflects(pool: asyncpg.Pool, timeout_run: Any) -> None:
    """What the document shows for its first example, said by a model: structured, and stored as it
    was said."""
    said = {
        "reflection": "The query timed out: the JOIN of two large tables had no index.",
        "strategy": "Add indexes on the columns of a join, or read page by page.",
        "importance": 0.85,
        "confidence": 0.9,
        "tags": ["sql", "timeout", "performance", "database"],
        "source_event_ids": ["e1", "nobody"],
    }
    with StubProvider() as stub:
        stub.queue(answer(json.dumps(said)))
        model = open_llm("openai", model="m", api_key="k", base_url=stub.openai_url)
        assert model is not None

        async def generator(context: ReflectionContext, evidence: Evidence) -> GeneratedReflection:
            return await generate_reflection(context, evidence, ModelSession(model))

        engine = ReflectionEngineV2(pool, generator=generator)
        result = await reflect(engine, timeout_run)
        await model.aclose()
        assert len(stub.calls) == 1
    assert (result.reflection_text, result.strategy_text) == (said["reflection"], said["strategy"])
    assert (result.importance, result.confidence) == (0.85, 0.9)
    assert result.tags == said["tags"]
    assert result.source_event_ids == ["e1"], "an event that is not in the trace is no source"
    stored = await engine.store_reflection(result, timeout_run["tenant_id"], "default")
    found = await engine.query_reflections(
        timeout_run["tenant_id"], "default", "database optimization", min_importance=0.7
    )
    assert {record["id"] for record in found} == set(stored.values())
    assert sorted(record["importance"] for record in found) == pytest.approx([0.85, 0.935])
