"""Task files: what is accepted, how answers are scored, and clear errors for damaged lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hansei.errors import EvaluationError
from hansei.evaluation.plan import Protocol, load_plan, make_plan
from hansei.evaluation.tasks import Task, read_tasks, score_by_match
from tests.support.cases import each_case


def write(*lines: dict[str, Any] | bytes) -> Path:
    path = Path("tasks.jsonl")
    path.write_bytes(
        b"\n".join(x if isinstance(x, bytes) else json.dumps(x).encode() for x in lines)
    )
    return path


def error_of(path: Path, *, has_scorer: bool = False) -> str:
    with pytest.raises(EvaluationError) as raised:
        read_tasks(path, has_scorer=has_scorer)
    return raised.value.detail


ADD = {"id": "a", "task": "1 + 1", "expected": "2"}


def test_task_with_all_fields() -> None:
    line = ADD | {"match": "number", "group": "sums", "control": True, "split": "held_out"}
    [task] = read_tasks(write(b"\xef\xbb\xbf" + json.dumps(line).encode(), b"", b"  "))
    assert (task.match, task.group, task.control, task.split) == (
        "number",
        "sums",
        True,
        "held_out",
    )
    assert task.to_json() == line


def test_empty_file() -> None:
    assert error_of(write(b"", b" ")) == "tasks.jsonl contains no task."


def test_missing_file() -> None:
    assert error_of(Path("none.jsonl")) == "Cannot read none.jsonl: No such file or directory."


@each_case(
    ("line", "reason"),
    [
        (b"{", "no valid JSON"),
        (b"\xff\xfe", "no valid UTF-8"),
        (b"[1]", "a task is a JSON object"),
        ({"task": "x", "expected": 1}, "`id` is missing"),
        ({"id": "b", "expected": 1}, "`task` is missing"),
        ({"id": "b", "task": " ", "expected": 1}, "must not be empty"),
        ({"id": "a", "task": "x", "expected": 1}, "ID 'a' is already used in line 1"),
        ({"id": "b", "task": "x"}, "needs `expected`, a scorer, or `match: outcome`"),
        ({"id": "b", "task": "x", "expected": 1, "scorer": "s"}, "both `expected` and a scorer"),
        ({"id": "b", "task": "x", "expected": 1, "match": "fuzzy"}, "`match` is one of text,"),
        ({"id": "b", "task": "x", "expected": "(", "match": "regex"}, "no regular expression"),
        ({"id": "b", "task": "x", "expected": 1, "answer": 2}, "unknown field `answer`"),
        ({"id": "b", "task": "x", "expected": 1, "split": "test"}, "`split` is `stream` or"),
        ({"id": "b", "task": "x", "expected": 1, "metadata": 3}, "`metadata` is an object"),
    ],
)
def test_damaged_line_is_named(line: dict[str, Any] | bytes, reason: str) -> None:
    text = error_of(write(ADD, line))
    assert "line 2: " in text
    assert reason in text
    assert "\n" not in text


def test_damaged_lines_are_reported_at_once_and_each_reason_once() -> None:
    text = error_of(write(*[b"{"] * 8, {"id": "a", "task": "x"}))
    assert "lines 1, 2, 3, 4, 5 and 3 more: no valid JSON" in text
    assert "line 9: needs `expected`" in text
    many = error_of(write(*({"id": str(n), "task": "x", str(n): n} for n in range(7))))
    assert many.endswith("unknown field `4`; put data of your own into `metadata`; and 2 more.")


def test_expected_and_a_scorer_of_the_run() -> None:
    assert "both `expected` and a scorer" in error_of(write(ADD), has_scorer=True)


@each_case(
    ("match", "answer", "expected", "value"),
    [
        (None, " Two  words. ", "two words", 1),
        (None, "two", "three", 0),
        (None, "[1, 2]", [1, 2], 1),
        (None, "no json", [1, 2], 0),
        (None, 0, 0, 1),
        ("exact", "Two", "two", 0),
        ("number", "$1,200.50", 1200.5, 1),
        ("number", "12 apples", "12 apples", 1),
        ("number", "12.1", 12, 0),
        ("contains", "It is Basel, surely", "basel", 1),
        ("regex", "order 42", r"\b42\b", 1),
        ("items", "A, b ,d", "a,B,c", 2 / 3),
        ("number", "79 [pat-00001]", 79, 1),
        (None, "Basel [pat-00001] [mis-00002].", "basel", 1),
        ("exact", "Basel [pat-00001, mis-00002]", "Basel", 1),
        ("exact", "[pat-00001] Basel", "Basel", 1),
        ("exact", "Basel [pat-1]", "Basel", 0),
        ("exact", "see [pat-00001]", "see [pat-00001]", 1),
        ("items", "a [pat-00001], b", "a,b", 1),
        ("items", "a", "a,b,c,d", 0.25),
    ],
)
def test_match(match: str | None, answer: Any, expected: Any, value: float) -> None:
    task = Task("a", "x", expected, match)
    assert score_by_match(task, answer, None).value == pytest.approx(value)


def test_match_outcome_uses_what_the_agent_reports() -> None:
    task = Task("a", "x", match="outcome")
    scores = [score_by_match(task, "", outcome).value for outcome in ("success", "failure", None)]
    assert scores == [1, 0, 0]


def test_expected_zero_and_false_survive_the_folder(tmp_path: Path) -> None:
    lines = [{"id": "a", "task": "x", "expected": 0}, {"id": "b", "task": "x", "expected": False}]
    plan = make_plan(read_tasks(write(*lines)), Protocol(), agent="x")
    plan.save(tmp_path)
    assert [task.expected for task in load_plan(tmp_path).tasks] == [0, False]


def test_examples_need_right_answers() -> None:
    tasks = read_tasks(write(ADD, {"id": "b", "task": "x", "scorer": "s"}))
    with pytest.raises(EvaluationError, match="`examples` needs the right answer of every task"):
        make_plan(tasks, Protocol(arms=("none", "examples")), agent="x")


@each_case(
    ("options", "reason"),
    [
        ({"arms": ("none", "mem")}, "Unknown arm 'mem'"),
        ({"arms": ("none", "none")}, "names each arm once"),
        ({"held_out": 1}, "Cannot hold out 1: the stream has only 1"),
    ],
)
def test_protocol_that_does_not_fit(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(EvaluationError, match=reason):
        make_plan([Task("a", "x", 1)], Protocol(**options), agent="x")


def test_changed_plan_or_tasks_are_refused(tmp_path: Path) -> None:
    plan = make_plan(read_tasks(write(ADD, ADD | {"id": "b"})), Protocol(), agent="x")
    plan.save(tmp_path)
    assert load_plan(tmp_path) == plan
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(tasks.read_text().replace('"2"', '"3"'))
    with pytest.raises(EvaluationError, match="were changed after the start"):
        load_plan(tmp_path)


def test_folder_without_a_plan(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="has no readable evaluation"):
        load_plan(tmp_path)


def test_order_of_the_file_can_be_kept() -> None:
    tasks = [Task(str(n), "x", 1) for n in range(20)]
    assert make_plan(tasks, Protocol(order="file"), agent="x").orders == (
        tuple(task.id for task in tasks),
    )


def test_seed_decides_order_and_calls_are_interleaved() -> None:
    tasks = [Task(str(n), "x", 1) for n in range(40)]
    one, same, other = (
        make_plan(tasks, Protocol(seed=seed, held_out=10), agent="x") for seed in (1, 1, 2)
    )
    assert one.orders == same.orders != other.orders
    assert list(one.blocks()) == list(same.blocks())
    arms = [call.arm for call in next(one.blocks()).calls]
    assert arms.count("none") == arms.count("hansei") == one.window
    assert arms != sorted(arms)
    assert arms != sorted(arms, reverse=True)
    assert sum(task.split == "held_out" for task in one.tasks) == 10
