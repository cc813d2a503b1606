"""What is remembered of such a task, to be looked at before something new is written (spec 5)."""

from __future__ import annotations

from uuid import UUID

from apps.memory_api.memory.find import Filters, ask, search
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.memory.scopes import kind_scope
from apps.memory_api.reflection.schemas import ReflectionContext
from apps.memory_api.runtime import Runtime

KINDS = (Kind.STRATEGY, Kind.INSIGHT)
"""The reflections that strategies come from say the same at more length."""
LONGEST = 2_000
"""Characters of the question."""


async def related_lessons(
    runtime: Runtime, tenant_id: UUID, context: ReflectionContext, k: int = 5
) -> list[str]:
    """The project's best `k` lessons for this task and its error, best first. No transaction may be
    open.
    """
    error = context.error.error_message if context.error else ""
    parts = (context.task_goal, context.task_description, error)
    about = "\n".join(part for part in parts if part)[:LONGEST]
    if not about:
        return []
    question = await ask(await runtime.embedder_of(tenant_id), about)
    scopes = [kind_scope(context.project_id, kind) for kind in KINDS]
    async with runtime.sessions.tenant(tenant_id) as session:
        hits = await search(session, question, scopes, top_k=k, filters=Filters(kinds=KINDS))
    return list(dict.fromkeys(hit.memory.content for hit in hits))
