"""Lessons brought, and lessons asked for."""

from __future__ import annotations

from uuid import UUID

from apps.memory_api.core.redaction import redact_value
from apps.memory_api.memory.find import Filters, ask, search
from apps.memory_api.memory.found import Hit
from apps.memory_api.memory.prepare import prepare
from apps.memory_api.memory.scopes import kind_scope
from apps.memory_api.reflection.schemas import ReflectionQuery, ReflectionResult
from apps.memory_api.reflection.store import Kept, drafts, keep
from apps.memory_api.runtime import Runtime


async def bring_reflection(
    runtime: Runtime,
    tenant_id: UUID,
    project_id: str,
    result: ReflectionResult,
    *,
    session_id: str | None = None,
    trace_id: UUID | None = None,
) -> list[Kept]:
    """Keep a reflection and its strategy, without secrets."""
    given, _ = redact_value(result.model_dump(mode="json"))
    result = ReflectionResult.model_validate(given)
    rows = drafts(result, project_id=project_id, session_id=session_id, trace_id=trace_id)
    items = await prepare(await runtime.embedder_of(tenant_id), rows)
    async with runtime.sessions.tenant(tenant_id) as session:
        return await keep(session, items)


async def find_lessons(
    runtime: Runtime, tenant_id: UUID, project_id: str, query: ReflectionQuery
) -> list[Hit]:
    """The lessons of a project that a query asks for, best first."""
    question = await ask(await runtime.embedder_of(tenant_id), query.query_text or "")
    filters = Filters(
        kinds=tuple(query.kinds),
        tags=tuple(query.tags),
        error_categories=tuple(category.value for category in query.error_categories),
        min_importance=query.min_importance,
        since=query.since,
        until=query.until,
    )
    async with runtime.sessions.tenant(tenant_id) as session:
        addresses = [kind_scope(project_id, kind) for kind in query.kinds]
        return await search(session, question, addresses, top_k=query.k, filters=filters)
