"""The facts about code blocks, messages between agents, and arguments that only look the same."""

from __future__ import annotations

from typing import Any

import pytest

from memory_api.reflection.facts import collect_facts
from memory_api.trace_analysis.analyze import analyze_trace
from memory_api.trace_analysis.parser import parse_trace
from tests.support.runs import Row, call, run, says, user


def facts(rows: list[Row], **more: Any) -> list[str]:
    context = run(rows, **more)
    trace = parse_trace(context.events, context.task_description, context.task_goal, context.tools)
    return collect_facts(context, trace, analyze_trace(context))


def output(text: str, exit_code: int = 0) -> Row:
    content = f"exitcode: {exit_code}\nCode output: {text}"
    return {"event_type": "tool_response", "tool_name": "sh", "content": content, "agent": "Host"}


def code(text: str, language: str = "python") -> Row:
    return says(f"I compute it.\n```{language}\n{text}\n```", "Coder")


def by(agent: str, rows: list[Row]) -> list[Row]:
    return [row | {"agent": agent} for row in rows]


FAILED_CODE = [
    user("What is the median of the ratings?"),
    says("Coder, compute it.", "Boss"),
    *by("Reader", call("preview", {"path": "a.csv"}, "ratings: 3.5, 4.0")),
    code("print(medain(ratings))"),
    output("NameError: name 'medain' is not defined", 1),
    code("from statistics import median\nprint(median(ratings))"),
    output("4.0"),
    says("FINAL ANSWER: 4.0", "Boss"),
]


def test_code_block_is_not_named_like_a_tool() -> None:
    shown = facts(FAILED_CODE)
    assert "Calls by tool: `preview` (1)." in shown
    assert "Code blocks of agent messages that count as tool calls: python (2)." in shown
    assert "The python code in e4 failed: “NameError: name 'medain' is not defined”" in shown
    assert (
        "The python code in e4 failed; the next python code that returned no error is in e6. "
        "It differs."
    ) in shown
    assert "`python`" not in " ".join(shown)


def test_all_responses_with_a_value_are_named() -> None:
    assert "Values of e8 that a tool response contains: 4.0 (e3, e7)." in facts(FAILED_CODE)


def test_agents_without_a_call_are_named() -> None:
    shown = facts(FAILED_CODE)
    assert "Messages and calls by agent: Boss (2), Coder (2), Reader (1)." in shown
    assert "Agents that made no call: Boss." in shown


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ('{"number": 14}', 'differ only in types, case, spaces or order: before {"number": "14"}'),
        ('{"number": "14"}', "the same call returned no error in e2."),
    ],
)
def test_arguments_of_another_type_are_not_the_same(second: str, words: str) -> None:
    rows = [
        *call("look_up", '{"number": "14"}', "Error: number has to be an integer"),
        *call("look_up", second, "silicon"),
    ]
    (fact,) = [fact for fact in facts(rows) if "returned no error" in fact]
    assert words in fact


def test_repeated_calls_with_another_notation_are_marked() -> None:
    rows = [
        *call("look_up", '{"number": "14"}', "Error: away"),
        *call("look_up", '{"number": 14}', "Error: away"),
    ]
    (fact,) = [fact for fact in facts(rows) if "same call" in fact]
    assert fact.startswith("The same call, apart from types, case, spaces or order, was made 2")


def test_message_to_another_agent_is_no_answer_to_the_user() -> None:
    rows = [
        user("Which country is it?"),
        *by("Surfer", call("visit", {"page": "a"}, "The table has four rows.")),
        says("I can't read the text.", "Surfer"),
        says("FINAL ANSWER: unknown", "Boss"),
    ]
    assert "The message e3 says: “I can't read the text.”" in facts(rows)


def test_call_is_not_called_a_message() -> None:
    rows = [
        user("Which page is it?"),
        *by("Surfer", call("open", {"page": "Annals 1871", "row": 48}, "nothing here")),
        says("FINAL ANSWER: unknown", "Boss"),
    ]
    (fact,) = [fact for fact in facts(rows) if "no earlier event contains" in fact]
    assert fact.startswith("The call e1 has values")


def test_part_of_a_time_is_no_value() -> None:
    rows = [
        user("When does it land?"),
        says("It lands at 11:15, or at 14:21 on the 640 line.", "Coder"),
        says("FINAL ANSWER: later", "Boss"),
    ]
    (fact,) = [fact for fact in facts(rows) if "no earlier event contains" in fact]
    assert fact.endswith("contains: 640.")


def test_errors_and_exit_codes_are_one_figure() -> None:
    rows = [
        *call("run", "make", "2 of 9 checks", metadata={"exit_code": 1}),
        *call("run", "ls", "a", metadata={"exit_code": 0}),
    ]
    figure = "of them failed,"
    assert f"2 tool calls, 1 {figure}" in facts(rows)[0]
    rows += call("run", "cat x", "no such file", error={"message": "no such file"})
    assert f"3 tool calls, 2 {figure}" in facts(rows)[0]


@pytest.mark.parametrize(
    ("answer", "fact"),
    [
        ("0.0", "Values of e3 that no tool response contains: 0.0 (in no earlier event)."),
        ("1844.20", "Values of e3 that a tool response contains: 1844.20 (e2)."),
        ("1844.2", "Values of e3 that a tool response contains: 1844.2 (e2)."),
        ("1844.02", "Values of e3 that no tool response contains: 1844.02 (in no earlier event)."),
    ],
)
def test_decimal_is_found_as_a_number_but_zero_is_no_decimal(answer: str, fact: str) -> None:
    rows = [user("Sum it."), code("print(total)"), output("1844.20"), says(answer, "Boss")]
    assert fact in facts(rows)


def test_answer_is_found_before_a_message_without_one() -> None:
    rows = [
        user("In which month was the median highest?"),
        code("print(months)"),
        output("1 14.9\n2 17.8\n3 15.1"),
        says("The mean of March is 18.9, the highest median is that of February: 17.8.", "Coder"),
        says("FINAL ANSWER: March, 18.9", "Writer"),
        says("next: FINISH", "Boss"),
    ]
    context = run(rows, outcome="failure")
    trace = parse_trace(context.events)
    truth = "February, 17.8"
    shown = collect_facts(context, trace, analyze_trace(context, ground_truth=truth), truth)
    assert "The agent's last message is e5: “next: FINISH”" in shown
    assert "The last message that introduces an answer is e4: “FINAL ANSWER: March, 18.9”" in shown
    assert not any("Coder (e3) states" in fact for fact in shown)


def test_quotation_of_outputs_that_start_alike_is_literal() -> None:
    page = call("click", {"target": "next"}, "Report of 2017 [no text] Page 3")
    rows = [user("How many bats?"), *(row | {"agent": "Surfer"} for _ in range(3) for row in page)]
    rows = [row | {"content": f"{row['content']} {n}"} for n, row in enumerate(rows)]
    shown = [fact for fact in facts([*rows, says("Unknown.", "Boss")]) if "start alike" in fact]
    assert len(shown) == 1
    assert "“Report of 2017 [no text] Page 3" in shown[0]
