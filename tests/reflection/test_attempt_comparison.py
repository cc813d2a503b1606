"""The differences between the attempts at one task, as a model is shown them."""

from __future__ import annotations

import re
from dataclasses import replace

from memory_api.reflection.attempt_comparison import comparison_lines
from memory_api.trace_analysis.context import Attempt
from memory_api.traces.schemas import Event, EventType, OutcomeType
from memory_api.traces.tools import ToolDefinition

WON, LOST = OutcomeType.SUCCESS, OutcomeType.FAILURE
Call = tuple[str, str]
LOOK: Call = ("look_up", '{"id": "7"}')
SUM: Call = ("calculate", '{"x": "1 + 1"}')
PAY: Call = ("pay", '{"id": "7", "amount": "10"}')
WRONG: Call = ("pay", '{"id": "7", "amount": "99"}')


def attempt(outcome: OutcomeType, *calls: Call) -> Attempt:
    events: list[Event] = []
    for tool, arguments in calls:
        events.append(Event(event_type=EventType.TOOL_CALL, tool_name=tool, content=arguments))
        events.append(Event(event_type=EventType.TOOL_RESPONSE, tool_name=tool, content="ok"))
    return Attempt(outcome, events)


def test_one_attempt_on_a_side_gives_counts() -> None:
    lines = comparison_lines([attempt(WON, SUM, PAY)], attempt(LOST, PAY))
    assert lines[0] == "Compared: 1 successful attempt (a1) and 1 failed attempt (this run)."
    line = "`calculate` was called in 1 of 1 successful and in 0 of 1 failed attempts."
    assert lines[1:] == [f"{line} `calculate`(x=1 + 1) (a1.e0000)."]
    assert not any("all" in line.split() for line in lines)


def test_two_attempts_on_each_side_support_a_rule() -> None:
    earlier = [attempt(WON, SUM, PAY), attempt(WON, PAY, SUM), attempt(LOST, PAY)]
    lines = comparison_lines(earlier, attempt(LOST, PAY))
    line = "`calculate` was called in all 2 successful attempts and in no failed one."
    assert lines[1:] == [f"{line} `calculate`(x=1 + 1) (a2.e0002)."]


def test_call_that_only_this_failure_lacks_is_shown() -> None:
    """Attempts fail for different reasons: a2 paid, this run did not."""
    earlier = [attempt(WON, LOOK, PAY), attempt(LOST, PAY)]
    lines = comparison_lines(earlier, attempt(LOST, LOOK))
    assert lines[1:] == [
        "Not made in this run, but in 1 of 1 successful attempts and in another failed one: "
        "`pay`(id=7, amount=10) (a1.e0002)."
    ]


def test_call_that_returned_nothing_is_shown_last() -> None:
    def run(outcome: OutcomeType, thought: str, paid: Call) -> Attempt:
        made = attempt(outcome, ("think", f'{{"thought": "{thought}"}}'), paid)
        silent = made.events[1].model_copy(update={"content": ""})
        return Attempt(outcome, [made.events[0], silent, *made.events[2:]])

    lines = comparison_lines([run(WON, "first", PAY)], run(LOST, "second", WRONG))
    assert [line.split(":")[0] for line in lines[1:]] == ["`pay`", "`think`"]


def test_calls_that_change_something_come_first() -> None:
    """Then those whose effect is not known; reads and calculations come last."""
    tools = [ToolDefinition(name="pay", writes=True), ToolDefinition(name="look_up", writes=False)]
    ask: Call = ("ask", '{"who": "the bank"}')
    won = attempt(WON, SUM, LOOK, ask, PAY)
    lost = attempt(LOST, ("calculate", '{"x": "2 + 2"}'), ("look_up", '{"id": "8"}'), WRONG)
    runs = [replace(run, tools=tools) for run in (won, lost)]
    lines = comparison_lines(runs[:1], runs[1])
    assert [re.findall("`(\\w+)`", line)[0] for line in lines[1:]] == [
        "pay", "ask", "calculate", "look_up"
    ]  # fmt: skip
    truth = {"actions": [{"name": "ask", "kwargs": {"who": "the bank"}}]}
    by_truth = comparison_lines([won], lost, truth)
    assert by_truth[1].startswith("`ask`"), "the right answer names it"


def test_only_the_first_differences_are_listed() -> None:
    many = [("note", f'{{"text": "{number}"}}') for number in range(20)]
    lines = comparison_lines([attempt(WON, *many, PAY)], attempt(LOST, many[0], PAY))
    assert len(lines) == 14
    assert lines[-1] == "7 more differences are not listed."


def test_tool_of_one_of_two_successes_is_no_difference() -> None:
    earlier = [attempt(WON, SUM, PAY), attempt(WON, PAY), attempt(LOST, PAY)]
    assert not any("calculate" in line for line in comparison_lines(earlier, attempt(LOST, PAY)))


def test_all_failures_are_compared() -> None:
    """A call of one failure is no difference if another failure does not have it."""
    earlier = [attempt(LOST, LOOK, WRONG), attempt(LOST, LOOK, PAY)]
    text = " ".join(comparison_lines(earlier, attempt(WON, PAY)))
    assert "2 failed attempts (a1, a2)" in text
    assert "amount" not in text, "a2 paid the same amount as the successful run"


def test_arguments_are_shown_where_they_differ() -> None:
    def note(end: str) -> Call:
        return ("pay", '{"note": "' + "the same long beginning, " * 20 + end + '"}')

    (line,) = comparison_lines([attempt(LOST, note("ten"))], attempt(WON, note("two")))[1:]
    assert "successful …" in line
    assert "two, failed …" in line
    assert "ten (e0000 and a1.e0000)" in line
    assert len(line) < 500


def test_partial_attempts_and_one_sided_tasks_are_not_compared() -> None:
    assert comparison_lines([attempt(OutcomeType.PARTIAL, PAY)], attempt(LOST, PAY)) == []
    assert comparison_lines([attempt(LOST, PAY)], attempt(LOST, LOOK)) == []


def test_failed_calls_are_not_compared() -> None:
    """The first card of the successful attempt was refused; its second one was right."""
    won = attempt(WON, ("pay", '{"card": "1111"}'), ("pay", '{"card": "2222"}'))
    refused = Event(
        event_type=EventType.TOOL_RESPONSE, tool_name="pay", content="Error: no such card"
    )
    won = Attempt(WON, [won.events[0], refused, *won.events[2:]])
    text = " ".join(comparison_lines([won], attempt(LOST, ("pay", '{"card": "3333"}'))))
    assert "successful 2222, failed 3333" in text
    assert "1111" not in text


def test_call_with_an_exit_code_is_not_compared() -> None:
    won = attempt(WON, ("sh", "make all"), ("sh", "make dist"))
    stopped = won.events[1].model_copy(update={"metadata": {"exit_code": 2}})
    won = Attempt(WON, [won.events[0], stopped, *won.events[2:]])
    text = " ".join(comparison_lines([won], attempt(LOST, ("sh", "make test"))))
    assert "dist" in text
    assert "all" not in text


def test_attempts_that_an_error_ended_are_not_compared() -> None:
    crashed = attempt(OutcomeType.ERROR, LOOK)
    earlier = [crashed, attempt(LOST, WRONG), attempt(WON, PAY)]
    lines = comparison_lines(earlier, attempt(LOST, WRONG))
    assert lines[0] == (
        "Compared: 1 successful attempt (a3) and 2 failed attempts (a2, this run). "
        "Not compared: a1, ended by an error."
    )
    assert not any("look_up" in line for line in lines)
    assert comparison_lines([attempt(WON, PAY)], crashed) == []
