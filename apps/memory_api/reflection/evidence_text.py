"""The error, the recorded result and the tools of a run as texts of a prompt. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory_api.llm.untrusted_text import fit_text
from memory_api.reflection.event_text import to_json
from memory_api.reflection.evidence import Evidence
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.trace_analysis.arguments import as_mapping
from memory_api.trace_analysis.facts import Fact, FactKind, facts_of
from memory_api.trace_analysis.ground_truth import (
    MAX_RATING,
    expected_actions,
    find_ratings,
    number_of,
    states_answer,
)
from memory_api.traces.tools import ToolDefinition

_MAX_TOOL_TOKENS = 64


@dataclass(frozen=True)
class StatedError:
    """The error of the run: as the client reported it, or of the last event that has one."""

    category: str
    message: str
    context: Mapping[str, object]
    event_id: str | None = None


def stated_error(context: ReflectionContext, facts: Sequence[Fact]) -> StatedError | None:
    if context.error is not None:
        error = context.error
        return StatedError(error.error_category.value, error.error_message, error.context)
    fact = next(facts_of(facts, FactKind.ERROR), None)
    return None if fact is None else StatedError("", fact.values["message"], {}, fact.event_ids[0])


def error_text(error: StatedError | None) -> str:
    if error is None:
        return ""
    lines = [f"category: {error.category}"] if error.category else []
    if error.event_id:
        lines.append(
            f"The trace states no error. The last event with an error is {error.event_id}."
        )
    lines.append(f"message: {error.message}")
    if set(error.context) - {"message"}:
        lines.append(f"context: {to_json(error.context)}")
    return "\n".join(lines)


def recorded_result(ground_truth: Any) -> str:
    """What the client recorded about the result, with the scale of its ratings; '' for a right
    answer.
    """
    if ground_truth is None or states_answer(ground_truth):
        return ""
    result = as_mapping(ground_truth)
    ratings = find_ratings(result)
    others = [
        name
        for name, value in result.items()
        if name not in ratings and number_of(value) is not None
    ]
    lines = [to_json(ground_truth)]
    if ratings:
        names = ", ".join(ratings)
        lines.append(f"{names}: a rating from 1 (worst) to {MAX_RATING} (best).")
    if others:
        lines.append(f"The client stated no scale for {', '.join(others)}.")
    return "\n".join(lines)


def tool_lines(tools: Sequence[ToolDefinition]) -> str:
    """One line per tool: name, effect, description."""
    effects = {True: "changes data", False: "only reads", None: "effect unknown"}
    lines: list[str] = []
    for tool in tools:
        description = f": {' '.join(tool.description.split())}" if tool.description else ""
        lines.append(f"- {tool.name} ({effects[tool.writes]}){description}")
    return "\n".join(fit_text(line, _MAX_TOOL_TOKENS) for line in lines)


def called_tools(context: ReflectionContext, evidence: Evidence) -> str:
    """The names of the tools that earlier attempts called or that are expected, without those that
    this run called, for a trace that lists no tools.
    """
    known = {event.tool_name for event in context.events}
    names = [
        *(event.tool_name for attempt in evidence.attempts for event in attempt.events),
        *(action.tool for action in expected_actions(evidence.ground_truth) or ()),
    ]
    return ", ".join(name for name in dict.fromkeys(names) if name and name not in known)
