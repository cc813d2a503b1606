"""A reflection without a model: its text, its strategies, and when there is none."""

from __future__ import annotations

import re
from typing import Any

import pytest

from memory_api.reflection.context import TaskLesson
from memory_api.reflection.fact_text import fact_sentences, render
from memory_api.reflection.lesson_drafts import MAX_LESSONS_PER_TASK, choose_differences
from memory_api.reflection.rules import (
    Strategy,
    calculate_scores,
    find_differences,
    reflect_by_rules,
)
from memory_api.trace_analysis.analyze import analyze_trace
from memory_api.trace_analysis.attempts import Attempt
from memory_api.trace_analysis.facts import FactKind
from memory_api.traces.schemas import ErrorCategory, Event, OutcomeType
from tests.support.junit import junit
from tests.support.runs import Row, call, facts, reflection, run, says, user

WON, LOST = OutcomeType.SUCCESS, OutcomeType.FAILURE
FAILED: dict[str, Any] = {"error": {"message": "user not found"}}
CORRECTED = [
    *call("get_user", {"user_id": "u-8"}, "", **FAILED),
    *call("get_user", {"user_id": "u-9"}, "Ann"),
]
ENGLISH: list[Row] = [user("Find the user Ann for me."), *CORRECTED, says("It is Ann.")]
JAPANESE: list[Row] = [
    user("ユーザーのアンを探してください。"),
    *CORRECTED,
    says("見つかりました。"),
]


def rules(rows: list[Row], outcome: str = "failure", **more: Any) -> list[str]:
    result = reflection(rows, outcome, **more)
    return result.rules if result else []


def test_call_that_worked_after_its_argument_changed() -> None:
    assert rules(ENGLISH, "success") == [
        "When `get_user` fails with “user not found”, change `user_id` instead of sending it again "
        "unchanged."
    ]
    (japanese,) = rules(JAPANESE, "success")
    assert japanese.startswith("`get_user` が「user not found」で失敗したら")


@pytest.mark.parametrize(
    ("failed", "worked", "message", "pattern"),
    [
        ({"amount": 45}, {"amount": 30}, "45.0 exceeds the total 30.00.", "… exceeds the total …."),
        ({"id": "B-7", "day": 1}, {"id": "B-7", "day": 2}, "b-7: no day 1", "…: no day …"),
        ({"page": 40}, {"page": 4}, "HTTP 404 after page 40", "HTTP 404 after page …"),
        ({"to": "Ann"}, {"to": "Bob"}, "Ann is unknown", "Ann is unknown"),
        ({"v": "1" * 5_000}, {"v": "x1"}, "no \u0661 and x1", "no \u0661 and …"),
    ],
)
def test_bullet_names_no_value_of_one_run(failed, worked, message: str, pattern: str) -> None:
    rows = [
        *call("pay", failed | {"kind": "card"}, "", error={"message": message}),
        *call("pay", worked | {"kind": "card"}, "done"),
    ]
    (fact,) = facts(rows, FactKind.CORRECTED_CALL)
    assert fact.values["pattern"] == pattern


def test_other_command_is_no_other_argument() -> None:
    rows = [
        *call("bash", {"command": "make"}, "", exit_code=2),
        *call("bash", {"command": "make all"}, "", exit_code=0),
    ]
    assert rules(rows) == []


def test_other_command_is_no_correction() -> None:
    """A command that ended with an exit code was carried out: another one is another call."""
    status = call("bash", {"command": "kubectl rollout status"}, "", exit_code=1)
    pods = call("bash", {"command": "kubectl get pods"}, "0/1", exit_code=0)
    text = call("bash", "make build", "", exit_code=2) + call("bash", "make all", "", exit_code=0)
    assert facts([*status, *pods, *text], FactKind.CORRECTED_CALL) == []
    rejected = call("bash", {"command": "ls; cd"}, "", error={"message": "only one"})
    accepted = call("bash", {"command": "ls"}, "a", exit_code=0)
    assert len(facts([*rejected, *accepted], FactKind.CORRECTED_CALL)) == 1


BUSY: dict[str, Any] = {"error": {"message": "device busy"}}


def test_identical_call_that_worked_later() -> None:
    busy = [row for _ in range(2) for row in call("read_plate", {"well": "C4"}, "", **BUSY)]
    rows = [*busy, *call("read_plate", {"well": "C4"}, "0.31")]
    for row, second in zip(rows, range(0, 60, 10), strict=True):
        row["timestamp"] = f"2026-11-24T10:00:{second:02d}Z"
    result = reflection(rows, "failure")
    assert result is not None
    assert "“device busy”. An identical call succeeded on attempt 3, 40.0 seconds later (e4)." in (
        result.reflection_text
    )
    assert result.rules == []
    for kind in (FactKind.CORRECTED_CALL, FactKind.REPEATED_CALL):
        assert facts(rows, kind) == []
    timeout = {"error_category": "timeout_error", "error_message": "timed out"}
    assert rules(rows, error=timeout) == []


