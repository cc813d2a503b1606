"""The documents' two examples as they are sent, and rows as the app role reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text

from memory_api.library.reflection_engine import ReflectionEngineV2
from memory_api.runtime import Runtime
from tests.conftest import Database, TestTenant

Rows = Callable[[str], Awaitable[list[dict[str, Any]]]]

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="session")
async def pool(database: Database) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(database.url("hansei_app"), min_size=1, max_size=3) as opened:
        yield opened


@pytest.fixture
def engine(pool: asyncpg.Pool) -> ReflectionEngineV2:
    return ReflectionEngineV2(pool)


@pytest.fixture
def rows(runtime: Runtime, tenant: TestTenant) -> Rows:
    """Reads rows of the tenant with SQL, as the unprivileged app role."""

    async def read(statement: str) -> list[dict[str, Any]]:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            return [dict(row) for row in (await session.execute(text(statement))).mappings()]

    return read


@pytest.fixture
def timeout_run(tenant: TestTenant) -> dict[str, Any]:
    """The run that timed out on a join (spec 5, "Generate Reflection from Failure")."""
    return {
        "tenant_id": tenant.slug,
        "project_id": "default",
        "events": [
            {
                "event_id": "e1",
                "event_type": "tool_call",
                "timestamp": NOW.isoformat(),
                "content": "Called database query with complex JOIN",
                "metadata": {"tool": "postgres_query"},
            },
            {
                "event_id": "e2",
                "event_type": "error_event",
                "timestamp": NOW.isoformat(),
                "content": "Query timeout after 30 seconds",
                "error": {"message": "Timeout", "code": "QUERY_TIMEOUT"},
            },
        ],
        "outcome": "timeout",
        "error": {
            "error_category": "timeout_error",
            "error_message": "Query execution exceeded 30s limit",
            "context": {"query": "SELECT * FROM orders JOIN customers..."},
        },
        "task_description": "Fetch customer order history",
        "task_goal": "Retrieve all orders for customer analysis",
    }


@pytest.fixture
def cache_run(tenant: TestTenant) -> dict[str, Any]:
    """The run that a cache made fast (spec 5, "Generate Reflection from Success")."""
    return {
        "tenant_id": tenant.slug,
        "project_id": "default",
        "events": [
            {
                "event_id": "e1",
                "event_type": "tool_call",
                "timestamp": NOW.isoformat(),
                "content": "Used cached embeddings for semantic search",
                "metadata": {"cache_hit": True},
            },
            {
                "event_id": "e2",
                "event_type": "tool_response",
                "timestamp": NOW.isoformat(),
                "content": "Retrieved 10 relevant results in 50ms",
                "metadata": {"latency_ms": 50},
            },
        ],
        "outcome": "success",
        "task_description": "Semantic search for user query",
        "task_goal": "Find relevant documents quickly",
    }
