"""`ReflectionEngineV2` as spec 5 documents it: over an asyncpg pool, with swappable parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from memory_api.core.errors import NotFound
from memory_api.core.telemetry import configure_logging
from memory_api.library.reflection_engine import NothingLearned, ReflectionEngineV2
from memory_api.memories.search.query import SearchFilters
from memory_api.reflection.evidence import Evidence
from memory_api.reflection.generate import GeneratedReflection
from memory_api.reflection.schemas import ReflectionResult
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.traces.schemas import ErrorCategory, ErrorInfo, Event, EventType, OutcomeType
from tests.conftest import Database, TestTenant


@pytest.fixture(scope="module")
async def pool(database: Database) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(database.url("hansei_app"), min_size=1, max_size=3) as opened:
        yield opened


@pytest.fixture
def engine(pool: asyncpg.Pool) -> ReflectionEngineV2:
    return ReflectionEngineV2(pool)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What is logged during a test, from level info on."""
    configure_logging("console", "info")
    with capture_logs() as captured:
        yield captured
    configure_logging("console", "error")


def timeout_context(tenant: TestTenant, **more: Any) -> ReflectionContext:
    """The example of spec 5, "Generate Reflection from Failure"."""
    fields: dict[str, Any] = {
        "events": [
            Event(
                event_id="e1",
                event_type=EventType.TOOL_CALL,
                timestamp=datetime.now(UTC),
                content="Called database query with complex JOIN",
                metadata={"tool": "postgres_query"},
            ),
            Event(
                event_id="e2",
                event_type=EventType.ERROR_EVENT,
                timestamp=datetime.now(UTC),
                content="Query timeout after 30 seconds",
                metadata={},
                error={"message": "Timeout", "code": "QUERY_TIMEOUT"},
            ),
        ],
        "outcome": OutcomeType.TIMEOUT,
        "error": ErrorInfo(
            error_category=ErrorCategory.TIMEOUT_ERROR,
            error_message="Query execution exceeded 30s limit",
            context={"query": "SELECT * FROM orders JOIN customers..."},
        ),
        "task_description": "Fetch customer order history",
        "task_goal": "Retrieve all orders for customer analysis",
        "tenant_id": tenant.slug,
        "project_id": "default",
    }
    return ReflectionContext(**(fields | more))


async def test_generate_store_query(engine: ReflectionEngineV2, tenant: TestTenant) -> None:
    context = timeout_context(tenant, session_id=uuid4())
    result = await engine.generate_reflection(context)
    assert result.reflection_text
    assert result.importance > 0.0
    assert "timeout" in result.tags
    assert result.error_category is ErrorCategory.TIMEOUT_ERROR
    assert set(result.source_event_ids) <= {"e1", "e2"}
    assert result.metadata["event_count"] == 2
    assert result.metadata["task_description"] == "Fetch customer order history"
    assert result.metadata["outcome"] == "timeout"

    stored = await engine.store_reflection(result, tenant.slug, "default")
    assert stored.keys() == {"reflection_id", "strategy_id"}

    found = await engine.query_reflections(
        tenant.slug, "default", "database query timeout", k=5, min_importance=0.0
    )
    by_id = {record["id"]: record for record in found}
    reflection, strategy = by_id[stored["reflection_id"]], by_id[stored["strategy_id"]]
    assert reflection["layer"] == strategy["layer"] == "rm"
    assert reflection["source"] == strategy["source"] == "reflection_engine_v2"
    assert reflection["content"] == result.reflection_text
    assert strategy["content"] == result.strategy_text
    assert "strategy" in strategy["tags"]
    assert "strategy" not in reflection["tags"]
    assert strategy["importance"] == pytest.approx(min(1.0, result.importance * 1.1))
    assert reflection["confidence"] == pytest.approx(result.confidence)
    assert reflection["metadata"]["session_id"] == reflection["session_id"] == context.session_id


@pytest.mark.parametrize(
    ("wanted", "least", "found"),
    [(["timeout"], 0.0, True), (["nobody-uses-this"], 0.0, False), (None, 1.0, False)],
)
async def test_query_filters_by_tag_and_importance(
    engine: ReflectionEngineV2,
    tenant: TestTenant,
    wanted: list[str] | None,
    least: float,
    found: bool,
) -> None:
    result = await engine.generate_reflection(timeout_context(tenant))
    await engine.store_reflection(result.model_copy(update={"importance": 0.8}), tenant.slug, "p")
    records = await engine.query_reflections(
        tenant.slug, "p", "timeout", min_importance=least, tags=wanted
    )
    assert bool(records) is found


async def test_strategy_importance_is_clamped(
    engine: ReflectionEngineV2, tenant: TestTenant
) -> None:
    result = ReflectionResult(reflection_text="It broke.", strategy_text="Do not.", importance=1.0)
    await engine.store_reflection(result, tenant.slug, "p")
    records = await engine.query_reflections(tenant.slug, "p", None)
    assert [record["importance"] for record in records] == [1.0, 1.0]


