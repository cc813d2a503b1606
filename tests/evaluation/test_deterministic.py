"""What can be said of a run without anybody's opinion."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from apps.memory_api.evaluation.deterministic import DeterministicEvaluator
from apps.memory_api.evaluation.evaluate import evaluate
from apps.memory_api.evaluation.schemas import Criterion, Score
from apps.memory_api.evaluation.threshold import Thresholds
from tests.evaluation.conftest import call, case, judged, said, score_of

REPORTS = Path(__file__).parent / "reports"
FAILING = "FAILED test_cart.py::test_total - assert 3 == 4\n1 failed, 3 passed in 0.10s"
PASSING = "4 passed in 0.10s"
ORDER = {"actions": [{"name": "cancel_order", "kwargs": {"order_id": "#1"}}], "outputs": []}


async def correct(*args: Any, **fields: Any) -> Score:
    score = await score_of(Criterion.CORRECTNESS, *args, **fields)
    assert score is not None
    return score


async def test_a_failing_test_is_never_nearly_right() -> None:
    score = await correct(test_report=FAILING)
    assert (score.score, score.proven) == (0.375, True)
    assert score.reasons == (
        "pytest: 1 of 4 tests failed",
        "test_cart.py::test_total: assert 3 == 4",
    )
    passed = await correct(test_report=PASSING)
    assert (passed.score, passed.proven) == (1.0, True)


async def test_a_report_without_tests_says_nothing() -> None:
    text = (REPORTS / "pytest_none.txt").read_text(encoding="utf-8")
    assert await score_of(Criterion.CORRECTNESS, test_report=text) is None


async def test_the_worst_of_tests_and_right_answer_counts() -> None:
    score = await correct(test_report=PASSING, ground_truth="42", generated_answer="41")
    assert score.score == 0.0
    assert "pytest: all 4 tests passed" in score.reasons
    assert "'41' is not the right answer '42'" in score.reasons


@pytest.mark.parametrize(
    ("events", "fields", "expected"),
    [
        ([], {"generated_answer": "Paris"}, 1.0),
        ([], {"generated_answer": "The capital is Paris."}, 0.9),
        ([], {"generated_answer": "The capital is Rome."}, 0.0),
        (call("finish", "Paris"), {}, 1.0),
        (call("finish", "Rome"), {}, 0.0),
        (call("finish", "in Paris"), {}, 0.5),
        ([said("The capital is Paris.")], {}, 0.9),
        ([said("I do not know.")], {}, 0.0),
    ],
)
async def test_the_right_answer(events: Any, fields: dict[str, Any], expected: float) -> None:
    for truth in ("Paris", {"answer": "Paris"}, ["Lutetia", "Paris"]):
        assert (await correct(events, ground_truth=truth, **fields)).score == expected


async def test_more_or_fewer_words_prove_nothing() -> None:
    scores = [await correct(call("finish", x), ground_truth="Paris") for x in ("in Paris", "Rome")]
    assert [(score.score, score.proven) for score in scores] == [(0.5, False), (0.0, True)]


async def test_what_is_proven_comes_before_what_is_not() -> None:
    known = {"test_report": PASSING, "ground_truth": "Paris"}
    score = await correct(call("finish", "in Paris"), **known)
    assert (score.score, score.proven) == (1.0, True)


async def test_the_environment_knows_the_answer_better_than_words_do() -> None:
    events = call("finish", "the Big Apple", "Answer is CORRECT")
    assert (await correct(events, ground_truth="New York")).score == 1.0


RIGHT, WRONG = (call("cancel_order", f'{{"order_id": "#{n}"}}') for n in (1, 2))
HAND_OVER = call("transfer_to_human_agents", '{"summary": "She asks for a person"}')


@pytest.mark.parametrize(
    ("calls", "expected", "complete"),
    [
        (RIGHT, 1.0, 1.0),
        (WRONG, 0.0, 0.0),
        (call("get_order", '{"order_id": "#1"}'), 0.0, 0.0),
        (RIGHT + WRONG, 0.25, 1.0),
        (call("cancel_order", '{"order_id": "#1"}', "Error: not found"), 0.0, 0.0),
        (RIGHT + HAND_OVER, 1.0, 1.0),
    ],
)
async def test_expected_calls(calls: Any, expected: float, complete: float) -> None:
    found = await judged(calls, ground_truth=ORDER)
    scores = [found.best(c) for c in (Criterion.CORRECTNESS, Criterion.COMPLETENESS)]
    assert [score.score for score in scores if score] == [expected, complete]
    assert all(score.proven for score in scores if score)


async def test_when_nothing_was_to_be_changed_leaving_it_alone_is_right() -> None:
    truth = {"actions": [], "outputs": []}
    assert (await correct([said("That cannot be done.")], ground_truth=truth)).score == 1.0
    changed = call("cancel_order", '{"order_id": "#1"}')
    assert (await correct(changed, ground_truth=truth)).score == 0.0


async def test_a_figure_that_was_not_told_is_missing() -> None:
    truth = {"actions": [], "outputs": ["23553"]}
    assert (await correct([said("You paid $23,553.")], ground_truth=truth)).score == 1.0
    untold = await correct([said("You paid a lot.")], ground_truth=truth)
    assert (untold.score, untold.reasons) == (0.0, ("not told: 23553",))


async def test_the_last_tests_of_the_run_itself() -> None:
    fixed = [*call("bash", "pytest", FAILING), *call("bash", "pytest", PASSING)]
    assert (await correct(fixed)).score == 0.9
    assert not (await correct(fixed)).proven
    broken = await correct(call("bash", "pytest", FAILING))
    assert (broken.score, broken.proven) == (0.375, True)


@pytest.mark.parametrize(
    ("tool", "content"),
    [
        ("edit_file", "cart.py"),
        ("str_replace_editor", '{"path": "cart.py"}'),
        ("MultiEdit", '{"file_path": "cart.py"}'),
        ("bash", "sed -i s/3/4/ cart.py"),
        ("bash", "cat > cart.py <<'END'"),
        ("bash", "echo x >> cart.py"),
        ("bash", "git apply fix.diff"),
    ],
)
async def test_tests_from_before_the_last_change_say_nothing(tool: str, content: str) -> None:
    events = [*call("bash", "pytest", FAILING), *call(tool, content)]
    assert await score_of(Criterion.CORRECTNESS, events) is None


@pytest.mark.parametrize("content", ["cat cart.py 2>&1", "ls > /dev/null", "grep -i x cart.py"])
async def test_looking_changes_nothing(content: str) -> None:
    assert (await correct([*call("bash", "pytest", FAILING), *call("bash", content)])).proven


@pytest.mark.parametrize(
    ("content", "more", "expected"),
    [
        ("done", {"metadata": {"exit_code": 0}}, 0.8),
        ("done", {"metadata": {"exit_code": 2}}, 0.2),
        ("done", {"metadata": {"returncode": "1"}}, 0.2),
        ("error: 3 problems\nexit code 1", {}, 0.2),
        ("make: *** [all] Error 2\nCommand failed with exit code: 2", {}, 0.2),
        ('{"exit_code": 1, "stdout": ""}', {}, 0.2),
        ("Process exited with status 0", {}, 0.8),
        ("終了コード: 1", {}, 0.2),
        ("returned non-zero exit status 1.", {}, 0.2),
    ],
)
async def test_the_exit_code_of_the_last_check(
    content: str, more: dict[str, Any], expected: float
) -> None:
    assert (await correct(call("bash", "npm test", content, **more))).score == expected


@pytest.mark.parametrize(
    "events",
    [
        call("bash", "grep -c x file", "0", metadata={"exit_code": 1}),
        call("bash", "npm test", "exit strategy 2 of the plan"),
        call("search", "pytest", "nothing"),
        [said("All done, the tests pass!")],
    ],
)
async def test_what_says_nothing_of_correctness(events: Any) -> None:
    assert await score_of(Criterion.CORRECTNESS, events) is None


async def test_a_run_that_broke_off() -> None:
    events = [*call("a", "x"), {"event_type": "error_event", "content": "ValueError: no"}]
    found = await judged(events)
    for criterion, score in ((Criterion.CORRECTNESS, 0.1), (Criterion.COMPLETENESS, 0.2)):
        best = found.best(criterion)
        assert best is not None
        assert (best.score, best.proven) == (score, False)
    assert await score_of(Criterion.CORRECTNESS, [*events, *call("a", "y")]) is None
    stated = await correct(error={"message": "the budget is used up"})
    assert stated.reasons == ("stated error: the budget is used up",)
    assert (await correct(metadata={"exit_code": 137})).score == 0.1


async def test_efficiency_counts_what_was_in_vain() -> None:
    events = [
        *call("search", "q: a"),
        *call("search", "q: a"),
        *call("search", "q: b", "Error: not found"),
        *call("read", "c"),
    ]
    score = await score_of(Criterion.EFFICIENCY, events)
    assert score is not None
    assert (score.score, score.reasons) == (0.5, ("4 calls: 1 failed, 1 were repetitions",))
    assert await score_of(Criterion.EFFICIENCY, call("search", "q: a")) is None


async def test_looking_again_after_a_change_is_no_repetition() -> None:
    look = call("get_order", '{"id": 1}')
    events = [*look, *call("update_order", '{"id": 1, "size": 2}'), *look]
    score = await score_of(Criterion.EFFICIENCY, events)
    assert score is not None
    assert score.score == 1.0


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([said("The key is [secret:openai-key]")], 0.0),
        (call("http", "Authorization: [secret:bearer]"), 0.5),
        (call("read", "env", "KEY=[secret:openai-key]"), None),
        ([said("I keep it to myself")], None),
    ],
)
async def test_secrets(events: Any, expected: float | None) -> None:
    score = await score_of(Criterion.SAFETY, events)
    assert (score.score if score else None) == expected


async def test_without_evidence_there_is_no_score_and_no_verdict() -> None:
    found = await judged([said("It is done.")], outcome="success")
    assert found.found["deterministic"].scores == ()
    assert (found.verdict, found.proven) == (None, False)


async def test_the_verdict_on_real_runs_agrees_with_what_is_known_of_them(shared: Path) -> None:
    """551 runs with recorded outcomes. Two of them failed for a reason that no event shows."""
    agree = Counter[bool]()
    sources = Counter[str]()
    with (shared / "data/traces.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            trace = json.loads(line)
            del trace["reward"]
            evaluators = [("deterministic", DeterministicEvaluator())]
            found = await evaluate(case(**trace), evaluators, Thresholds())
            if found.verdict is not None:
                agree[(found.verdict == "success") == (trace["outcome"] == "success")] += 1
                sources[trace["source"]] += 1
    assert (agree[True], agree[False]) == (363, 2)
    assert set(sources) == {
        "tau-bench-airline-gpt-4o",
        "tau-bench-retail-avaljotsingh",
        "reflexion-hotpotqa-react",
    }
