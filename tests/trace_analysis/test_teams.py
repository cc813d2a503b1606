"""Runs of several agents: roles, code and its output, where the answer came from, the decisive
step.
"""

from __future__ import annotations

import json

from memory_api.reflection.rules.reflect import reflect
from memory_api.reflection.schemas import ReflectionResult
from memory_api.trace_analysis.decisive_step import MAX_RANKED
from memory_api.trace_analysis.team import Role, code_blocks, parse_exit_code, parse_steps
from memory_api.trace_analysis.values import numbers_in
from memory_api.traces.schemas import Event
from tests.support.runs import Row, findings, reflection, run, says, user

TASK = (
    "How many of the 37 ferries that left Port Ellen in June 2021 were late by more than "
    "20 minutes?"
)


def reflection_with(rows: list[Row], ground_truth: str) -> ReflectionResult:
    result = reflect(run(rows), ground_truth=ground_truth)
    assert result is not None
    return result


def code(text: str) -> str:
    return f"I compute it.\n```python\n{text}\n```"


def output(text: str, exit_code: int = 0) -> Row:
    state = "succeeded" if exit_code == 0 else "failed"
    return says(f"exitcode: {exit_code} (execution {state})\nCode output: {text}", "Terminal")


def roles(rows: list[Row]) -> list[Role]:
    events = [Event.model_validate(row) for row in rows]
    return [step.role for step in parse_steps(events, [str(n) for n in range(len(rows))], TASK)]


COUNTED = [
    user(TASK),
    says(code("late = [d for d in delays if d > 30]\nprint(len(late))"), "Analyst"),
    output("11"),
    says("The count looks right.", "Checker"),
    says("FINAL ANSWER: 11", "Checker"),
]


def test_roles_come_from_the_shape_of_events() -> None:
    ledger = json.dumps(
        {"done": {"answer": False, "reason": "x"}, "next_speaker": {"answer": "Web", "reason": "y"}}
    )
    rows = [
        says(f"Task: {TASK}\nPlan: count them.", "Lead"),
        says("First find the list.", "Boss (thought)"),
        says(f"Ledger:\n{ledger}", "Boss (thought)"),
        says("Open the timetable.", "Boss (-> Web)"),
        says("I opened https://ferries.example/june. The page lists 37 departures.", "Web"),
        says("Next speaker Coder", "Boss (thought)"),
        says(code("print(1)"), "Coder"),
        output("1"),
    ]
    assert roles(rows) == [
        Role.TASK,
        Role.COORDINATOR,
        Role.BOOKKEEPING,
        Role.COORDINATOR,
        Role.WORKER,
        Role.BOOKKEEPING,
        Role.WORKER,
        Role.OUTPUT,
    ]


def test_one_agent_is_no_team() -> None:
    assert roles([user(TASK), says("11", "Analyst")]) == []
    assert findings([user(TASK), says("11", "Analyst")]).team is None


def test_code_and_output_are_a_call() -> None:
    rows = [COUNTED[0], COUNTED[1], output("NameError: name 'delays' is not defined", 1)]
    found = findings(rows)
    assert [(f.tool, f.event_id, f.response_event_id) for f in found.failed_calls] == [
        ("python", "e1", "e2")
    ]
    assert found.failed_calls[0].message == "NameError: name 'delays' is not defined"


def test_exit_codes_and_code_blocks() -> None:
    assert parse_exit_code("exitcode: 1 (execution failed)") == 1
    assert parse_exit_code("The script ran, then exited with Unix exit code: 0") == 0
    assert parse_exit_code("The exit is on the left.") is None
    assert code_blocks("a\n```python\nx = 1\n```\nb\n```\ny\n```") == [
        ("python", "x = 1"),
        ("", "y"),
    ]


def test_answer_is_traced_to_the_code_that_printed_it() -> None:
    origin = findings(COUNTED).answer_origin
    assert origin is not None
    assert (origin.kind, origin.value, origin.author, origin.author_event_id) == (
        "output",
        "11",
        "Analyst",
        "e1",
    )
    assert findings(COUNTED).decisive_event_ids[0] == "e1"


