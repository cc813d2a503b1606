"""The log events of a reflection, by the names of S5, and its count."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

import structlog

from memory_api.core.metrics import REFLECTIONS
from memory_api.llm.errors import LLMCircuitOpen, LLMOverBudget
from memory_api.memories.schemas import MemoryKind
from memory_api.reflection.step import Lessons
from memory_api.runs.tables import RunRow
from memory_api.trace_analysis.context import ReflectionContext

log = structlog.get_logger()


async def log_generation(
    kind: str, context: ReflectionContext, engine: str, generating: Awaitable[Lessons]
) -> Lessons:
    """Await the lessons of a trace. Logs the start, the result and a failure, which it raises."""
    ids = {"tenant_id": context.tenant_id, "project_id": context.project_id}
    log.info(
        "reflection_generation_started",
        **ids,
        outcome=context.outcome.value,
        event_count=len(context.events),
    )
    try:
        lessons = await generating
    except (LLMCircuitOpen, LLMOverBudget):
        raise  # every waiting run raises this; its cause is logged once
    except Exception as error:
        REFLECTIONS.labels(kind, engine, "failed").inc()
        log.error("reflection_generation_failed", **ids, error=str(error), exc_info=True)
        raise
    if lessons.memories:
        first = lessons.memories[0]
        log.info(
            "reflection_generated",
            **ids,
            importance=first.importance,
            confidence=first.confidence,
            has_strategy=any(d.kind is not MemoryKind.REFLECTION for d in lessons.memories),
        )
    return lessons


def report_stored(run: RunRow, engine: str, result: Mapping[str, Any]) -> None:
    """Count the run, and log each reflection that it stored."""
    REFLECTIONS.labels(run.kind, engine, result.get("result", "stored")).inc()
    stored = [result.get("reflection_id"), *result.get("insight_ids", ())]
    for memory_id in filter(None, stored):
        log.info(
            "reflection_stored",
            tenant_id=str(run.tenant_id),
            project_id=run.project_id,
            reflection_id=memory_id,
            importance=result.get("importance"),
        )
