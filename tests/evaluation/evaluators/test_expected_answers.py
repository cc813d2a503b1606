"""Answers compared with the expected one: proven right, proven wrong, or undecided."""

from __future__ import annotations

from typing import Any

from memory_api.evaluation.schemas import Criterion
from tests.support.cases import each_case
from tests.support.evaluation_cases import call, judged, said, score_of


def finish(answer: str) -> list[dict[str, Any]]:
    return call("finish", answer)


@each_case(
    ("events", "fields", "is_right"),
    [
        ([], {"generated_answer": "Paris"}, True),
        ([], {"generated_answer": "The capital is Rome."}, False),
        (finish("Paris"), {}, True),
        (finish("Rome"), {}, False),
        ([said("paris.")], {}, True),
        ([said("I do not know.")], {}, False),
    ],
)
async def test_answer_under_a_declared_match_is_proven(
    events: Any, fields: dict[str, Any], is_right: bool
) -> None:
    for answer in ("Paris", ["Lutetia", "Paris"]):
        truth = {"answer": answer, "match": "exact"}
        score = await score_of(Criterion.CORRECTNESS, events, ground_truth=truth, **fields)
        assert score is not None
        assert (score.score, score.proven) == (float(is_right), True)
        assert score.reasons[0].endswith("(match: exact)")


@each_case(
    ("answer", "truth", "expected"),
    [("Paris", "Paris", (1.0, False)), ("42", 43, (0.0, True)), ("Rome", "Paris", None)],
)
async def test_answer_without_a_declared_match(
    answer: str, truth: Any, expected: tuple[float, bool] | None
) -> None:
    score = await score_of(Criterion.CORRECTNESS, finish(answer), ground_truth=truth)
    assert (score and (score.score, score.proven)) == expected


@each_case(
    ("answer", "truth"),
    [
        ("It is not Paris", "Paris"),
        ("Paris or London", "Paris"),
        ("The capital is Paris.", "Paris"),
        ("in Paris", "Paris"),
        ("not 42 but 43", "42"),
        ("not 42 but 43", 43),
        ("I doubt that it is 42", "42"),
        ("42 or 43", 42),
        ("no idea", "no"),
        ("not true", "true"),
        ("パリではない", "パリ"),
        ("Paris", "Paris, Texas"),
        ("C++", "C"),
        ("A-", "A+"),
        ("1 year", "12 months"),
        ("12 May 2024", "2024-05-12"),
        ("Munich", "München"),
        ("bus", "buses"),
        ("Do not write ```python\nx = 1\n``` but ```python\nx = 2\n```", "```\nx = 1\n```"),
    ],
)
@each_case("form", [finish, lambda answer: [said(answer)]])
async def test_answer_of_another_form_is_undecided(form: Any, answer: str, truth: Any) -> None:
    for truths in (truth, [truth, "something else"]):
        found = await judged(form(answer), ground_truth=truths)
        assert found.best(Criterion.CORRECTNESS) is None
        assert (found.verdict, found.proven) == (None, False)


JUDGMENTS = [
    "Answer is CORRECT",
    "Answer is INCORRECT",
    "Your answer is wrong.",
    "正解です",
    "不正解です。",
    "Task completed",
    "success",
    "The evaluation failed.",
]


@each_case("response", JUDGMENTS)
async def test_words_of_the_environment_prove_nothing(response: str) -> None:
    """Any page or file can contain them. Without another comparison the run is undecided."""
    for truth in ("Apple", None):
        found = await judged(call("finish", "the Big Apple city", response), ground_truth=truth)
        assert found.best(Criterion.CORRECTNESS) is None
        assert (found.verdict, found.proven) == (None, False)


@each_case(
    ("answer", "response", "expected"),
    [("Apple", "Answer is INCORRECT", 1.0), ("Pear", "Answer is CORRECT", 0.0)],
)
async def test_comparison_outweighs_words_of_the_environment(
    answer: str, response: str, expected: float
) -> None:
    events = call("finish", answer, response)
    truth = {"answer": "Apple", "match": "exact"}
    score = await score_of(Criterion.CORRECTNESS, events, ground_truth=truth)
    assert score is not None
    assert (score.score, score.proven) == (expected, True)


async def test_missing_answer_is_incomplete() -> None:
    found = await score_of(Criterion.COMPLETENESS, call("look", "x"), ground_truth="Paris")
    assert found is not None
    assert (found.score, found.proven) == (0.0, True)
