"""What the facts of a trace state, and what they leave open."""

from __future__ import annotations

from typing import Any

import pytest

from memory_api.trace_analysis.attempts import Attempt
from memory_api.trace_analysis.calls import agent_steps
from memory_api.trace_analysis.facts import Fact, FactKind
from memory_api.trace_analysis.message_facts import states_rule
from memory_api.traces.schemas import Event, OutcomeType
from tests.support.cases import each_case
from tests.support.runs import Row, call, facts, run, says, user

FAILED: dict[str, Any] = {"error": {"message": "user not found"}}


def only(rows: list[Row], kind: FactKind, **more: Any) -> Fact:
    (fact,) = facts(rows, kind, **more)
    return fact


def test_trace_ends_with_a_failed_call_only_if_nothing_follows() -> None:
    rows = [user("Find Ann."), *call("get_user", {"user_id": "u-8"}, "nothing", **FAILED)]
    assert only(rows, FactKind.FAILED_CALL).values["is_last"]
    assert not only([*rows, says("I give up.")], FactKind.FAILED_CALL).values["is_last"]


def test_only_argument_that_changed_is_a_correction() -> None:
    rows = [
        *call("list_users", {}, "u-9: Ann"),
        *call("get_user", {"user_id": "u-8"}, "nothing", **FAILED),
        *call("get_user", {"user_id": "u-9"}, "Ann"),
    ]
    fact = only(rows, FactKind.CORRECTED_CALL)
    assert fact.event_ids == ("e4", "e2")
    assert fact.values["changes"] == [{"name": "user_id", "before": "u-8", "after": "u-9"}]
    assert fact.values["source"] == {
        "argument": "user_id",
        "tool": "list_users",
        "event_id": "e1",
    }, "a value that was found before the failure is a source too"


def test_other_subject_is_no_correction() -> None:
    rows = [
        *call("book", {"city": "Rome", "day": "2"}, "full", **FAILED),
        *call("book", {"city": "Oslo", "day": "5"}, "booked"),
    ]
    assert facts(rows, FactKind.CORRECTED_CALL) == []
    assert only(rows, FactKind.FAILED_CALL).values["works_later"] is True


def test_text_of_a_response_with_an_error_field_is_quoted() -> None:
    fact = only(call("get", {"id": 1}, "x", error={"message": "gone"}), FactKind.FAILED_CALL)
    assert (fact.event_ids, fact.values["message"]) == (("e0",), "gone")


def test_repetition_needs_the_same_response() -> None:
    rows = [*call("status", {"id": 1}, "running"), *call("status", {"id": 1}, "done")]
    assert facts(rows, FactKind.REPEATED_CALL) == []
    fact = only([*rows[:2], *rows[:2], *rows[:2]], FactKind.REPEATED_CALL)
    assert (fact.values["count"], fact.values["has_failed"]) == (3, False)


@each_case(
    ("answer", "response", "missing"),
    [
        ("It costs 18.50 EUR.", "price: 18.5", []),
        ("Es kostet 1.250,50 EUR.", "1250.50", []),
        ("In total 1,250.", '{"sum": 1250}', []),
        ("It is 77 years old.", "born 1947", ["77"]),
        ("Step 3 is done.", "ok", []),
    ],
)
def test_numbers_without_a_source(answer: str, response: str, missing: list[str]) -> None:
    found = facts(
        [user("How much?"), *call("get", {"id": 1}, response), says(answer)], FactKind.UNSOURCED
    )
    numbers = [number for fact in found for number in fact.values["numbers"]]
    assert [n.split()[0] for n in numbers] == missing


def test_roles_of_a_chat_are_no_agents() -> None:
    rows = [{**says("Hi"), "agent": "assistant"}, {**says("Go on"), "agent": "User"}]
    assert agent_steps(run(rows).events) == {}
    team = [says("a", "Planner"), says("b", "Coder"), says("c", "Coder (thought)")]
    assert agent_steps(run(team).events) == {"Planner": 1, "Coder": 2}


@pytest.mark.parametrize(
    "text",
    [
        "No, wrong: you must always use `uv run`. Remember that.",
        "Stop. Never push to main.",
        "That's wrong, from now on ask me first.",
        "Please remember that we write dates as ISO.",
        "違います。必ずuv runを使ってください。",
        "今後は必ず確認してください。",
    ],
)
def test_correction_states_a_rule(text: str) -> None:
    assert states_rule(text)


@pytest.mark.parametrize(
    "text",
    [
        "No, that never worked.",
        "No, it must be the other one.",
        "No, you should not have done that.",
        "Do you always do that?",
        "I always liked it, thanks.",
        "No thanks.",
        "Yes, always.",
        "いいえ、必ず届きます",
        "ありがとうございます。",
    ],
)
def test_other_messages_state_no_rule(text: str) -> None:
    assert not states_rule(text)