def test_answer_that_nothing_supports() -> None:
    rows = [
        user(TASK),
        says(code("print(load('june.csv'))"), "Analyst"),
        output("FileNotFoundError: june.csv", 1),
        says(
            "From memory, the ferries Isle Rose, Clan Morag and Sea Lark were late: 14.", "Expert"
        ),
        says("I agree with the list. FINAL ANSWER: 14", "Checker"),
    ]
    found = findings(rows)
    assert found.answer_origin is not None
    assert (found.answer_origin.kind, found.answer_origin.output_event_id) == ("message", None)
    assert found.answer_origin.author_event_id == "e3"
    assert [s.event_id for s in found.unsupported_statements] == ["e3"]
    assert (found.unresolved_outputs[0].event_id, found.unresolved_outputs[0].next_event_id) == (
        "e1",
        "e3",
    )
    assert set(found.decisive_event_ids[:2]) == {"e1", "e3"}
    result = reflection(rows)
    assert result is not None
    assert "No output and no reported page or file contains it." in result.reflection_text
    assert "The code of Analyst (e1) ended with exit code 1 (e2)." in result.reflection_text
    assert (result.strategy_text or "").startswith("When code fails or prints nothing")


def test_part_of_the_task_that_nobody_mentions() -> None:
    omitted = findings(COUNTED).omitted_constraint
    assert omitted is not None
    assert {"2021", "Port Ellen", "20", "37"} == set(omitted.values)
    rows = [
        *COUNTED,
        says("Of 37 ferries from Port Ellen in June 2021, 11 were 20 late.", "Checker"),
    ]
    assert findings(rows).omitted_constraint is None


def test_agent_that_repeats_itself() -> None:
    rows = [user(TASK), says("Find the page.", "Boss (-> Web)")]
    for _ in range(4):
        rows.append(says("I scrolled down one page. The viewport shows 20% of the page.", "Web"))
        rows.append(says("Continue.", "Boss (-> Web)"))
    repeated = findings(rows).repeated_messages[0]
    assert (repeated.agent, repeated.count, repeated.event_id) == ("Web", 4, "e4")
    result = reflection(rows)
    assert result is not None
    assert "4 messages of Web start alike (e2, e4, e6, …)" in result.reflection_text
    assert result.strategy_text == (
        "When the same step has been taken twice without a new result, take a different step."
    )


def test_team_names_agents_and_who_ended_the_run() -> None:
    team = findings(COUNTED).team
    assert team is not None
    assert team.agents == (("Analyst", 1), ("Checker", 2))
    assert (team.last_agent, team.hand_off_count, team.code_count) == ("Checker", 1, 1)


def test_outputs_and_tasks_are_never_blamed() -> None:
    rows = [*COUNTED, *COUNTED[1:], *COUNTED[1:]]
    ids = findings(rows).decisive_event_ids
    assert len(ids) == MAX_RANKED
    assert not {"e0", "e2", "e6", "e10"} & set(ids)
    assert findings(rows, "success").decisive_event_ids == ()


def test_wrong_answer_without_any_call() -> None:
    rows = [user("How old is the bridge?"), says("It is 90 years old.")]
    result = reflection_with(rows, "94")
    assert "The trace contains no tool call." in result.reflection_text
    assert (result.strategy_text or "").startswith("Before giving a final answer that no output")


def test_long_run_is_bounded() -> None:
    rows = [user(TASK)]
    for n in range(1_500):
        rows.append(says(code(f"print({n})") + "x " * 2_000, f"Agent{n % 5}"))
        rows.append(output(str(n)))
    assert len(findings(rows).decisive_event_ids) == MAX_RANKED


def test_number_below_one_has_its_zero() -> None:
    assert numbers_in("0.489 of 007, 0 and 0.50") == {"0.489", "7", "0", "0.5"}
