"""The evaluator that goes by evidence alone."""

from __future__ import annotations

import asyncio

from apps.memory_api.core.settings import Settings
from apps.memory_api.evaluation.case import Case
from apps.memory_api.evaluation.correctness import completeness, correctness
from apps.memory_api.evaluation.manner import efficiency, safety
from apps.memory_api.evaluation.schemas import Found
from apps.memory_api.llm.port import LLM

LOOKS = (correctness, completeness, efficiency, safety)
"""Nothing in a trace alone shows helpfulness."""


class DeterministicEvaluator:
    """Scores what tests, the right answer, exit codes and the events show; leaves out the rest."""

    async def evaluate(self, case: Case) -> Found:
        # in a thread: a report may have megabytes, and the event loop must live
        return await asyncio.to_thread(look_at, case)


def look_at(case: Case) -> Found:
    """What the evidence of a run shows."""
    found = (look(case) for look in LOOKS)
    return Found(tuple(score for score in found if score is not None))


def open_evaluator(settings: Settings, llm: LLM | None) -> DeterministicEvaluator:
    return DeterministicEvaluator()
