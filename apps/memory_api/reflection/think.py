"""The thinking step: one run and what is known of its task, in; a reflection or nothing, out. No
database, no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.memory_api.reflection import rules
from apps.memory_api.reflection.findings.schemas import Attempt
from apps.memory_api.reflection.schemas import ReflectionContext, ReflectionResult

LONG = 500
"""Events from which on the work moves to a thread, so that the event loop lives."""


@dataclass(frozen=True)
class Evidence:
    """What is known beside the run itself: earlier attempts of the task, the right answer, a test
    report.
    """

    attempts: Sequence[Attempt] = ()
    ground_truth: Any = None
    test_report: str | None = None


@dataclass(frozen=True)
class Thought:
    """What came of it. `result` is None when there is honestly nothing to learn."""

    result: ReflectionResult | None
    engine: str = "rules"
    degraded: bool = False


async def think(context: ReflectionContext, evidence: Evidence) -> Thought:
    """Reflect by the rules engine."""

    def by_rules() -> ReflectionResult | None:
        return rules.reflect(
            context,
            attempts=evidence.attempts,
            ground_truth=evidence.ground_truth,
            test_report=evidence.test_report,
        )

    events = len(context.events) + sum(len(attempt.events) for attempt in evidence.attempts)
    return Thought(await asyncio.to_thread(by_rules) if events > LONG else by_rules())
