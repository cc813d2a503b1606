"""`bench rules` finds a fact that the recorded trace contradicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.statements import check_facts
from memory_api.trace_analysis.analyze import ReflectionContext, analyze_trace
from memory_api.trace_analysis.facts import Fact, FactKind, facts_of
from memory_api.traces.schemas import Event, OutcomeType
from tests.support.junit import junit


def event(number: int, second: int, **fields: Any) -> dict[str, Any]:
    time = f"2026-01-01T00:00:{second:02d}+00:00"
    return {"event_id": f"e{number}", "tool_name": "bash", "timestamp": time, **fields}


RAW: dict[str, Any] = {
    "outcome": "failure",
    "test_report": junit(2, test_a="assert 1 == 2"),
    "events": [
        event(1, 0, event_type="tool_call", content='{"command": "make"}'),
        event(2, 9, event_type="tool_response", content="no", metadata={"exit_code": 2}),
        event(3, 9, event_type="tool_call", content='{"command": "make"}'),
        event(4, 10, event_type="tool_response", content="ok", metadata={"exit_code": 0}),
        event(5, 10, event_type="tool_call", content='{"id": 1}', tool_name="get"),
        event(6, 10, event_type="tool_response", content="no", error={"message": "no"}),
        event(7, 10, event_type="tool_call", content='{"id": 2}', tool_name="get"),
        event(8, 10, event_type="tool_response", content="ok"),
        event(9, 11, event_type="llm_response", content="Done.", tool_name=None),
    ],
}


def facts() -> list[Fact]:
    context = ReflectionContext(
        events=[Event.model_validate(each) for each in RAW["events"]],
        outcome=OutcomeType.FAILURE,
        tenant_id="t",
    )
    return list(analyze_trace(context, test_report=RAW["test_report"]))


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (FactKind.COUNTS, {"calls": 3}),
        (FactKind.TEST, {"failed": 2}),
        (FactKind.EXIT_CODE, {"code": 3}),
        (FactKind.CORRECTED_CALL, {"changes": []}),
        (FactKind.RETRIED_CALL, {"attempts": 1}),
        (FactKind.FAILED_CALL, {"is_last": True}),
    ],
)
def test_wrong_fact_is_found(kind: FactKind, wrong: dict[str, Any]) -> None:
    fact = next(facts_of(facts(), kind))
    assert all(statement.is_true for statement in check_facts([fact], RAW))
    false = replace(fact, values={**fact.values, **wrong})
    statements = [each for each in check_facts([false], RAW) if each.kind == kind.value]
    assert not all(statement.is_true for statement in statements)
