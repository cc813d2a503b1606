"""`bench grace_with_model`: its questions, and that no prompt is paid for twice."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from bench.grace_arms import ArmBench, answer_as_person
from bench.grace_questions import SETS, load_set, matches
from bench.grace_with_model import (
    MEASURED,
    RECORDINGS,
    load_measurement,
    recorded_arms,
    to_report,
)
from bench.harness import RESULTS, MeasuredServer
from bench.recorded_model import NotRecorded
from memory_api.llm.registry import open_llm
from tests.conftest import Database
from tests.support.cases import each_case
from tests.support.stub_provider import Call, StubProvider, answer

FERRY = load_set("ferry")
SOME = ("two-01", "two-18", "none-05", "simple-06")


@each_case("name", SETS)
def test_questions_are_as_declared(name: str) -> None:
    loaded = load_set(name)
    questions = loaded.questions
    by_type = {
        kind: [each for each in questions if each.type == kind]
        for kind in ("two", "none", "simple")
    }
    assert {kind: len(each) for kind, each in by_type.items()} == {
        "two": 20,
        "none": 10,
        "simple": 10,
    }
    for group in by_type.values():
        assert sum(bool(each.facts) for each in group) == len(group) / 2
    names = {name for _, name in loaded.documents}
    assert len(names) >= 12
    assert len(loaded.collections) == 3
    assert {collection for collection, _ in loaded.documents} == {*loaded.collections}
    for each in questions:
        assert {*each.documents} <= names
        assert len(each.documents) >= {"two": 2, "simple": 1, "none": 0}[each.type]
        assert each.type != "simple" or len(each.documents) == 1


@pytest.mark.parametrize(
    ("match", "text", "expected", "is_right"),
    [
        ("number", "It costs 8,816 crowns [12].", "8816", True),
        ("number", "It costs 8 816 crowns.", "8816", True),
        ("number", "You get 61.10 crowns.", "61.1", True),
        ("number", "Four days.", "4", True),
        ("number", "Use oil M-30 [14].", "30", False),
        ("number", "It costs 541 crowns.", "54", False),
        ("number", "The sources say nothing [4].", "4", False),
        ("contains", "The Dynar 8 needs oil of the type M-30 [2].", "M-30", True),
        ("contains", "Clean filter F21.", "F2", False),
        ("exact", "R-11 [1].", "R-11", True),
        ("exact", "Form R-11", "R-11", False),
    ],
)
def test_right_answer(match: str, text: str, expected: str, is_right: bool) -> None:
    assert matches(match, text, expected) is is_right


@each_case("ending", ["right", "not found", "wrong"])
def test_ending_of_a_question(ending: str) -> None:
    two, none = FERRY.questions[0], FERRY.questions[20]
    found = {"state": "done", "found": True, "answer": "M-30 [1]"}
    runs = {
        "right": (found, found | {"found": False}),
        "not found": (found | {"found": False}, None),
        "wrong": (found | {"answer": "M-40"}, found),
    }
    for question, run in zip((two, none), runs[ending], strict=True):
        assert run is None or question.ending(run) == ending


def test_person_says_facts_first() -> None:
    facts = ["I work in the office."]
    options = ["input", "proceed", "cancel"]
    assert answer_as_person(options, facts) == {"action": "input", "input": "I work in the office."}
    assert answer_as_person(options, facts) == {"action": "proceed"}
    assert answer_as_person(["input", "skip", "cancel"], facts) == {"action": "skip"}
    assert answer_as_person(["proceed", "modify", "cancel"], ["X"])["action"] == "modify"


class Reader:
    """Answers from the text of the prompt: only what a person has said makes sources suffice."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def behave(self, call: Call) -> Any:
        text = f"{call.system}\n{call.user}"
        self.prompts.append(text)
        if "You plan how an agent" in text:
            steps = [planned(1, "rag_search", []), planned(2, "reasoning", [1])]
            return answer({"complexity": 0.3, "steps": steps, "cited_bullets": []})
        if "Solve the task step by step" in text:
            search = {"thought": "", "tool": "rag_search", "tool_query": "leave", "answer": None}
            finish = {"thought": "", "tool": None, "tool_query": None, "answer": "M-30 [1]",
                      "sufficient": "Quill" in text}  # fmt: skip
            return answer(finish if "<observation" in text else search)
        if "Compare an answer" in text:
            claims = [{"claim": "M-30", "verdict": "neutral"}]
            return answer({"claims": claims, "self_evaluation": 0.9, "coverage": 0.9})
        is_enough = "<person-" in text or "Quill" in text.rpartition("Question:")[2]
        said = re.findall(r"<person-\w+>\n(.*?)\n</person", text)
        return answer({"answer": f"M-30, 91 or 26. {said}", "sufficient": is_enough})