def test_changed_argument_is_no_correction_if_the_first_one_worked_too() -> None:
    rows = [
        *call("read_plate", {"well": "C4"}, "", **BUSY),
        *call("read_plate", {"well": "C5"}, "0.30"),
        *call("read_plate", {"well": "C4"}, "0.31"),
    ]
    assert facts(rows, FactKind.CORRECTED_CALL) == []
    (retried,) = facts(rows, FactKind.RETRIED_CALL)
    assert (retried.values["attempts"], retried.values["seconds"]) == (2, None)


def test_response_that_changes_later_gives_no_advice() -> None:
    busy = call("read_plate", {"well": "C4"}, "busy")
    rows = [*busy, *busy, *busy, *call("read_plate", {"well": "C4"}, "0.31")]
    result = reflection(rows, "failure")
    assert result is not None
    assert "A later identical call did not return it." in result.reflection_text
    assert result.rules == []


def test_strategies_that_say_the_same_are_one() -> None:
    failed = call("search", {"text": "x"}, "", **FAILED)
    other = call("lookup", {"key": "x"}, "", **FAILED)
    (both,) = rules([*failed, *failed, *other, *other])
    assert both.startswith("When a call fails again")
    timeout = {"error_category": "timeout_error", "error_message": "timed out"}
    (stated,) = rules([*failed, *failed], error=timeout)
    assert stated.startswith("When a call times out")
    again = call("get_user", {"user_id": "u-7"}, "", error={"message": "no such user"})
    known = call("get_user", {"user_id": "u-9"}, "Ann")
    assert len(rules([*CORRECTED, *again, *again, *known])) == 1


def test_identical_call_without_effect() -> None:
    failed = call("search", {"text": "x"}, "", **FAILED)
    assert rules([*failed, *failed]) == [
        "When a call fails again with the same arguments, change them, use another tool, or wait "
        "before another attempt."
    ]
    same = call("search", {"text": "x"}, "0 results")
    assert rules([*same, *same]) == []
    assert rules([*same, *same, *same])[0].startswith("When a call returns the same response")
    assert rules([*same, *same, *same], "success") == []


def test_tests_that_fail_again_give_no_advice() -> None:
    check = call("bash", {"command": "pytest"}, "1 failed", exit_code=1)
    assert rules([*check, *check]) == []


@pytest.mark.parametrize("category", list(ErrorCategory))
def test_advice_only_for_a_category_that_the_client_stated(category: ErrorCategory) -> None:
    error = {"error_category": category.value, "error_message": "it timed out"}
    stated = rules([user("Do it now.")], error=error)
    has_advice = category.value in (
        "timeout_error",
        "network_error",
        "permission_error",
        "validation_error",
    )
    assert bool(stated) == has_advice
    assert rules([user("Do it now.")], error={"error_message": "it timed out"}) == []


def test_text_states_task_outcome_and_facts_with_event_ids() -> None:
    result = reflection(ENGLISH, "failure")
    assert result is not None
    text = result.reflection_text
    assert text.startswith("Task: “Find the user Ann for me.” Outcome: failure.")
    assert "The call e1 of `get_user` failed: “user not found”." in text
    assert "The last message of the agent is e5: “It is Ann.”" in text
    assert result.source_event_ids[:2] == ["e3", "e1"]
    japanese = reflection(JAPANESE, "failure")
    assert japanese is not None
    assert japanese.reflection_text.startswith(
        "タスク：「ユーザーのアンを探してください。」結果：失敗。"
    )
    assert "失敗した：「user not found」" in japanese.reflection_text


def test_plain_success_tells_nothing() -> None:
    assert reflection([user("Hello there, you."), says("Hi.")], "success") is None


