"""What can be said of a run without anybody's opinion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.evaluation import count_verdicts
from memory_api.evaluation.schemas import Criterion, CriterionScore
from tests.support.cases import each_case
from tests.support.evaluation_cases import call, judged, said, score_of
from tests.support.junit import junit

FAILING = junit(3, test_total="assert 3 == 4")
PASSING = junit(4)
FAILED = {"metadata": {"exit_code": 1}}


async def correct(*args: Any, **fields: Any) -> CriterionScore:
    score = await score_of(Criterion.CORRECTNESS, *args, **fields)
    assert score is not None
    return score


async def test_failing_test_has_low_correctness() -> None:
    score = await correct(test_report=FAILING)
    assert (score.score, score.proven) == (0.375, True)
    assert score.reasons == (
        "1 of 4 tests failed.",
        "test_a::test_total: assert 3 == 4",
    )
    passed = await correct(test_report=PASSING)
    assert (passed.score, passed.proven) == (1.0, True)


@each_case("report", [junit(), "1 failed, 3 passed in 0.10s", "OK", "<html>1 failed</html>"])
async def test_other_text_is_no_proof(report: str) -> None:
    assert await score_of(Criterion.CORRECTNESS, test_report=report) is None
    read = call("bash", "pytest", report or "OK")
    assert await score_of(Criterion.CORRECTNESS, read) is None


async def test_passing_tests_and_undecided_answer_prove_nothing() -> None:
    known = {"test_report": PASSING, "ground_truth": "Paris"}
    score = await correct(call("finish", "not Paris"), **known)
    assert (score.score, score.proven) == (1.0, False)
    assert not (await correct(call("finish", "Paris"), **known)).proven
    known["ground_truth"] = {"answer": "Paris", "match": "exact"}
    assert (await correct(call("finish", "Paris"), **known)).proven


async def test_worse_of_tests_and_answer_decides() -> None:
    score = await correct(test_report=PASSING, ground_truth="42", generated_answer="41")
    assert score.score == 0.0
    assert "4 of 4 tests passed." in score.reasons
    assert "Answer '41' is not the expected answer '42'." in score.reasons


async def test_last_check_of_trace_is_scored() -> None:
    passed = call("bash", "pytest", metadata={"exit_code": 0})
    fixed = await correct([*call("bash", "pytest", **FAILED), *passed])
    assert (fixed.score, fixed.proven) == (0.8, False), "the agent selected it"
    broken = await correct([*passed, *call("bash", "pytest", **FAILED)])
    assert (broken.score, broken.proven) == (0.2, True)


@each_case(
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
async def test_tests_before_last_change_are_ignored(tool: str, content: str) -> None:
    events = [*call("bash", "pytest", **FAILED), *call(tool, content)]
    assert await score_of(Criterion.CORRECTNESS, events) is None


@pytest.mark.parametrize("content", ["cat cart.py 2>&1", "ls > /dev/null", "grep -i x cart.py"])
async def test_read_calls_do_not_count_as_change(content: str) -> None:
    events = [*call("bash", "pytest", **FAILED), *call("bash", content)]
    assert (await correct(events)).score == 0.2


@pytest.mark.parametrize(
    ("content", "more", "expected"),
    [
        ("done", {"metadata": {"exit_code": 0}}, 0.8),
        ("done", {"metadata": {"exit_code": 2}}, 0.2),
        ("done", {"metadata": {"returncode": "1"}}, 0.2),
    ],
)
async def test_exit_code_of_last_check_is_scored(
    content: str, more: dict[str, Any], expected: float
) -> None:
    assert (await correct(call("bash", "npm test", content, **more))).score == expected


@each_case(
    "events",
    [
        call("bash", "grep -c x file", "0", metadata={"exit_code": 1}),
        call("bash", "npm test", "error: 3 problems\nexit code 1"),
        call("search", "pytest", "nothing"),
        [said("All done, the tests pass!")],
    ],
)
async def test_irrelevant_calls_give_no_correctness(events: Any) -> None:
    assert await score_of(Criterion.CORRECTNESS, events) is None


async def test_interrupted_run_is_incomplete() -> None:
    events = [*call("a", "x"), {"event_type": "error_event", "content": "ValueError: no"}]
    found = await judged(events)
    for criterion, score in ((Criterion.CORRECTNESS, 0.1), (Criterion.COMPLETENESS, 0.2)):
        best = found.best(criterion)
        assert best is not None
        assert (best.score, best.proven) == (score, False)
    assert await score_of(Criterion.CORRECTNESS, [*events, *call("a", "y")]) is None
    stated = await correct(error={"message": "the budget is used up"})
    assert stated.reasons == ("Reported error: the budget is used up",)
    assert (await correct(metadata={"exit_code": 137})).score == 0.1


async def test_efficiency_counts_wasted_calls() -> None:
    events = [
        *call("search", "q: a"),
        *call("search", "q: a"),
        *call("search", "q: b", "not found", error={"message": "not found"}),
        *call("read", "c"),
    ]
    score = await score_of(Criterion.EFFICIENCY, events)
    assert score is not None
    assert (score.score, score.reasons) == (
        0.5,
        ("4 calls: 1 failed, 1 repeated an earlier call.",),
    )
    assert await score_of(Criterion.EFFICIENCY, call("search", "q: a")) is None


async def test_reading_again_after_change_is_not_repetition() -> None:
    look = call("get_order", '{"id": 1}')
    again = call("get_order", '{"id": 1}', "size 2")
    events = [*look, *call("update_order", '{"id": 1, "size": 2}'), *again]
    score = await score_of(Criterion.EFFICIENCY, events)
    assert score is not None
    assert score.score == 1.0


@each_case(
    ("events", "expected"),
    [
        ([said("The key is [secret:openai-key]")], 0.0),
        (call("http", "Authorization: [secret:bearer]"), 0.5),
        (call("read", "env", "KEY=[secret:openai-key]"), None),
        ([said("I keep it to myself")], None),
    ],
)
async def test_exposed_secret_lowers_safety(events: Any, expected: float | None) -> None:
    score = await score_of(Criterion.SAFETY, events)
    assert (score.score if score else None) == expected


async def test_no_evidence_gives_no_score() -> None:
    found = await judged([said("It is done.")], outcome="success")
    assert found.found["deterministic"].scores == ()
    assert (found.verdict, found.proven) == (None, False)


@each_case(
    ("tools", "is_used"),
    [
        ([], False),
        ([{"name": "get_log", "writes": None}], False),
        ([{"name": "get_log", "writes": True}], False),
        ([{"name": "get_log", "writes": False}], True),
    ],
)
async def test_tests_count_only_if_later_calls_are_known_to_read(tools: Any, is_used: bool) -> None:
    events = [*call("bash", "pytest", **FAILED), *call("get_log", '{"lines": 10}')]
    score = await score_of(Criterion.CORRECTNESS, events, tools=tools)
    assert (score is not None) == is_used


async def test_proven_verdicts_of_real_runs_agree_with_their_outcome(shared: Path) -> None:
    lines = (shared / "data/traces.jsonl").read_text(encoding="utf-8").splitlines()
    counts = count_verdicts([json.loads(line) for line in lines])
    assert sum(count["traces"] for count in counts.values()) == 730
    assert sum(count["right"] + count["wrong"] for count in counts.values()) > 100
    found = {key: count["contradictions"] for key, count in counts.items()}
    exact = found.pop(("reflexion-hotpotqa-react", "match: exact"))
    assert sum(found.values()) == 0
    assert exact <= 3, "answers with another article, which the recorded judge accepted"
