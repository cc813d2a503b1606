"""Expected calls compared as they stand: proven right, proven wrong, or undecided."""

from __future__ import annotations

import json
from typing import Any

from memory_api.evaluation.schemas import Criterion, CriterionScore
from memory_api.traces.schemas import OutcomeType
from tests.support.cases import each_case
from tests.support.evaluation_cases import Row, call, judged, said

READ, WRITE = ({"name": "look", "writes": False}, {"name": "close_ticket", "writes": True})
CLOSE = {"name": "close_ticket", "kwargs": {"id": 1}}
CLOSED = call("close_ticket", '{"id": 1}')
LOOKED = call("look", '{"id": 1}')


async def scores(
    events: list[Row], actions: list[Any], *tools: Any, **more: Any
) -> tuple[CriterionScore, CriterionScore | None]:
    """Correctness and completeness."""
    truth = {"actions": actions} | more
    found = await judged(events, ground_truth=truth, tools=list(tools))
    correctness = found.best(Criterion.CORRECTNESS)
    assert correctness is not None
    return correctness, found.best(Criterion.COMPLETENESS)


UNDECIDED = (0.5, False)


@each_case(
    ("events", "expected"),
    [
        (CLOSED, (1.0, True)),
        (LOOKED + CLOSED + LOOKED, (1.0, True)),
        (call("close_ticket", '{"id": 2}'), (0.0, True)),
        (LOOKED, (0.0, True)),
        ([said("It is closed.")], (0.0, True)),
        (CLOSED + CLOSED, (0.25, True)),
        (CLOSED + call("close_ticket", '{"id": 2}'), (0.25, True)),
        (
            call("close_ticket", '{"id": 1}', "not found", error={"message": "not found"}),
            (0.0, True),
        ),
        (
            CLOSED + call("close_ticket", '{"id": 2}', "not found", error={"message": "not found"}),
            UNDECIDED,
        ),
        (CLOSED + call("other", '{"id": 2}'), UNDECIDED),
        (call("close_ticket", '{"id": 1, "note": "x"}'), (0.0, True)),
    ],
)
async def test_calls_of_known_effect(events: list[Row], expected: tuple[float, bool]) -> None:
    correctness, _ = await scores(events, [CLOSE], READ, WRITE)
    assert (correctness.score, correctness.proven) == expected


@each_case(
    ("expected_call", "made"),
    [
        ("close_ticket", None),
        ("kubectl_apply", None),
        ("approve_loan", None),
        ("terraform_destroy", "terraform_plan"),
        ("terraform_plan", "terraform_destroy"),
        ("チケットを閉じる", None),
        ("transfer_to_human_agents", None),
        ("escalate", "think"),
    ],
)
async def test_missing_call_is_never_proven_right(expected_call: str, made: str | None) -> None:
    events = [*(call(made, "{}") if made else []), said("Done.")]
    action = {"name": expected_call, "kwargs": {}}
    correctness, completeness = await scores(events, [action])
    assert (correctness.score, correctness.proven) == UNDECIDED
    assert completeness is not None
    assert (completeness.score, completeness.proven) == (0.0, False)
    stated = {"name": expected_call, "writes": True}
    correctness, completeness = await scores(events, [action], stated)
    assert (correctness.score, correctness.proven) == (0.0, True)
    assert completeness is not None
    assert completeness.proven


async def test_reason_names_the_call_and_what_is_unknown() -> None:
    correctness, _ = await scores([said("Done.")], [CLOSE])
    assert correctness.reasons == (
        "Missing call: close_ticket(id=1) (the trace does not state whether the tool writes)",
    )
    correctness, _ = await scores([said("Done.")], [CLOSE], WRITE)
    assert correctness.reasons == ("Missing call: close_ticket(id=1)",)


async def test_unknown_calls_equal_to_the_expected_ones_are_proof() -> None:
    correctness, _ = await scores(CLOSED + LOOKED, [CLOSE, {"name": "look", "args": {"id": 1}}])
    assert (correctness.score, correctness.proven) == (1.0, True)
    correctness, _ = await scores(CLOSED + LOOKED, [CLOSE])
    assert (correctness.score, correctness.proven) == UNDECIDED


async def test_reading_calls_are_neither_required_nor_extra() -> None:
    actions = [CLOSE, {"name": "look", "kwargs": {"id": 9}}]
    correctness, completeness = await scores(CLOSED, actions, READ, WRITE)
    assert (correctness.score, correctness.proven) == (1.0, True)
    assert completeness is not None
    assert completeness.reasons[0] == "1 of 1 expected calls and outputs were found."


async def test_list_of_reading_calls_is_proven_by_making_them() -> None:
    actions = [{"name": "look", "kwargs": {"id": 1}}]
    correctness, _ = await scores(LOOKED, actions, READ, WRITE)
    assert (correctness.score, correctness.proven) == (1.0, True)
    for events in ([said("Done.")], call("look", '{"id": 2}')):
        correctness, _ = await scores(events, actions, READ, WRITE)
        assert (correctness.score, correctness.proven) == UNDECIDED
    correctness, _ = await scores(LOOKED + CLOSED, actions, READ, WRITE)
    assert (correctness.score, correctness.proven) == (0.0, True)


