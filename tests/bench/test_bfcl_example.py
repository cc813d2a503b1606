"""The preset `bfcl` and its agent in `examples/bfcl`, with stand-ins for the package."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hansei.evaluation import bfcl as preset
from hansei.evaluation.agents import load_function
from hansei.evaluation.presets import load_preset

TOOL = {
    "name": "cd",
    "description": "This tool belongs to the file system. Tool description: Change the folder.",
    "parameters": {
        "properties": {"folder": {"type": "string", "description": "Its name."}},
        "required": ["folder"],
    },
}
TASK = {
    "id": "base_1",
    "question": [[{"content": "Go to a."}], [{"content": "Go to b."}]],
    "initial_config": {},
    "involved_classes": ["Files"],
}
RIGHT = [["cd(folder='a')"], ["cd(folder='b')"]]


def execute(calls: list[str], *_: Any) -> tuple[list[str], dict[str, Any]]:
    return [f"executed {call}" for call in calls], {}


def check(calls: list[list[list[str]]], right: list[list[str]], *_: Any) -> dict[str, Any]:
    is_right = [[call for step in turn for call in step] for turn in calls] == right
    return {"valid": is_right, "error_message": "The state differs."}


@pytest.fixture
def bfcl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    package = tmp_path / "bfcl_eval"
    for name, line in {
        "data/BFCL_v4_multi_turn_base.json": TASK,
        "data/multi_turn_func_doc/files.json": TOOL,
        "data/possible_answer/BFCL_v4_multi_turn_base.json": {
            "id": "base_1",
            "ground_truth": RIGHT,
        },
    }.items():
        file = package / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(line))
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    checks = "bfcl_eval.eval_checker.multi_turn_eval"
    for name, content in {
        "bfcl_eval.constants.executable_backend_config": {
            "MULTI_TURN_FUNC_DOC_FILE_MAPPING": {"Files": "files.json"}
        },
        f"{checks}.multi_turn_checker": {"multi_turn_checker": check},
        f"{checks}.multi_turn_utils": {"execute_multi_turn_func_call": execute},
    }.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    preset.bfcl_tasks.cache_clear()
    preset.right_calls.cache_clear()
    yield importlib.import_module("examples.bfcl.episode")
    for name in [n for n in sys.modules if n.startswith(("examples.bfcl", "bfcl_eval"))]:
        del sys.modules[name]


def test_agent_sees_one_request_after_another(bfcl: Any) -> None:
    episode = bfcl.Episode("base_1")
    system, user = episode.prompt("Advice.")
    assert "cd(folder): Change the folder.\n  folder: string. Its name." in system["content"]
    assert user["content"] == "Advice.\nGo to a."
    look = episode.say("cd(folder='a')\nMORE")
    assert look == "cd: executed cd(folder='a')\n\nContinue."
    assert episode.say("") == "Go to b."
    assert episode.say("cd(folder='b')") is None
    assert json.loads(episode.answer()) == RIGHT
    assert [event["event_type"] for event in episode.events] == [
        *("user_message", "tool_call", "tool_response"),
        *("user_message", "tool_call", "tool_response"),
    ]


def score(answer: Any) -> tuple[float, str]:
    return preset.score({"task_id": "base_1", "answer": answer})


@pytest.mark.usefixtures("bfcl")
def test_tasks_are_those_of_the_package() -> None:
    found = load_preset("bfcl", None)
    assert [task.id for task in found.tasks] == ["base_1"]
    assert found.tasks[0].text == "Go to a.\nGo to b."
    assert found.tasks[0].control
    assert load_function(found.scorer) is preset.score
    assert score(found.tasks[0].right_answer) == (1.0, "")


@pytest.mark.usefixtures("bfcl")
def test_score_is_the_check_of_the_benchmark() -> None:
    assert score(json.dumps(RIGHT)) == score(RIGHT) == (1.0, "")
    for wrong in ("[]", json.dumps(RIGHT[:1])):
        assert score(wrong) == (0.0, "The state differs.")
    for wrong in ("no JSON", "[1]", "{"):
        assert score(wrong) == (0.0, "The answer is no JSON list with the calls of each turn.")


UNSAFE = pytest.mark.parametrize(
    "line",
    [
        "__import__('os').system('true')",
        "open('x')",
        "cd(folder=open('x'))",
        "cd(*['a'])",
        "cd(folder=f'{open}')",
        "cd(folder='a'); open('x')",
        "(lambda: 1)()",
    ],
)


@UNSAFE
@pytest.mark.usefixtures("bfcl")
def test_answer_with_another_program_is_wrong(line: str) -> None:
    value, reason = score([[line], []])
    assert value == 0
    assert reason.startswith(f"{line}: T")


@UNSAFE
def test_only_documented_tools_with_literal_values_are_executed(bfcl: Any, line: str) -> None:
    episode = bfcl.Episode("base_1")
    assert "executed" not in (episode.say(f"{line}\nMORE") or "")
    assert json.loads(episode.answer()) == [[]]
