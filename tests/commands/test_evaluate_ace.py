"""`hansei eval ace`: its scores, and the whole protocol on a service with scripted answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from memory_api.commands.evaluate_ace import (
    EvaluationOptions,
    ScriptedModel,
    _evaluate,
    final_answer,
    format_report,
    load_samples,
    score_answer,
)
from memory_api.core.errors import ConfigurationError
from tests.conftest import TestTenant
from tests.support.cases import each_case


@each_case(
    ("task", "answer", "target", "expected"),
    [
        ("finer", "Revenues, debt", "revenues,Debt", (2, 2)),
        ("finer", "Debt", "Revenues,Debt", (0, 2)),
        ("finer", "", "Revenues", (0, 1)),
        ("formula", "$1,200.0", "1200", (1, 1)),
        ("formula", "12", "1200", (0, 1)),
        ("formula", "none", "1200", (0, 1)),
    ],
)
def test_answers_are_scored(task, answer: str, target: str, expected: tuple[int, int]) -> None:
    assert score_answer(task, answer, target) == expected


def test_last_marked_line_is_the_answer() -> None:
    assert final_answer("ANSWER: 1\nNo.\nanswer: `2`\n") == "2"
    assert final_answer("first\nlast\n") == "last"
    assert final_answer("") == ""


def test_data_of_ace_is_read_and_damage_is_named(tmp_path: Path) -> None:
    line = json.dumps({"context": "How much?", "target": "7"})
    (tmp_path / "formula_train_500.jsonl").write_text(f"{line}\n\n{line}\n")
    (tmp_path / "formula_test.jsonl").write_text(f"{line}\n{{\n")
    options = EvaluationOptions("formula", data=tmp_path)
    with pytest.raises(ConfigurationError, match=r"formula_test.jsonl, line 2"):
        load_samples(options)
    (tmp_path / "formula_test.jsonl").write_text(line)
    train, test = load_samples(options)
    assert (len(train), len(test), test[0].target) == (2, 1, "7")
    with pytest.raises(ConfigurationError, match="finer_train"):
        load_samples(EvaluationOptions("finer", data=tmp_path))
    with pytest.raises(ConfigurationError, match="--data"):
        load_samples(EvaluationOptions("finer"))


async def test_dry_run_goes_through_offline_and_online(
    live: str, tenant: TestTenant, drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSEI_URL", live)
    monkeypatch.setenv("HANSEI_API_KEY", tenant.keys["admin"])
    options = EvaluationOptions("formula", dry_run=True, limit=2)
    train, test = load_samples(options)
    model = ScriptedModel([*train, *test])
    evaluation = asyncio.create_task(_evaluate(options, model, train, test))
    while not evaluation.done():
        await drain(tenant.id)  # the worker
        await asyncio.wait([evaluation], timeout=0.05)
    scores, learning = evaluation.result()
    assert [score.name.split(":")[0] for score in scores] == [
        "without a playbook",
        *("offline", "offline", "online"),
    ]
    assert {(score.correct, score.total) for score in scores} == {(1, 2)}
    assert learning["calls"] == 0
    report = {
        "task": "formula",
        "model": model.model,
        "samples": {"test": 2},
        "scores": [vars(score) | {"accuracy": score.accuracy} for score in scores],
        "learning": learning,
    }
    assert "50.0%" in format_report(report)
    assert "means nothing" in format_report(report)