@each_case(
    ("stated", "made"),
    [
        ({"id": "W1"}, {"id": "w1"}),
        ({"ids": ["a", "b"]}, {"ids": ["b", "a"]}),
        ({"id": 1}, {"id": "1"}),
        ({"note": "two words"}, {"note": " two words "}),
        ({"ids": ["a"]}, {"ids": '["a"]'}),
    ],
)
async def test_other_form_of_an_argument_is_undecided(stated: Any, made: Any) -> None:
    action = {"name": "close_ticket", "kwargs": stated}
    correctness, _ = await scores(call("close_ticket", json.dumps(made)), [action], WRITE)
    assert (correctness.score, correctness.proven) == UNDECIDED


@each_case(
    ("stated", "content"),
    [
        ({"id": 1, "to": ["a", "b"]}, '{"to": ["a", "b"], "id": 1.0}'),
        ('{"id": 1}', '{"id":1}'),
        ({"ok": True, "n": None}, "{'ok': True, 'n': None}"),
        ("free text", "free text"),
        ({}, "{}"),
    ],
)
async def test_equal_arguments_in_any_syntax(stated: Any, content: str) -> None:
    action = {"name": "close_ticket", "arguments": stated}
    correctness, _ = await scores(call("close_ticket", content), [action], WRITE)
    assert (correctness.score, correctness.proven) == (1.0, True)


async def test_unstated_arguments_prove_nothing() -> None:
    for actions in ([{"name": "close_ticket"}], ["close_ticket"]):
        correctness, _ = await scores(CLOSED, actions, WRITE)
        assert (correctness.score, correctness.proven) == UNDECIDED


@each_case(
    ("events", "expected"),
    [
        ([said("That cannot be done.")], UNDECIDED),
        (LOOKED, UNDECIDED),
        (call("other", "{}"), UNDECIDED),
        (CLOSED, (0.0, True)),
    ],
)
async def test_empty_list_proves_only_an_unexpected_change(
    events: list[Row], expected: tuple[float, bool]
) -> None:
    correctness, _ = await scores(events, [], READ, WRITE, outputs=[])
    assert (correctness.score, correctness.proven) == expected


async def test_text_of_a_message_proves_no_output() -> None:
    for text, share in (
        ("You paid $23,553.", 1.0),
        ("You did not pay 23553.", 1.0),
        ("A lot", 0.5),
    ):
        correctness, completeness = await scores(
            [*CLOSED, said(text)], [CLOSE], WRITE, outputs=["23553"]
        )
        assert (correctness.score, correctness.proven) == UNDECIDED
        assert completeness is not None
        assert (completeness.score, completeness.proven) == (share, False)
    correctness, _ = await scores([said("You paid 23553.")], [CLOSE], WRITE, outputs=["23553"])
    assert (correctness.score, correctness.proven) == (0.0, True)


async def test_unreadable_list_is_not_compared() -> None:
    truth = {"actions": [CLOSE, {"tool": "look"}]}
    found = await judged(CLOSED, ground_truth=truth, tools=[WRITE])
    assert found.best(Criterion.CORRECTNESS) is None


async def test_right_answer_does_not_replace_an_expected_call() -> None:
    truth = {"answer": "done", "actions": [CLOSE], "match": "exact"}
    found = await judged([said("done")], ground_truth=truth)
    assert not found.proven
    assert found.verdict is not OutcomeType.SUCCESS
    found = await judged([*CLOSED, said("done")], ground_truth=truth)
    assert (found.verdict, found.proven) == (OutcomeType.SUCCESS, True)
    del truth["match"]
    found = await judged([*CLOSED, said("not done")], ground_truth=truth)
    assert not found.proven


ADD = {"name": "add", "kwargs": {"a": 1, "b": 2.0}}


@each_case(
    ("events", "actions", "expected"),
    [
        (call("add", '{"b": 2, "a": 1}') + call("other", "{}"), [ADD], (1.0, True)),
        (call("add", '{"a": 9, "b": 9}'), [{"name": "add"}], (1.0, True)),
        (call("add", '{"a": 1, "b": 3}'), [ADD], (0.0, True)),
        (call("sum", '{"a": 1, "b": 2}'), [ADD], (0.0, True)),
        (call("add", '{"a": 1, "b": 2}'), [ADD, ADD], (0.25, True)),
        (call("add", '{"a": 1, "b": 2}', "", error={"message": "down"}), [ADD], (0.0, True)),
        (call("add", '{"a": "1", "b": 2}'), [ADD], UNDECIDED),
        ([said("3")], ["add"], (0.0, True)),
    ],
)
async def test_declared_calls_must_be_made(
    events: list[Row], actions: list[Any], expected: tuple[float, bool]
) -> None:
    """Whatever the tools write, and whatever else was called."""
    for tools in ([], [{"name": "add", "writes": False}]):
        correctness, _ = await scores(events, actions, *tools, match="calls")
        assert (correctness.score, correctness.proven) == expected


async def test_many_calls_are_compared_completely() -> None:
    many = [row for n in range(700) for row in call("close_ticket", json.dumps({"id": n}))]
    actions = [{"name": "close_ticket", "kwargs": {"id": n}} for n in reversed(range(700))]
    correctness, _ = await scores(many, actions, WRITE)
    assert (correctness.score, correctness.proven) == (1.0, True)
    correctness, _ = await scores(many[2:], actions, WRITE)
    assert correctness.proven
    assert correctness.score < 0.5
