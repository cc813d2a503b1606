"""The preset `bfcl`: 200 multi-turn tasks of the Berkeley Function Calling Leaderboard. Models
solve most of them without a memory, so they show whether advice does harm.

Tasks, simulators and checks are those of the package `bfcl-eval`, which the user installs.
"""

from __future__ import annotations

import ast
import importlib
import json
import random
from collections.abc import Collection
from functools import cache
from importlib.resources import files
from itertools import count
from typing import Any

from hansei._model import Json
from hansei.errors import EvaluationError
from hansei.evaluation.tasks import Task

CATEGORY = "multi_turn_base"
STREAM_SIZE = 20
"""Tasks to learn from. The others are held out."""
_checks = count()


def make_tasks() -> list[Task]:
    """In a random order that is always the same. All are controls: what they need is in the
    documentation of the tools. Raises `EvaluationError` without the package.
    """
    right = right_calls()
    return [
        Task(
            task_id,
            "\n".join(requests_of(bfcl_tasks()[task_id])),
            solution=json.dumps(right[task_id]),
            control=True,
            split="stream" if index < STREAM_SIZE else "held_out",
        )
        for index, task_id in enumerate(random.Random(1).sample(sorted(right), len(right)))
    ]


@cache
def bfcl_tasks() -> dict[str, Json]:
    """The tasks as the package has them, by ID."""
    return {task["id"]: task for task in _lines(f"BFCL_v4_{CATEGORY}.json")}


@cache
def right_calls() -> dict[str, list[list[str]]]:
    """The right calls of each turn, by task."""
    answers = _lines(f"possible_answer/BFCL_v4_{CATEGORY}.json")
    return {answer["id"]: answer["ground_truth"] for answer in answers}


def requests_of(task: Json) -> list[str]:
    """What the user says in each turn."""
    return ["\n".join(message["content"] for message in turn) for turn in task["question"]]


def tools_of(task: Json) -> dict[str, Json]:
    """The documentation of each tool of a task, by name."""
    file_of = import_bfcl("constants.executable_backend_config").MULTI_TURN_FUNC_DOC_FILE_MAPPING
    names = [f"multi_turn_func_doc/{file_of[name]}" for name in task["involved_classes"]]
    excluded: list[str] = task.get("excluded_function") or []
    tools = [tool for name in names for tool in _lines(name)]
    return {tool["name"]: tool for tool in tools if tool["name"] not in excluded}


def call_problem(line: str, tools: Collection[str]) -> str | None:
    """Why a line must not be executed: the simulators evaluate it as Python."""
    try:
        call = ast.parse(line, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return "This is no call with literal arguments."
        if call.func.id not in tools:
            return f"There is no tool {call.func.id!r}."
        for value in [*call.args, *(word.value for word in call.keywords)]:
            ast.literal_eval(value)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return "This is no call with literal arguments."
    return None


def score(document: Json) -> tuple[float, str]:
    """Whether the benchmark's own check accepts an answer, and its message. An answer is JSON: for
    each turn, the list of its calls.
    """
    task, right = bfcl_tasks()[document["task_id"]], right_calls()[document["task_id"]]
    tools = tools_of(task)
    try:
        answer: Any = document["answer"]
        turns = json.loads(answer) if isinstance(answer, str) else answer
        calls = [[[str(call) for call in turn]] for turn in turns]
    except (ValueError, TypeError):
        return 0.0, "The answer is no JSON list with the calls of each turn."
    for call in (call for [turn] in calls for call in turn):
        if problem := call_problem(call, tools):
            return 0.0, f"{call}: {problem}"
    calls += [[[]]] * (len(right) - len(calls))
    check = import_bfcl("eval_checker.multi_turn_eval.multi_turn_checker").multi_turn_checker
    # The package remembers the state of its simulators under this name.
    result = check(calls, right, task, CATEGORY, f"check{next(_checks)}")
    return float(result["valid"]), "" if result["valid"] else str(result["error_message"])


def import_bfcl(name: str = "") -> Any:
    """A module of the package. Raises `EvaluationError`."""
    try:
        return importlib.import_module(f"bfcl_eval.{name}".rstrip("."))
    except ImportError as error:
        raise EvaluationError(
            f"The preset bfcl needs a package ({error}). In the Python of this command: "
            "pip install --no-deps bfcl-eval && pip install mpmath"
        ) from error


def _lines(name: str) -> list[Json]:
    text = files(import_bfcl()).joinpath("data", name).read_text("utf8")
    return [json.loads(line) for line in text.splitlines()]
