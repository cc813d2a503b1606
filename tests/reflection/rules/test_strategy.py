"""A rule without what only its own run shows. The sentences are ones the rules engine wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_api.reflection.rules.english_strategies import EnglishStrategies
from memory_api.reflection.rules.japanese_strategies import JapaneseStrategies
from memory_api.reflection.rules.reflect import reflect
from memory_api.text.advice import is_task_specific, strip_run_examples
from memory_api.trace_analysis.context import ReflectionContext
from memory_api.trace_analysis.findings import AttemptContrast
from memory_api.traces.schemas import Event, EventType, OutcomeType
from tests.support.cases import each_case

RULES = {
    "do not repeat its first call (in this run: `find(first_name=Ivan, zip=92133)`). Start from a "
    "different fact": "do not repeat its first call. Start from a different fact",
    "open the closest suggestion (in this run: “List of affiliates (by U.S. state)”) as written": (
        "open the closest suggestion as written"
    ),
    "最も近い候補（この実行では「大阪城」「大阪」）を開く。": "最も近い候補を開く。",
}


@pytest.mark.parametrize(("text", "rule"), RULES.items())
def test_examples_are_removed(text: str, rule: str) -> None:
    assert strip_run_examples(text) == rule
    assert strip_run_examples(rule) == rule


@each_case(
    "text",
    [
        "look for the permitted way first (another order of steps, part of the request) and offer",
        "When text is parsed as code (utils.py), catch the parse error and show it to the model",
        "Use items[0] and items[1], they differ",
        "利用者（本人）に尋ねる。",
    ],
)
def test_general_part_is_kept(text: str) -> None:
    assert strip_run_examples(text) == text


@given(st.text(max_size=200))
def test_generalizing_removes_only_and_is_idempotent(text: str) -> None:
    once = strip_run_examples(text)
    assert strip_run_examples(once) == once
    assert len(once) <= len(text)


@each_case(("missing", "has_advice"), [(1, False), (2, True)])
def test_request_of_one_call_has_no_parts(missing: int, has_advice: bool) -> None:
    """The only expected call was not made: nothing shows that the request had several parts."""
    calls = [{"name": "close_ticket", "kwargs": {"id": n}} for n in range(missing)]
    events = [
        Event(event_type=EventType.TOOL_CALL, tool_name="search", content='{"q": "88"}'),
        Event(event_type=EventType.TOOL_RESPONSE, tool_name="search", content="one ticket"),
    ]
    context = ReflectionContext(events=events, outcome=OutcomeType.PARTIAL, tenant_id="t")
    result = reflect(context, ground_truth={"actions": calls})
    assert ("several parts" in str(result)) is has_advice


def test_exception_in_own_code_is_no_rejected_input() -> None:
    """The cell of a notebook failed; no tool stated a format for an argument."""
    failed = "Traceback (most recent call last):\nTypeError: unsupported operand types for +"
    events = [
        Event(event_type=EventType.TOOL_CALL, tool_name="run_cell", content="total = 1 + name"),
        Event(event_type=EventType.TOOL_RESPONSE, tool_name="run_cell", content=failed),
        Event(event_type=EventType.ERROR_EVENT, content=failed),
    ]
    context = ReflectionContext(events=events, outcome=OutcomeType.FAILURE, tenant_id="t")
    assert "rejects its input" not in str(reflect(context))


def test_advice_after_a_timeout_holds_for_a_command_that_waits() -> None:
    text = EnglishStrategies().avoid_error("timeout", "kubectl", "timed out", False)
    assert text is not None
    assert "what it is waiting for" in text


@each_case("advice", [EnglishStrategies(), JapaneseStrategies()])
@each_case(
    "contrast",
    [
        AttemptContrast(True, None, None, ("Search[A]",), ("Search[B]",), (), ()),
        AttemptContrast(True, None, None, (), (), ("calculate",), ()),
    ],
)
def test_contrast_of_attempts_is_task_specific(advice, contrast) -> None:
    assert is_task_specific(advice.follow_success(contrast))


@each_case("text", [*RULES, *RULES.values()])
def test_other_strategies_are_general(text: str) -> None:
    assert not is_task_specific(text)
