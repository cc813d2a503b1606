"""The protocol of ACE, and the demonstration with and without a service."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hansei
from hansei.cli.main import app
from hansei.errors import EvaluationError
from hansei.evaluation import demo
from hansei.evaluation.presets import (
    NUMBER_FORM,
    finer_question,
    formula_question,
    load_preset,
    score_finer,
    score_formula,
)
from hansei.evaluation.statistics import mcnemar_p
from tests.sdk.stub_service import KEY, RECORDED, StubService
from tests.support.cases import each_case


@each_case(
    ("context", "question"),
    [
        (
            'Use formula A. Formula: A = B. Question:  "What is A?". Answer:',
            "What is A?" + NUMBER_FORM,
        ),
        ('Question: "A?" and B. Answer:', '"A?" and B' + NUMBER_FORM),
        ("No mark", "No mark"),
    ],
)
def test_formula_shows_the_question_only(context: str, question: str) -> None:
    assert formula_question(context) == question


def test_finer_shows_the_instruction_and_the_text() -> None:
    context = "Instruction: Choose tags.\nInput: A of 3.\nAnswer: "
    assert finer_question(context) == "Choose tags.\n\nA of 3."
    assert finer_question("You are an expert. Tags: A") == "You are an expert. Tags: A"


@each_case(
    ("answer", "solution", "value"),
    [("15", "15.0", 1), ("1,200.50", "1200.5", 1), ("15.004", "15.0", 0), ("a", "a", 1)],
)
def test_formula_score_is_exact(answer: str, solution: str, value: float) -> None:
    assert score_formula({"answer": answer, "solution": solution}) == value


def test_finer_score_counts_tags() -> None:
    assert score_finer({"answer": "a, B", "solution": "A,b,C"}) == pytest.approx(2 / 3)


def test_preset_reads_the_folder() -> None:
    folder = Path("ace")
    folder.mkdir()
    with pytest.raises(EvaluationError, match=r"ace has no file formula_train"):
        load_preset("ace-formula", folder)
    line = json.dumps({"context": 'Question: "1 + 1". Answer:', "target": "2"}) + "\n"
    (folder / "formula_train_500.jsonl").write_text(line * 3)
    (folder / "formula_test.jsonl").write_text(line * 2)
    preset = load_preset("ace-formula", folder)
    assert [task.split for task in preset.tasks] == ["stream"] * 3 + ["held_out"] * 2
    Path("adds.py").write_text("def answer(request):\n    return '2.0'\n")
    command = ["eval", "run", "--preset", "ace-formula", "--data", "ace", "--agent", "adds:answer"]
    result = CliRunner().invoke(app, [*command, "--arms", "none,examples", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["plan"]["scorer"] == preset.scorer
    assert report["plan"]["window"] == 15
    assert report["accuracy"][0]["mean"] == 1
    (folder / "formula_test.jsonl").write_text(line + "{}\n")
    with pytest.raises(EvaluationError, match=r"formula_test.jsonl, line 2: KeyError"):
        load_preset("ace-formula", folder)


@each_case(
    ("name", "folder", "reason"),
    [
        ("ace-formula", None, "needs --data"),
        ("gaia", None, "Unknown preset 'gaia'. Presets are ace-formula, ace-finer, bfcl"),
        ("bfcl", None, "No module named 'bfcl_eval'.*pip install --no-deps bfcl-eval"),
    ],
)
def test_preset_that_cannot_be_read(name: str, folder: Path | None, reason: str) -> None:
    with pytest.raises(EvaluationError, match=reason):
        load_preset(name, folder)


def test_demo_without_a_service() -> None:
    result = CliRunner().invoke(app, ["eval", "demo", "--output", "demo"])
    assert result.exit_code == 0, result.output
    assert demo.TITLE in result.stdout
    report = json.loads(Path("demo/report.json").read_text())
    assert report["tasks"] == {"stream": 32, "held_out": 8, "controls": 8}
    assert report["plan"]["protocol"]["arms"] == ["none", "icl", "examples"]
    first = report["comparisons"][0]
    assert first["p"] == mcnemar_p(first["better"], first["worse"]) < 0.05
    assert all(row["worse"] == 0 for row in report["controls"])


def test_demo_of_house_rules_without_a_service() -> None:
    result = CliRunner().invoke(
        app, ["eval", "demo", "--house-rules", "--seed", "5", "--output", "demo"]
    )
    assert result.exit_code == 0, result.output
    assert demo.TITLE in result.stdout
    report = json.loads(Path("demo/report.json").read_text())
    assert report["notes"][0] == demo.TITLE
    assert report["tasks"] == {"stream": 60, "held_out": 60, "controls": 24}
    right = {row["arm"]: row["mean"] for row in report["accuracy"] if row["phase"] == "primary"}
    assert right["none"] == 0.2
    assert right["icl"] == 1
    assert all(row["worse"] == 0 for row in report["controls"])
    _, _, conventions = result.stdout.partition("Hidden conventions of seed 5:\n")
    preset = load_preset("house-rules", seed=5)
    assert conventions.splitlines()[:8] == preset.about
    assert "`" in preset.about[0]
    assert "--preset house-rules" in conventions
    again = CliRunner().invoke(app, ["eval", "demo", "--house-rules", "--json"])
    assert json.loads(again.stdout)["plan"]["protocol"]["seed"] == 1


@pytest.mark.parametrize("has_model", [True, False])
def test_demo_of_house_rules_needs_a_service_with_a_model(
    monkeypatch: pytest.MonkeyPatch, service: StubService, has_model: bool
) -> None:
    monkeypatch.setenv("HANSEI_URL", service.url)
    monkeypatch.setenv("HANSEI_API_KEY", KEY)
    model = {"status": "ok" if has_model else "none"}
    monkeypatch.setitem(RECORDED, "ready", RECORDED["ready"] | {"model": model})
    result = CliRunner().invoke(app, ["eval", "demo", "--house-rules", "--output", "demo"])
    plan = json.loads(Path("demo/plan.json").read_text())
    assert ("hansei" in plan["protocol"]["arms"]) == has_model
    assert ("The service has no model" in result.stderr) != has_model


@pytest.mark.parametrize("arm", ["hansei", "full"])
async def test_demo_with_the_service_learns_without_a_model(
    live: str, tenant: Any, drain: Any, arm: str
) -> None:
    with hansei.Hansei(live, tenant.keys["admin"]) as client:
        options = vars(demo.PROTOCOL) | {"arms": ["none", arm]}
        task = asyncio.create_task(
            asyncio.to_thread(
                hansei.evaluate,
                demo.answer,
                demo.make_tasks(),
                folder="demo",
                client=client,
                **options,
            )
        )
        while not task.done():
            await drain(tenant.id)
            await asyncio.sleep(0.05)
        report = await task
    by_arm = {row["arm"]: row["mean"] for row in report["accuracy"] if row["phase"] == "primary"}
    assert by_arm["none"] < 0.5 < by_arm[arm]
    assert report["learning"]["bullets"] == 4
    assert report["total_usd"] == sum(row["total_usd"] for row in report["costs"]) > 0
    assert report["advice"][0]["cited"] > 0