def test_rule_of_the_user_is_verbatim_and_after_the_agent() -> None:
    rule = "No: always use `uv run`."
    assert facts([user(rule), says("OK")], FactKind.USER_RULE) == []
    fact = only([user("Run it."), says("Done."), user(rule)], FactKind.USER_RULE)
    assert (fact.event_ids, fact.values["text"]) == (("e2", "e1"), rule)


def test_client_marks_a_rule_in_any_language() -> None:
    rule = "Nein, falsch: du musst immer `uv run` benutzen. Merk dir das."
    marked = {**user(rule), "metadata": {"rule": True}}
    assert facts([user("Los."), says("OK"), user(rule)], FactKind.USER_RULE) == []
    fact = only([user("Los."), says("Fertig."), marked], FactKind.USER_RULE)
    assert (fact.event_ids, fact.values["text"]) == (("e2", "e1"), rule)
    assert only([marked, says("OK")], FactKind.USER_RULE).event_ids == ("e0",)
    unmarked = {**user(rule), "metadata": {"rule": "true"}}
    assert facts([user("Los."), says("OK"), unmarked], FactKind.USER_RULE) == []


def test_expected_calls_and_answer() -> None:
    rows = [*call("pay", {"amount": 9}, "ok"), says("Paid.")]
    truth = {"actions": [{"name": "pay", "kwargs": {"amount": 10}}, {"name": "mail"}]}
    changed, missing = facts(rows, FactKind.EXPECTATION, ground_truth=truth)
    assert (changed.event_ids, changed.values["deviation"]) == (("e0",), "changed")
    assert (missing.values["deviation"], missing.values["tool"]) == ("missing", "mail")
    answer = only([says("Paris")], FactKind.EXPECTATION, ground_truth="paris")
    assert answer.values["met"] is True


# Attempts at one task

Call = tuple[str, str]
LOOK: Call = ("look_up", '{"id": "7"}')
PAY: Call = ("pay", '{"id": "7", "amount": "10"}')
WRONG: Call = ("pay", '{"id": "7", "amount": "99"}')
WON, LOST = OutcomeType.SUCCESS, OutcomeType.FAILURE


def rows_of(*calls: Call) -> list[Row]:
    return [row for tool, arguments in calls for row in call(tool, arguments, "ok")]


def attempt(outcome: OutcomeType, *calls: Call) -> Attempt:
    return Attempt(outcome, [Event.model_validate(row) for row in rows_of(*calls)])


def differences(attempts: list[Attempt], *calls: Call, outcome: str = "failure") -> list[Fact]:
    found = facts(rows_of(*calls), FactKind.DIFFERENCE, outcome=outcome, attempts=attempts)
    return [fact for fact in found if fact.values["aspect"] != "compared"]


def test_tool_of_successes_only_has_its_counts() -> None:
    earlier = [attempt(WON, LOOK, PAY), attempt(WON, LOOK, PAY), attempt(LOST, PAY)]
    (fact,) = [f for f in differences(earlier, PAY) if f.values["aspect"] == "tool"]
    assert (fact.values["tool"], fact.values["side"]) == ("look_up", "successful")
    assert (fact.values["successful"], fact.values["failed"]) == (2, 2)
    assert fact.values["examples"] == ["a2.e0000"]


def test_arguments_that_differ() -> None:
    (fact,) = differences([attempt(WON, PAY)], WRONG)
    assert fact.values["aspect"] == "argument"
    assert fact.values["changes"] == [{"name": "amount", "successful": "10", "failed": "99"}]
    assert fact.event_ids == ("e0",)


def test_order_of_two_tools() -> None:
    (fact,) = differences([attempt(WON, LOOK, PAY)], PAY, LOOK)
    assert (fact.values["aspect"], fact.values["first"]) == ("order", "look_up")


def test_tool_of_one_of_two_successes_is_no_difference() -> None:
    earlier = [attempt(WON, LOOK, PAY), attempt(WON, PAY), attempt(LOST, PAY)]
    assert [f for f in differences(earlier, PAY) if f.values["aspect"] == "tool"] == []


def test_partial_and_crashed_attempts_are_not_compared() -> None:
    for other in (OutcomeType.PARTIAL, OutcomeType.ERROR):
        assert differences([attempt(other, PAY)], LOOK, outcome="success") == []
    assert differences([attempt(LOST, PAY)], LOOK) == []


def test_same_calls_are_counted() -> None:
    (fact,) = differences([attempt(LOST, PAY), attempt(LOST, PAY)], PAY)
    assert (fact.values["aspect"], fact.values["count"]) == ("same_calls", 2)
