"""Spec 1's reflector without a model: the findings of a run as an insight, in its own language."""

from __future__ import annotations

from apps.memory_api.reflection import rules
from apps.memory_api.reflection.findings.compose import sentences
from apps.memory_api.reflection.findings.schemas import Findings
from apps.memory_api.reflection.insights.schemas import Insight
from apps.memory_api.reflection.schemas import ReflectionContext
from apps.memory_api.traces.schemas import OutcomeType


def insights_by_rules(context: ReflectionContext, found: Findings) -> list[Insight]:
    """The lesson of the strongest evidence; none when the run supports no rule."""
    result = rules.reflect_on(context, found)
    if result is None or not result.strategy_text:
        return []
    words = rules.words_of(found.language)
    told = sentences(found, context.outcome, context.error, words)
    wrong = "" if context.outcome is OutcomeType.SUCCESS else told[0]
    return [
        Insight(
            reasoning=result.reflection_text,
            error_identification=wrong,
            root_cause_analysis=words.space.join(told[1:] or told),
            correct_approach=result.strategy_text,
            key_insight=result.strategy_text,
        )
    ]
