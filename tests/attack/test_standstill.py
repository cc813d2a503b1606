"""Small inputs that held an event loop for minutes, because the work was the product of two of
their parts. They are below the size from which another process does the work.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

import pytest
from httpx2 import AsyncClient

from memory_api.core.isolated_work import MAX_INLINE_SIZE
from memory_api.curation import model_output
from memory_api.curation.context import CurationContext, LessonEvidence
from memory_api.curation.schemas import Lesson
from memory_api.evaluation.evaluators.deterministic import score_by_evidence
from memory_api.evaluation.schemas import EvaluationInput
from memory_api.reflection.evidence import Evidence, input_size
from memory_api.reflection.outside_text import OutsideTexts
from memory_api.text.quotations import find_quotations_of
from memory_api.trace_analysis.analyze import ReflectionContext, analyze_trace
from memory_api.trace_analysis.answer_comparison import compare_answers
from memory_api.trace_analysis.attempts import Attempt
from memory_api.trace_analysis.parser import parse_trace
from memory_api.traces.expected_results import MAX_ACCEPTED_ANSWERS
from memory_api.traces.schemas import Event, EventType, OutcomeType
from tests.support.api_calls import event
from tests.support.cases import each_case
from tests.support.quotations import find_quotations, quote_passages

MAX_SECONDS = 3
"""Of CPU, on a slow machine. The reported attacks took 17 seconds to many minutes."""


def calls(count: int, **more: Any) -> list[Event]:
    return [
        Event(
            event_type=EventType.TOOL_CALL,
            tool_name=f"t{n % 3}",
            content=json.dumps({"id": n, **more}),
        )
        for n in range(count)
    ]


def failing(count: int, content: str) -> list[Event]:
    """Calls that fail and then work with another argument, and what they return."""
    events: list[Event] = []
    for n in range(count):
        for value, kind in ((f"b{n}", EventType.ERROR_EVENT), ("a" * 3, EventType.TOOL_RESPONSE)):
            call = json.dumps({"x": value, "y": str(n)})
            events.append(Event(event_type=EventType.TOOL_CALL, tool_name="t", content=call))
            events.append(Event(event_type=kind, tool_name="t", content=content))
    return events


NAMED = {"actions": ["zz"] * 10_000, "match": "calls"}
SIMILAR = {"actions": [{"name": "t1", "arguments": {"x": "y" * 3_000, "n": n}} for n in range(60)]}
CASES: dict[str, tuple[list[Event], dict[str, Any]]] = {
    "accepted answers": (
        calls(5),
        {"truth": [str(n) for n in range(12_000)], "answer": "1 2 3 " * 8000},
    ),
    "declared numbers": (
        calls(5),
        {
            "truth": {"answers": [str(-n) for n in range(12_000)], "match": "number"},
            "answer": " ".join(map(str, range(4_000))),
        },
    ),
    "expected calls": (calls(1_000), {"truth": NAMED}),
    "similar calls": (calls(1_000), {"truth": SIMILAR}),
    "attempts": (calls(1_000, side=1), {"attempt": calls(1_000, side=2)}),
    "values": (failing(6, "a" * 19_000), {}),
}


@each_case("events, more", CASES.values())
def test_trace_is_analyzed_in_seconds_or_in_another_process(
    events: list[Event], more: dict[str, Any]
) -> None:
    truth, answer = more.get("truth"), more.get("answer")
    context = ReflectionContext(
        events=events,
        outcome=OutcomeType.FAILURE,
        tenant_id="t",
        project_id="p",
        generated_answer=answer,
    )
    attempts = (
        [Attempt(outcome=OutcomeType.SUCCESS, events=more["attempt"])] if "attempt" in more else []
    )
    case = EvaluationInput(parse_trace(events), answer=answer, ground_truth=truth)
    works = {
        "analysis": (
            input_size(context, Evidence(attempts, truth)),
            partial(analyze_trace, context, attempts=attempts, ground_truth=truth),
        ),
        "evaluation": (case.size, partial(score_by_evidence, case)),
    }
    for name, (size, work) in works.items():
        started = time.process_time()
        if size <= MAX_INLINE_SIZE:
            work()
        assert time.process_time() - started < MAX_SECONDS, name


async def test_number_of_accepted_answers_is_limited(api: AsyncClient) -> None:
    truth = [str(n) for n in range(MAX_ACCEPTED_ANSWERS + 1)]
    for ground_truth in (truth, {"answers": truth, "match": "number"}):
        body = {"events": [event("x")], "outcome": "failure", "ground_truth": ground_truth}
        answer = await api.post("/api/v1/traces", json=body)
        assert answer.status_code == 422
        assert "1,001 accepted answers. Send at most 1,000" in answer.text


def test_answer_is_parsed_once_for_all_accepted_answers() -> None:
    answer = " ".join(map(str, range(4_000)))
    accepted = [f"{n} apples" for n in range(MAX_ACCEPTED_ANSWERS)]
    started = time.process_time()
    found = compare_answers(answer, accepted)
    assert time.process_time() - started < 10
    assert found.relation == "contains_expected"


REPEATED = {
    "character": "日" * 33_000,
    "letter": "a " * 49_500,
    "instruction": "Do. " * 24_750,
    "quotation": "'ab' " * 19_000,
    "quotations": " ".join(f"'a{n}'" for n in range(11_000)),
}


@each_case("text", REPEATED.values())
def test_repeated_passages_are_quoted_in_linear_time(text: str) -> None:
    """One request held a process for 30 s: each passage was found at all its places, each time."""
    started = time.process_time()
    quote_passages(text, [text, text])
    assert time.process_time() - started < MAX_SECONDS
    outside = OutsideTexts([text] * 2)
    if outside.comparison_size([text], searches=text.count("'") // 2) <= MAX_INLINE_SIZE:
        outside.quotations_in([text])()
    assert time.process_time() - started < 2 * MAX_SECONDS


def test_part_of_a_word_is_searched_in_linear_time() -> None:
    advice = "Use " + " ".join(f"'{'a' * n}'" for n in range(2, 60))
    started = time.process_time()
    assert find_quotations(advice, ["a" * 100_000]) == []
    assert time.process_time() - started < MAX_SECONDS


async def test_reflection_on_a_repeated_character_holds_nobody(api: AsyncClient) -> None:
    text = REPEATED["character"]
    events = [
        {"event_type": "tool_call", "tool_name": "x", "content": text},
        {"event_type": "error_event", "content": text},
    ]
    body = {"task_description": text, "outcome": "failure", "events": events}
    started = time.process_time()
    answer = await api.post("/api/v1/reflections/generate", json=body)
    assert answer.is_success, answer.text
    assert time.process_time() - started < 2 * MAX_SECONDS


def test_tasks_are_read_once_for_all_operations_of_a_curator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of 50 operations read the tasks of all lessons again, which may have 100 kB each."""
    count = 0

    def watch(*arguments: Any) -> dict[str, list[str]]:
        nonlocal count
        count += 1
        return find_quotations_of(*arguments)

    monkeypatch.setattr(model_output, "find_quotations_of", watch)
    words = [f"Before you send w{n}, look up the name of the customer." for n in range(50)]
    operations = [{"type": "ADD", "lessons": [1], "section": "s", "content": w} for w in words]
    lesson = Lesson(text=words[0])
    validated = model_output.validate_operations(
        model_output.ModelCuration.model_validate({"operations": operations}),
        (),
        [[0]],
        [lesson],
        CurationContext(evidence=[LessonEvidence(task=words[0])]),
    )
    assert count == 1
    first, second, *_ = (change.quotations for change in validated.changes)
    assert "Before you send w0, look" in first
    assert "look up the name of" in second
    assert "Before you send w0, look" not in second