def planned(number: int, action: str, needs: list[int]) -> dict[str, Any]:
    return {
        "step_id": number, "action": action, "depends_on": needs, "collection": None,
        "query": "annual leave" if action == "rag_search" else None, "fallback": None,
    }  # fmt: skip


@each_case("arm", ["one_search", "react", "again"])
def test_arm_that_is_run_again_asks_for_nothing_and_has_the_same_report(
    arm: str, database: Database, tmp_path: Path
) -> None:
    reader = Reader()
    asked = replace(FERRY, questions=[each for each in FERRY.questions if each.id in SOME])
    server = cast("MeasuredServer", database)

    def run(*, with_model: bool, only: str = arm) -> dict[str, Any]:
        with StubProvider() as stub:
            stub.behave = reader.behave
            llm = open_llm("openai", model="m", api_key="k", base_url=stub.openai_url)
            bench = ArmBench(only, tmp_path, asked)
            return asyncio.run(bench.run(server, llm if with_model else None))

    if arm == "again":
        run(with_model=True, only="grace")
    first = run(with_model=True)
    paid = len(reader.prompts)
    assert paid > 0
    assert to_report(run(with_model=False)).text() == to_report(first).text()
    assert to_report(run(with_model=True)).text() == to_report(first).text()
    assert len(reader.prompts) == paid
    answered = {each.question.id: each for each in first[arm]}
    assert answered["two-01"].is_right
    assert answered["two-18"].asked >= 1
    assert answered["two-01"].tokens > 0
    file = tmp_path / f"{arm}.jsonl"
    lines = file.read_text("utf8").splitlines()
    assert not [line for line in lines if re.search(r"-[0-9a-f]{16}>", json.loads(line)["prompt"])]
    file.write_text("\n".join(lines[1:]) + "\n", "utf8")
    with pytest.raises(NotRecorded, match="has no answer"):
        run(with_model=False)
    run(with_model=True)
    assert len(reader.prompts) == paid + 1


def test_judge_may_be_another_model(database: Database, tmp_path: Path) -> None:
    server = cast("MeasuredServer", database)
    asked = replace(FERRY, questions=[FERRY.questions[0]])
    with StubProvider() as answering, StubProvider() as judging:
        readers = {stub: Reader() for stub in (answering, judging)}
        for stub, reader in readers.items():
            stub.behave = reader.behave
        models = [open_llm("openai", model="m", api_key="k", base_url=stub.openai_url)
                  for stub in readers]  # fmt: skip
        asyncio.run(ArmBench("grace", tmp_path, asked).run(server, *models))
    is_judging = [["Compare an answer" in prompt for prompt in readers[stub].prompts]
                  for stub in (answering, judging)]  # fmt: skip
    assert is_judging[0]
    assert not any(is_judging[0])
    assert is_judging[1]
    assert all(is_judging[1])


@pytest.mark.skipif(not recorded_arms(), reason="no recorded answers to the present prompts")
def test_results_follow_from_the_recorded_answers(database: Database) -> None:
    """Whoever changes a prompt removes the recordings, which no longer fit."""
    server = cast("MeasuredServer", database)
    asked = load_set(SETS[0])
    results = {
        arm: asyncio.run(ArmBench(arm, RECORDINGS / SETS[0], asked).run(server, None))[arm]
        for arm in recorded_arms()
    }
    assert to_report(results).text() == (RESULTS / "grace_with_model.md").read_text("utf8")


@each_case("file", sorted(MEASURED.glob("*.jsonl")))
def test_earlier_measurements_have_each_question_once_for_each_arm(file: Path) -> None:
    results = load_measurement(file)
    assert {"react", "grace"} <= results.keys()
    for answered in results.values():
        assert len({each.question.id for each in answered}) == len(answered) == 40
