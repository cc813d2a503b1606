"""Folders of evaluations that are damaged or made by others: one error that names the place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hansei.errors import EvaluationError
from hansei.evaluation import demo, evaluate
from hansei.evaluation.plan import Protocol, make_plan
from hansei.evaluation.report import build_report
from hansei.evaluation.tasks import Task
from hansei.nothing_learned import CONFIRMATION_RULE

LEARNING: dict[str, Any] = {
    "repeat": 0, "window": 0, "project": "p", "traces": 1, "failed_runs": [], "judged": [],
    "followed": [], "bullets": 1, "waiting": 0, "usage": {"calls": 1}, "seconds": 1.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluation")
    tasks = [Task(**task) for task in demo.make_tasks()[:6]]
    plan = make_plan(tasks, Protocol(arms=("none", "icl"), second_pass=False), agent=demo.AGENT)
    evaluate.run(plan, folder)
    (folder / "learning.jsonl").write_text(json.dumps(LEARNING) + "\n")
    assert build_report(folder)["calls"]["done"] == 12
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "copy")


def change_plan(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Its hash is made right again, as somebody can do who shares a folder."""
    file = folder / "plan.json"
    plan = json.loads(file.read_text())
    change(plan)
    stored = {k: v for k, v in plan.items() if k not in ("sha256", "repeated_sha256")}
    if "sha256" in plan:
        text = json.dumps(stored, sort_keys=True)
        plan["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    file.write_text(json.dumps(plan))


def test_plan_of_an_older_version_has_the_hash_of_its_file(folder: Path) -> None:
    change_plan(folder, lambda plan: plan["protocol"].pop("min_match"))
    stored = json.loads((folder / "plan.json").read_text())["sha256"]
    assert build_report(folder)["plan"]["sha256"] == stored


@pytest.mark.parametrize(
    ("unpriced", "helpful", "learning", "bullet"),
    [(0, 2, 0.2, 0.1), (0, 0, 0.2, None), (0, None, 0.2, None), (1, 2, None, None)],
)
def test_cost_of_learning_is_unknown_without_all_prices(
    folder: Path, unpriced: int, helpful: int | None, learning: float | None, bullet: float | None
) -> None:
    usage = {"calls": 4, "unpriced": unpriced, "usd": 0.2}
    record = LEARNING | {"usage": usage, "helpful": helpful}
    (folder / "learning.jsonl").write_text(json.dumps(record) + "\n")
    report = build_report(folder)
    assert report["learning"]["usd"] == report["learning"]["usd_per_trace"] == learning
    assert report["learning"]["usd_per_helpful_bullet"] == bullet
    agent = sum(row["total_usd"] for row in report["costs"])
    expected = None if learning is None else pytest.approx(agent + learning)
    assert report["total_usd"] == expected
    assert any("no budget counts it" in note for note in report["notes"]) == bool(unpriced)


def test_followed_advice_is_that_of_the_learning_arm(folder: Path) -> None:
    ids = [task["id"] for task in demo.make_tasks()]
    records = [LEARNING | {"judged": ids, "followed": ids, "window": n} for n in range(6)]
    (folder / "learning.jsonl").write_text("\n".join(map(json.dumps, records)))
    (icl,) = build_report(folder)["advice"]
    assert icl["judged"] == 0
    assert icl["followed"] is None


@pytest.mark.parametrize("bullets", [0, 3])
def test_report_counts_lessons_that_wait_and_names_the_commands(folder: Path, bullets: int) -> None:
    record = LEARNING | {"bullets": bullets, "waiting": 2, "project": "eval-1"}
    (folder / "learning.jsonl").write_text(json.dumps(record) + "\n")
    (note,) = (
        each
        for each in build_report(folder)["notes"]
        if each.startswith("LESSONS WAIT for a person or a second run: 2.")
    )
    assert CONFIRMATION_RULE in note
    assert "`hansei playbook show evaluation --status all --project eval-1`" in note
    assert "`hansei playbook confirm evaluation KEY --project eval-1`" in note
    assert "`--playbook NAME`" in note


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("protocol", {}),
        ("orders", []),
        ("orders", [5]),
        ("orders", [["unknown"]]),
        ("id", {}),
        ("agent", None),
        ("scorer", []),
        ("created_at", 5),
    ],
)
def test_damaged_plan(folder: Path, name: str, value: object) -> None:
    change_plan(folder, lambda plan: plan.update({name: value}))
    with pytest.raises(EvaluationError):
        build_report(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("arms", 5),
        ("arms", []),
        ("arms", ["x"]),
        ("arms", [[]]),
        ("window", -1),
        ("window", "x"),
        ("repeats", 0),
        ("seed", []),
        ("unknown", 1),
        ("playbook", 5),
        ("second_pass", "x"),
    ],
)
def test_damaged_protocol(folder: Path, name: str, value: object) -> None:
    change_plan(folder, lambda plan: plan["protocol"].update({name: value}))
    with pytest.raises(EvaluationError, match=name):
        build_report(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("score", 1e308),
        ("score", "x"),
        ("score", float("nan")),
        ("repeat", []),
        ("phase", []),
        ("task_id", {}),
        ("arm", None),
        ("error", {}),
        ("usage", 5),
        ("usage", {"input_tokens": "x"}),
        ("usage", {"a": 10**400}),
        ("usd", "x"),
        ("cited", 5),
        ("advice", 5),
        ("seconds", None),
        ("retrieval_id", 5),
        ("events", 5),
        ("bullet_keys", [[]]),
        ("advice_tokens", None),
    ],
)
def test_damaged_answer(folder: Path, name: str, value: object) -> None:
    damage(folder / "answers.jsonl", name, value)
    with pytest.raises(EvaluationError, match=f"line 13: `{name}`"):
        build_report(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("traces", "x"),
        ("usage", {"calls": "x"}),
        ("usage", None),
        ("project", 5),
        ("judged", 5),
        ("failed_runs", 5),
        ("bullets", "x"),
        ("waiting", "x"),
        ("seconds", None),
        ("window", []),
    ],
)
def test_damaged_learning(folder: Path, name: str, value: object) -> None:
    damage(folder / "learning.jsonl", name, value)
    with pytest.raises(EvaluationError, match=f"line 2: `{name}`"):
        build_report(folder)


def damage(file: Path, name: str, value: object) -> None:
    record = json.loads(file.read_text().splitlines()[-1])
    with file.open("a") as lines:
        lines.write(json.dumps(record | {name: value}) + "\n")


@pytest.mark.parametrize("name", ["plan.json", "tasks.jsonl", "answers.jsonl", "learning.jsonl"])
def test_named_pipe_or_folder_in_place_of_a_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(EvaluationError, match=r"no file|not a file"):
        build_report(folder)
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(EvaluationError, match=r"no file|not a file"):
        build_report(folder)


def test_nested_plan_is_damaged_and_a_nested_line_is_cut_off(folder: Path) -> None:
    with (folder / "answers.jsonl").open("a") as lines:
        lines.write("[" * 100_000 + "\n")
    assert build_report(folder)["calls"]["done"] == 12
    (folder / "plan.json").write_text("[" * 100_000)
    with pytest.raises(EvaluationError, match="no readable evaluation"):
        build_report(folder)
