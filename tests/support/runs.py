"""Short ways to write a recorded run."""

from __future__ import annotations

import json
from typing import Any

from bench.data import to_event
from memory_api.reflection.rules import reflect_by_rules
from memory_api.reflection.schemas import ReflectionResult
from memory_api.trace_analysis.analyze import ReflectionContext, analyze_trace
from memory_api.trace_analysis.facts import Fact, FactKind
from memory_api.traces.schemas import Event

Row = dict[str, Any]


def user(text: str) -> Row:
    return {"event_type": "user_message", "content": text}


def says(text: str, agent: str | None = None) -> Row:
    return {"event_type": "llm_response", "content": text, "agent": agent}


def call(tool: str, arguments: object, response: object, **more: Any) -> list[Row]:
    """A call and its response, as JSON unless they are text. `more` belongs to the response: its
    fields, the rest is metadata.
    """
    metadata = {name: more.pop(name) for name in more.keys() - Event.model_fields.keys()}
    answer: Row = {"event_type": "tool_response", "tool_name": tool, "content": _text(response)}
    if metadata:
        more["metadata"] = metadata | more.get("metadata", {})
    return [
        {"event_type": "tool_call", "tool_name": tool, "content": _text(arguments)},
        answer | more,
    ]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def run(rows: list[Row], outcome: str = "failure", **more: Any) -> ReflectionContext:
    """The run, with the event IDs e0, e1, … and fields that an event does not have in metadata."""
    events = [to_event({"event_id": f"e{n}", **row}) for n, row in enumerate(rows)]
    return ReflectionContext.model_validate(
        {"events": events, "outcome": outcome, "tenant_id": "t", **more}
    )


def facts(
    rows: list[Row], *kinds: FactKind, outcome: str = "failure", **evidence: Any
) -> list[Fact]:
    """The facts of these kinds; all without kinds."""
    found = analyze_trace(run(rows, outcome), **evidence)
    return [fact for fact in found if not kinds or fact.kind in kinds]


def reflection(rows: list[Row], outcome: str = "failure", **more: Any) -> ReflectionResult | None:
    context = run(rows, outcome, **more)
    return reflect_by_rules(context, analyze_trace(context))