def test_every_kind_of_fact_has_a_sentence_in_both_languages() -> None:
    """Facts of many runs, each rendered: no template fails, none is empty."""
    won = Attempt(WON, [Event.model_validate(row) for row in call("pay", {"a": 1}, "ok")])
    truth = {"answer": "4", "actions": [{"name": "mail"}], "outputs": ["4"]}
    report = junit(test_sum="assert 3 == 4")
    paid, looked = call("pay", {"a": 2}, "ok"), call("look", {"a": 2}, "ok")
    tested = call("sh", "pytest", "1 failed", exit_code=1)
    retried = [*call("scan", {"a": 1}, "", **FAILED), *call("scan", {"a": 1}, "ok")]
    rows = [
        *ENGLISH, *paid, *looked, *looked, *retried, *tested,
        {"event_type": "error_event", "content": "Boom"},
        says("It is 55."), user("No: always use `uv run`."), says("It is 77."),
    ]  # fmt: skip
    found = facts(rows, attempts=[won], ground_truth=truth, test_report=report)
    assert {fact.kind for fact in found} == set(FactKind)
    for language in ("en", "ja"):
        for names_attempts in (False, True):
            sentences = fact_sentences(found, language, names_attempts=names_attempts)
            assert len(sentences) == len(found)
            assert not [s for s in sentences if re.search(r"\{|\}|None|Undefined|  ", s)]
    assert render("xx", "opening", "Do it", "failure") == "Task: “Do it”. Outcome: failure."


# Lessons from comparing attempts

Call = tuple[str, dict[str, Any]]
LOOK: Call = ("get_order", {"id": "7"})
PAY: Call = ("send_refund", {"id": "7", "amount": "10"})
WRONG: Call = ("send_refund", {"id": "7", "amount": "99"})


def strategies(outcome: str, *calls: Call, attempts: list[Attempt]) -> list[Strategy]:
    rows = [row for tool, arguments in calls for row in call(tool, arguments, "ok")]
    found = facts(rows, FactKind.DIFFERENCE, outcome=outcome, attempts=attempts)
    return find_differences("en", found)


def attempt(outcome: OutcomeType, *calls: Call) -> Attempt:
    rows = [row for tool, arguments in calls for row in call(tool, arguments, "ok")]
    return Attempt(outcome, [Event.model_validate(row) for row in rows])


def test_what_successful_attempts_did() -> None:
    (tool,) = strategies("success", LOOK, PAY, attempts=[attempt(LOST, PAY)])
    assert tool.text == (
        "Call `get_order`: of the attempts at this task, all successful ones called it and no "
        "failed one did."
    )
    (argument,) = strategies("failure", WRONG, attempts=[attempt(WON, PAY)])
    assert argument.text.startswith("Call `send_refund` with `amount=10`: of the attempts")
    (order,) = strategies("failure", PAY, LOOK, attempts=[attempt(WON, LOOK, PAY)])
    assert order.text.startswith("Call `get_order` before `send_refund`:")


def test_tool_of_failures_is_named_only_if_it_changes_something() -> None:
    assert strategies("failure", LOOK, PAY, attempts=[attempt(WON, PAY)]) == []


def test_task_has_at_most_three_lessons() -> None:
    new = [Strategy(f"lesson {n}") for n in range(5)]
    assert len(choose_differences(new)) == MAX_LESSONS_PER_TASK
    known = [TaskLesson(f"lesson {n}", True) for n in range(3)]
    assert [s.text for s in choose_differences(new, known)] == ["lesson 0", "lesson 1", "lesson 2"]
    assert choose_differences(new[3:], known) == []


def test_scores_never_fall_when_evidence_grows() -> None:
    rows: list[Row] = [user("Find Ann.")]
    before = (0.0, 0.0)
    for number in range(6):
        rows += call("get_user", {"user_id": f"u-{number}"}, "", is_error=True)
        scores = calculate_scores(OutcomeType.FAILURE, facts(rows))
        assert all(0 <= old < new <= 1 for old, new in zip(before, scores, strict=True))
        before = scores


def test_nothing_is_said_twice() -> None:
    rows = [
        user("Book it (19 % VAT)."),
        *(event for _ in range(3) for event in call("book", {"id": "7"}, "full", is_error=True)),
        says("No room."),
    ]
    result = reflection(rows, task_description="Book room 7 (19 % VAT).")
    assert result is not None
    text = result.reflection_text
    assert text.startswith("Task: “Book room 7 (19 % VAT).” Outcome: failure. The same call was")
    assert text.count("“full”") == 1
    assert "The trace ends" not in text


def test_wrong_answer_is_quoted_once_and_has_no_category() -> None:
    context = run([user("Capital?"), says("Lyon")], "failure")
    result = reflect_by_rules(
        context, analyze_trace(context, ground_truth={"answer": "Paris", "match": "exact"})
    )
    assert result is not None
    assert result.reflection_text.count("Lyon") == 1
    assert result.error_category is ErrorCategory.UNKNOWN_ERROR
