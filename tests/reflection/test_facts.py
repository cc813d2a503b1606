"""The sentences about a run that a model is shown: true, with event IDs, in plain words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from memory_api.reflection.facts import collect_facts, stated_error
from memory_api.trace_analysis.analyze import analyze_trace
from memory_api.trace_analysis.context import ReflectionContext
from memory_api.trace_analysis.parser import parse_trace

WRITES = [{"name": "update_booking", "writes": True}, {"name": "cancel", "writes": True}]
UNEXPLAINED = ("carried", "held_back", "hops", "drew", "took_offer", "_", "{", "None")


def call(tool: str, arguments: str, response: str | None = None, **more: Any) -> list[Any]:
    rows: list[Any] = [{"event_type": "tool_call", "tool_name": tool, "content": arguments}]
    if response is not None:
        rows.append({"event_type": "tool_response", "tool_name": tool, "content": response} | more)
    return rows


def says(text: str) -> dict[str, Any]:
    return {"event_type": "llm_response", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"event_type": "user_message", "content": text}


def context_of(rows: list[Any], outcome: str = "failure", **more: Any) -> ReflectionContext:
    return ReflectionContext.model_validate(
        {"events": rows, "outcome": outcome, "tenant_id": "t"} | more
    )


def facts(rows: list[Any], outcome: str = "failure", truth: Any = None, **more: Any) -> list[str]:
    context = context_of(rows, outcome, **more)
    trace = parse_trace(context.events, context.task_description, context.task_goal, context.tools)
    return collect_facts(context, trace, analyze_trace(context, ground_truth=truth))


def facts_with_truth(rows: list[Any], truth: Any) -> list[str]:
    context = context_of(rows)
    trace = parse_trace(context.events, context.task_description, context.task_goal, context.tools)
    return collect_facts(context, trace, analyze_trace(context, ground_truth=truth), truth)


def fact_with(rows: list[Any], words: str, **more: Any) -> str:
    found = [fact for fact in facts(rows, **more) if words in fact]
    assert len(found) == 1, (words, facts(rows, **more))
    return found[0]


def test_numbers_are_whole() -> None:
    rows = [
        user("What did it cost?"),
        *call("price", "{}", "1,500USD"),
        says("1,500USD, or $2,750k."),
    ]
    (found,) = [fact for fact in facts(rows) if fact.startswith("Values of") and "that a" in fact]
    assert "1,500USD (" in found
    missing = fact_with(rows, "that no tool response contains")
    assert "2,750k (" in missing
    assert not re.search(r"(?<!,)\b(?:500|750)", found + missing)


def test_last_message_and_its_event_agree() -> None:
    rows = [
        user("What did I save?"),
        says("You saved a total of $7,222, and your booking is changed now."),
        user("Thank you."),
        says("You are welcome!"),
        user("Bye."),
    ]
    assert fact_with(rows, "last message") == (
        "The agent's last message is e0003: “You are welcome!”"
    )


def test_run_that_ends_with_a_call_has_no_last_message() -> None:
    rows = [user("Do it."), says("I will."), *call("search", '{"q": "x"}', "nothing found at all")]
    assert "No message of the agent follows its last call, e0002" in " ".join(facts(rows))


def test_error_of_the_last_event_replaces_a_missing_error_field() -> None:
    rows = [
        *call("search", '{"q": "x"}', "ok"),
        {"event_type": "error_event", "content": "API 500"},
    ]
    context = context_of(rows, "error")
    error = stated_error(context, parse_trace(context.events))
    assert error is not None
    assert (error.message, error.event_id) == ("API 500", "e0002")
    overcome = context_of([*rows, *call("search", "y", "ok")], "error")
    assert stated_error(overcome, parse_trace(overcome.events)) is None
    stated = context_of(rows, error={"error_message": "gave up", "error_category": "tool_error"})
    error = stated_error(stated, parse_trace(stated.events))
    assert error is not None
    assert (error.message, error.event_id) == ("gave up", None)


def test_second_call_that_returns_no_error_is_not_called_a_repair() -> None:
    """The call that deleted a flight was accepted by the tool."""
    rows = [
        *call("update_booking", '{"id": "B1", "flights": "A1, A2"}', "Error: seat not available"),
        *call("update_booking", '{"id": "B1", "flights": "A1"}', '{"id": "B1"}'),
    ]
    text = " ".join(facts(rows))
    assert "the next call of this tool that returned no error is e0002" in text
    assert "flights: before A1, A2, then A1" in text
    assert not re.search("repair|fixed|correct", text)


@pytest.mark.parametrize("response", [None, "", "Error: still not available"])
def test_call_without_a_shown_success_repairs_nothing(response: str | None) -> None:
    rows = [
        *call("update_booking", '{"id": "B1", "flights": "A1, A2"}', "Error: seat not available"),
        *call("update_booking", '{"id": "B1", "flights": "A1"}', response),
    ]
    assert "returned no error" not in " ".join(facts(rows))


def test_call_that_the_right_answer_contradicts_repairs_nothing() -> None:
    rows = [
        *call("update_booking", '{"id": "B1", "flights": "A1, A2"}', "Error: seat not available"),
        *call("update_booking", '{"id": "B1", "flights": "A1"}', '{"id": "B1"}'),
    ]
    action = {"name": "update_booking", "kwargs": {"id": "B1", "flights": "A1, A3"}}
    shown = facts(rows, truth={"actions": [action]}, tools=WRITES)
    assert "returned no error" not in " ".join(shown)
    assert (
        "The call e0002 of `update_booking` differs from the right answer: "
        "flights: given A1, expected A1, A3."
    ) in shown


POLICY = {
    "event_type": "system_event",
    "content": "Policy of the airline. Basic economy flights cannot be modified. " * 3,
}


def test_refusal_that_decides_is_shown_and_recitals_are_not() -> None:
    rows = [
        POLICY,
        user("Please move my flight in booking AB123 to Friday."),
        says("Please note: changes that are not allowed for basic economy cost a fee."),
        user("Then move it."),
        says("I'm unable to move the flight of booking AB123."),
        user("Please!"),
        says("I can only continue once you give me your user ID."),
        user("Really?"),
        says("I'm unable to move the flight of the booking AB123."),
    ]
    refused = [fact for fact in facts(rows) if "answer to" in fact]
    assert refused == [
        "The message e0004, the answer to e0003, says: “I'm unable to move the flight of "
        "booking AB123.” Repeated in e0008."
    ]


@pytest.mark.parametrize(("booking", "is_same"), [("AB123", True), ("CD456", False)])
def test_later_call_belongs_to_a_refusal_only_with_the_same_identifier(
    booking: str, is_same: bool
) -> None:
    rows = [
        POLICY,
        user("Please cancel booking AB123."),
        says("I cannot cancel booking AB123."),
        user("And the rest?"),
        *call("cancel", f'{{"booking": "{booking}"}}', "done"),
        *call("look_up", '{"user": "u1"}', "done"),
        *call("look_up", '{"user": "u2"}', "done"),
    ]
    fact = fact_with(rows, "says: ", tools=WRITES)
    assert ("The later call e0004 concerns AB123 too" in fact) == is_same


def test_figure_that_the_agent_computed_is_the_agents() -> None:
    rows = [
        user("What would I save?"),
        says("You would save $7,222 in total."),
        user("Then 7222 it is. My card is card_42."),
        *call("update_booking", '{"amount": 7222, "card": "card_42", "cabin": "eco"}', "ok"),
    ]
    fact = fact_with(rows, "First event with the values", tools=WRITES)
    assert "e0001 (the agent): amount=7222" in fact
    assert "e0002 (the user): card=card_42" in fact
    assert "in no earlier event: cabin=eco" in fact


def test_value_of_a_response_is_named_with_its_tool() -> None:
    rows = [
        user("Pay with the card in my profile."),
        *call("get_user", '{"id": "u1"}', '{"card": "card_42", "total": 7222.0}'),
        *call("update_booking", '{"card": "card_42", "amount": "7,222"}', "ok"),
    ]
    fact = fact_with(rows, "First event with the values", tools=WRITES)
    assert "e0002 (response of `get_user`): card=card_42, amount=7,222" in fact


def test_items_of_a_list_have_their_own_origin() -> None:
    rows = [
        user("Return the lamp 4202."),
        *call("get_order", '{"id": "W1"}', "items: 4202 lamp, 9408 hose"),
        *call("update_booking", '{"items": ["9408", "4202"]}', "ok"),
    ]
    fact = fact_with(rows, "First event with the values", tools=WRITES)
    assert "e0000 (the user): items=4202" in fact
    assert "e0002 (response of `get_order`): items=9408" in fact


def test_values_of_the_last_message_are_looked_up_in_responses() -> None:
    rows = [
        user("What is the total of order W77?"),
        *call("sum", '{"x": "1"}', "23553.0"),
        says("The total of W77 is 23,553, and you saved 6,644 at 10:00."),
    ]
    text = " ".join(facts(rows))
    assert "Values of e0003 that a tool response contains: 23,553 (e0002)." in text
    assert (
        "Values of e0003 that no tool response contains: W77 (first in e0000, the user), "
        "6,644 (in no earlier event)." in text
    )


@pytest.mark.parametrize(
    ("page", "fact"),
    [
        ("The bridge was opened in Lyon.", "This text is in the response e0001 of `Search`."),
        ("The bridge was opened.", "This text is in no tool response of the run."),
    ],
)
def test_final_answer_is_looked_up_in_responses(page: str, fact: str) -> None:
    rows = [
        *call("Search", "Search[bridge]", page),
        *call("Finish", "Finish[Lyon]", "Answer is CORRECT"),
    ]
    shown = facts(rows, outcome="success", truth="Lyon")
    assert "The final answer is “Lyon” (e0002)." in shown
    assert fact in shown


def test_repeated_calls_have_counts() -> None:
    rows = [row for _ in range(3) for row in call("fetch", '{"page": "index"}', "Error: timeout")]
    assert fact_with(rows, "The same call was made") == (
        "The same call was made 3 times (e0000, e0002, e0004): fetch(page=index). All responses "
        "are the same. 3 of them failed."
    )


def test_exit_codes_are_shown() -> None:
    rows = [
        *call("bash", "make", "boom", metadata={"exit_code": 2}),
        *call("bash", "ls", "a", metadata={"exit_code": 0}),
    ]
    shown = facts(rows)
    assert "Exit code 2: e0000." in shown
    assert "Exit code 0: e0002." in shown


def test_command_is_no_value_with_an_origin() -> None:
    rows = [
        user("List build/main.o."),
        *call("bash", '{"command": "make all", "cwd": "build/main.o"}', "ok"),
        *call("bash", '{"command": "ls build/"}', "main.o"),
    ]
    origins = [fact for fact in facts(rows) if fact.startswith("First event")]
    assert origins == [
        "First event with the values of `bash` e0001: e0000 (the user): cwd=build/main.o."
    ]


def test_facts_are_sentences_without_unexplained_keys() -> None:
    rows = [
        POLICY,
        user("Please move booking AB123."),
        says("I cannot move booking AB123."),
        *call("lookup", '{"id": "AB123"}', "Error: no such id"),
        *call("lookup", '{"id": "AB123"}', "found AB123"),
        says("It is moved."),
    ]
    for fact in facts(rows):
        assert fact[0].isupper()
        assert fact[-1] in ".”"
        assert not any(key in fact for key in UNEXPLAINED), fact


def test_nothing_is_claimed_of_an_empty_conversation() -> None:
    assert facts([user("Hello")], outcome="partial") == [
        "The run has 1 event: 0 tool calls, 1 user message and 0 agent messages."
    ]


def test_figure_of_a_team_is_named_with_the_agent_that_stated_it_first() -> None:
    rows = [
        says("Sum the rows.") | {"agent": "Manager"},
        says("Code output: 234.70") | {"agent": "Terminal"},
        says("Both agree, so I stop here. FINAL ANSWER: 234.70") | {"agent": "Checker"},
    ]
    shown = facts(rows)
    assert "Values of e0002: 234.70 (first in e0001, Terminal)." in shown
    assert "FINAL ANSWER: 234.70" in " ".join(shown)
    assert "Messages and calls by agent: Manager (1), Terminal (1), Checker (1)." in shown


def test_part_of_a_path_is_no_value() -> None:
    rows = [
        user("Write the report."),
        *call("write", '{"path": "issue-431/09_report.md"}', "ok"),
        says("I wrote issue-431/09_report.md."),
    ]
    shown = " ".join(facts(rows))
    assert "issue-431 (first in e0001, the agent)" in shown
    assert "issue-431/09 " not in shown


def test_text_that_different_calls_returned_is_named() -> None:
    page = "A long page about bridges, rivers and the towns on both banks of them. " * 5
    rows = [
        user("Which bridge?"),
        *call("fetch", '{"url": "a"}', page),
        *call("fetch", '{"url": "b"}', page),
        says("The bridge of the towns."),
    ]
    assert fact_with(rows, "different calls returned the same text").startswith("2 different calls")


def test_code_is_not_found_inside_a_name() -> None:
    rows = [
        user("I am Mia and fly from Miami."),
        *call("get_user", '{"name": "Mia"}', '{"name": "Mia", "home": "JFK"}'),
        *call("update_booking", '{"origin": "MIA", "home": "JFK"}', "updated"),
    ]
    fact = fact_with(rows, "First event with the values", tools=WRITES)
    assert "in no earlier event: origin=MIA" in fact
    assert "e0002 (response of `get_user`): home=JFK" in fact


def test_rounding_error_and_number_sign_do_not_hide_a_value() -> None:
    rows = [
        user("Change my order W1234567."),
        *call("calculate", '{"expression": "15.09 * 2"}', "30.180000000000007"),
        *call("update_booking", '{"order_id": "#W1234567", "amount": "30.18"}', "updated"),
    ]
    fact = fact_with(rows, "First event with the values", tools=WRITES)
    assert "e0000 (the user): order_id=#W1234567" in fact
    assert "e0002 (response of `calculate`): amount=30.18" in fact


def test_value_of_the_task_is_in_the_task() -> None:
    rows = call("update_booking", '{"path": "data/report-2024.csv"}', "updated")
    task = "Clean data/report-2024.csv and upload it."
    fact = fact_with(rows, "First event with the values", tools=WRITES, task_description=task)
    assert "the task: path=data/report-2024.csv" in fact
    assert "no earlier event" not in fact


def test_right_answer_without_calls_is_stated() -> None:
    rows = [user("Cancel it."), *call("cancel", '{"id": "R7"}', "canceled")]
    found = facts_with_truth(rows, {"actions": []})
    assert (
        "The right answer lists no call. Calls of tools that only read are not compared." in found
    )
    right = {"actions": [{"name": "cancel", "kwargs": {"id": "R7"}}]}
    fact = "The run made all calls of the right answer with equal arguments (1)."
    assert fact in facts_with_truth(rows, right)
    wrong = {"actions": [{"name": "cancel", "kwargs": {"id": "R8"}}]}
    assert fact not in facts_with_truth(rows, wrong)
    assert fact not in facts_with_truth(rows, "R7")


def test_missing_call_is_shown_with_all_its_arguments() -> None:
    flights = [{"date": "2024-05-17", "flight_number": f"HAT23{n}"} for n in range(3)]
    booking = {"cabin": "economy", "flights": flights, "reservation_id": "FQ8APE"}
    truth = {"actions": [{"name": "update_booking", "kwargs": booking}]}
    rows = [user("Change it."), says("No.")]
    (fact,) = [f for f in facts_with_truth(rows, truth) if "did not make" in f]
    assert "reservation_id=FQ8APE" in fact


def test_calculation_is_no_value_and_is_named_as_one() -> None:
    rows = [user("Add 6594 and 3925."), *call("calculate", '{"expression": "6594 + 3925"}', "1")]
    assert not any("First event with the values" in fact for fact in facts(rows))
    truth = {"actions": [{"name": "calculate", "kwargs": {"expression": "430 + 412"}}]}
    (fact,) = [f for f in facts_with_truth(rows, truth) if "differs from the right" in f]
    assert "`calculate`, which only calculates, differs" in fact


def test_amount_that_the_user_was_not_told_is_named() -> None:
    rows = [
        user("Upgrade R7. I agree to pay $897."),
        *call("update_booking", '{"id": "R7"}', '{"id": "R7", "amount": 1815}'),
    ]
    words = "has values that no earlier event and no later message contains: 1815."
    assert "The response e0002" in fact_with([*rows, says("Done, for $897.")], words)
    assert not any(words in fact for fact in facts([*rows, says("Done, for $1,815.")]))
    listing = [*rows[:2], rows[2] | {"content": " ".join(map(str, range(1000, 1010)))}]
    assert not any("later message contains" in f for f in facts([*listing, says("Done.")]))


def test_calls_without_a_recorded_response_are_named() -> None:
    fact = "No response of a tool call is recorded."
    assert fact in facts([*call("look_up", '{"id": 1}'), says("Done.")])
    assert fact not in facts([*call("look_up", '{"id": 1}', "found"), says("Done.")])


def test_answer_that_the_task_names_is_not_looked_up() -> None:
    rows = call("Search", "Search[Pizza]", "Pizza Inn is a chain.") + call("Finish", "Pizza Inn")
    task = "Which is older, Pizza Inn or Sbarro?"
    assert not any("This text is in" in fact for fact in facts(rows, task_description=task))


def test_expected_outputs_that_the_user_was_told_are_named() -> None:
    found = facts_with_truth([user("How much?"), says("It is $23,553.")], {"outputs": ["23553"]})
    assert "Messages to the user contain the expected output “23553”." in found


def test_removed_words_are_shown_as_such() -> None:
    rows = [
        *call("Search", "Search[Stephanie Kay Panabaker]", "Error: no such page"),
        *call("Search", "Search[Kay Panabaker]", "Kay Panabaker is an actress."),
    ]
    text = " ".join(facts(rows))
    assert "before with “Stephanie”, then without it" in text
    assert "(empty)" not in text


def test_error_that_the_run_got_past_is_not_called_its_end() -> None:
    error = {"event_type": "error_event", "content": "TypeError: expects int"}
    rows = [
        *call("look_up", '{"n": "14"}'),
        error,
        *call("look_up", '{"n": 14}', "found"),
        says("14"),
    ]
    text = " ".join(facts(rows))
    assert "The call e0000 of `look_up` failed: “TypeError: expects int”" in text
    assert "last error event" not in text
    assert "ended with an error" not in text
    assert "The run ended with an error (e0001)" in " ".join(facts(rows[:2]))