async def test_log_events(engine: ReflectionEngineV2, tenant: TestTenant, logs: list[Any]) -> None:
    context = timeout_context(tenant)
    result = await engine.generate_reflection(context)
    await engine.store_reflection(result, tenant.slug, "default")
    started, generated, stored = logs
    assert started["event"] == "reflection_generation_started"
    assert (started["outcome"], started["event_count"]) == ("timeout", 2)
    assert generated["event"] == "reflection_generated"
    assert generated["has_strategy"] is True
    assert generated["importance"] == result.importance
    assert stored["event"] == "reflection_stored"
    assert UUID(stored["reflection_id"])


async def test_failure_is_logged_and_raised(
    pool: asyncpg.Pool, tenant: TestTenant, logs: list[Any]
) -> None:
    async def broken(context: ReflectionContext, evidence: Evidence) -> GeneratedReflection:
        raise RuntimeError("no model today")

    engine = ReflectionEngineV2(pool, generator=broken)
    with pytest.raises(RuntimeError, match="no model today"):
        await engine.generate_reflection(timeout_context(tenant))
    assert logs[-1]["event"] == "reflection_generation_failed"
    assert logs[-1]["error"] == "no model today"
    assert logs[-1]["exc_info"] is True


async def test_failing_calculator_is_logged_and_raised(
    pool: asyncpg.Pool, tenant: TestTenant, logs: list[Any]
) -> None:
    engine = ReflectionEngineV2(pool, importance=lambda context, result: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await engine.generate_reflection(timeout_context(tenant))
    assert logs[-1]["event"] == "reflection_generation_failed"
    assert logs[-1]["exc_info"] is True


async def test_session_of_store_reflection_is_stored(
    engine: ReflectionEngineV2, tenant: TestTenant
) -> None:
    result = await engine.generate_reflection(timeout_context(tenant))
    session_id = uuid4()
    await engine.store_reflection(result, tenant.slug, "s", session_id=session_id)
    records = await engine.query_reflections(tenant.slug, "s", min_importance=0.0)
    assert len(records) == 2
    for record in records:
        assert record["session_id"] == record["metadata"]["session_id"] == str(session_id)


async def test_unknown_tenant_is_refused(engine: ReflectionEngineV2, tenant: TestTenant) -> None:
    result = await engine.generate_reflection(timeout_context(tenant))
    with pytest.raises(NotFound, match="does not exist"):
        await engine.store_reflection(result, "nobody-created-this", "p")


async def test_scoring_and_storage_can_be_replaced(tenant: TestTenant) -> None:
    class Shelf:
        """A storage of three functions."""

        def __init__(self) -> None:
            self.rows: list[ReflectionResult] = []

        async def save(
            self, tenant_id: UUID, project_id: str, result: ReflectionResult, session_id: str | None
        ) -> dict[str, str]:
            self.rows.append(result)
            return {"reflection_id": str(len(self.rows))}

        async def find(
            self, tenant_id: UUID, project_id: str, query_text: str, k: int, filters: SearchFilters
        ) -> list[dict[str, Any]]:
            return [row.model_dump() for row in self.rows[:k]]

        async def close(self) -> None: ...

    shelf = Shelf()
    engine = ReflectionEngineV2(
        memory_repository=shelf, importance=lambda c, r: 0.25, confidence=lambda c, r: 0.75
    )
    result = await engine.generate_reflection(timeout_context(tenant))
    assert (result.importance, result.confidence) == (0.25, 0.75)
    assert await engine.store_reflection(result, tenant.slug, "p") == {"reflection_id": "1"}
    records = await engine.query_reflections(tenant.slug, "p")
    assert records[0]["reflection_text"] == result.reflection_text


async def test_no_lesson_is_reported(engine: ReflectionEngineV2, tenant: TestTenant) -> None:
    async def silent(context: ReflectionContext, evidence: Evidence) -> GeneratedReflection:
        return GeneratedReflection(None)

    quiet = ReflectionEngineV2(memory_repository=engine.store, generator=silent)
    with pytest.raises(NothingLearned):
        await quiet.generate_reflection(timeout_context(tenant))


async def test_repeated_reflection_is_counted_as_observation(
    engine: ReflectionEngineV2, tenant: TestTenant
) -> None:
    result = await engine.generate_reflection(timeout_context(tenant))
    first = await engine.store_reflection(result, tenant.slug, "p")
    again = result.model_copy(update={"reflection_text": result.reflection_text.upper() + " !"})
    second = await engine.store_reflection(again, tenant.slug, "p")
    assert first == second
    records = await engine.query_reflections(tenant.slug, "p", "timeout", min_importance=0.0)
    assert len(records) == 2
    assert {record["observation_count"] for record in records} == {2}


async def test_tenant_is_given_as_slug_or_uuid(
    engine: ReflectionEngineV2, tenant: TestTenant
) -> None:
    result = await engine.generate_reflection(timeout_context(tenant))
    await engine.store_reflection(result, str(tenant.id), "p")
    assert await engine.query_reflections(tenant.slug, "p", min_importance=0.0)
