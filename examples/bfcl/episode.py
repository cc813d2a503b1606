"""One run of an agent on a multi-turn task of BFCL, and its score. The tasks, simulators and
checks are those of the package `bfcl-eval`.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, cast

from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

CATEGORY = "multi_turn_base"
MAX_REPLIES_PER_TURN = 8
MAX_RESULT_CHARACTERS = 4_000
PREFIX = re.compile(r"^This tool belongs to .*?Tool description: ", re.DOTALL)
CALL = re.compile(r"^\s*(?:[-*]\s+)?(\w+\(.*\))\s*;?\s*$")
INSTRUCTIONS = """\
You are an agent. Do what the user asks, and nothing else, by calls of these tools. Arguments \
with `?` are optional.

{tools}

Reply with one call a line, in their order, for example: tool_name(argument='text', other=12). \
Arguments are literal values. If you need a result before you can continue, write MORE as the \
last line: you then see the results and reply once again. Without MORE, the turn of the user is \
finished, and the results come with the next request. Nobody can answer questions. Write nothing \
else."""


@cache
def tasks() -> dict[str, dict[str, Any]]:
    """All tasks by ID, in the order of the file."""
    return {task["id"]: task for task in _lines(f"BFCL_v4_{CATEGORY}.json")}


@cache
def right_calls() -> dict[str, list[list[str]]]:
    """The right calls of each turn, by task."""
    answers = _lines(f"possible_answer/BFCL_v4_{CATEGORY}.json")
    return {answer["id"]: answer["ground_truth"] for answer in answers}


def _lines(name: str) -> list[dict[str, Any]]:
    text = files("bfcl_eval").joinpath("data", name).read_text("utf8")
    return [json.loads(line) for line in text.splitlines()]


def tools_of(task: dict[str, Any]) -> dict[str, str]:
    """The documentation of each tool of a task."""
    names = [MULTI_TURN_FUNC_DOC_FILE_MAPPING[name] for name in task["involved_classes"]]
    tools = [tool for name in names for tool in _lines(f"multi_turn_func_doc/{name}")]
    excluded = task.get("excluded_function") or []
    return {tool["name"]: _documentation(tool) for tool in tools if tool["name"] not in excluded}


def _documentation(tool: dict[str, Any]) -> str:
    parameters = tool["parameters"]["properties"]
    required = tool["parameters"].get("required", [])
    signature = ", ".join(name if name in required else f"{name}?" for name in parameters)
    lines = [f"{tool['name']}({signature}): {PREFIX.sub('', tool['description'])}"]
    lines += [
        f"  {name}: {parameter['type']}. {parameter.get('description', '')}".rstrip()
        for name, parameter in parameters.items()
    ]
    return "\n".join(lines)


@dataclass
class Episode:
    """A run of one task. `say` takes a reply of the model and returns what to show it next."""

    task_id: str
    turns: list[list[str]] = field(default_factory=lambda: [[]])
    """The calls of each turn so far."""
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    replies: int = 0
    """Of this turn."""

    def __post_init__(self) -> None:
        self.task = tasks()[self.task_id]
        self.documentation = tools_of(self.task)
        self._record("user_message", self._request())

    def prompt(self, advice: str = "") -> list[dict[str, str]]:
        """The messages of the first call of a model."""
        instructions = INSTRUCTIONS.format(tools="\n".join(self.documentation.values()))
        return [
            {"role": "system", "content": instructions},
            {"role": "user", "content": f"{advice.strip()}\n{self._request()}".lstrip()},
        ]

    def tools(self) -> list[dict[str, str]]:
        """The tools, as a trace lists them."""
        return [{"name": n, "description": text} for n, text in self.documentation.items()]

    def _request(self) -> str:
        messages = self.task["question"][len(self.turns) - 1]
        return "\n".join(message["content"] for message in messages)

    def say(self, reply: str) -> str | None:
        """Execute the calls of a reply. Returns the results and, at the end of a turn, the next
        request; None when the task is finished.
        """
        self.replies += 1
        lines = [line.strip() for line in reply.splitlines() if line.strip()]
        results = [self._execute(match[1]) for line in lines if (match := CALL.match(line))]
        if lines and lines[-1] == "MORE" and self.replies < MAX_REPLIES_PER_TURN:
            return "\n".join([*results, "", "Continue."])
        if len(self.turns) == len(self.task["question"]):
            return None
        self.replies = 0
        self.turns.append([])
        self._record("user_message", self._request())
        return "\n".join([*results, "", self._request()]).lstrip()

    def _execute(self, line: str) -> str:
        name = line.partition("(")[0]
        self._record("tool_call", line, tool_name=name)
        if problem := self._problem(line):
            result = f"Error: {problem}"
        else:
            self.turns[-1].append(line)
            results, _ = execute_multi_turn_func_call(
                [line],
                self.task["initial_config"],
                self.task["involved_classes"],
                f"agent{id(self)}",
                self.task_id,
            )
            result = cast("str", results[0])
        self._record("tool_response", result, tool_name=name)
        return f"{name}: {result[:MAX_RESULT_CHARACTERS]}"

    def _problem(self, line: str) -> str | None:
        """Why a line must not be executed: the simulator evaluates it as Python."""
        try:
            call = cast("ast.Call", ast.parse(line, mode="eval").body)
            if call.func.id not in self.documentation:  # type: ignore[attr-defined]
                return f"There is no tool {line.partition('(')[0]!r}."
            for value in [*call.args, *(word.value for word in call.keywords)]:
                ast.literal_eval(value)
        except (SyntaxError, ValueError, AttributeError, MemoryError, RecursionError):
            return "This is no call with literal arguments."
        return None

    def _record(self, event_type: str, content: str, **fields: str) -> None:
        self.events.append({"event_type": event_type, "content": content, **fields})

    def answer(self) -> str:
        """The calls of each turn as JSON: all that a score needs."""
        return json.dumps(self.turns)


def score_answer(task_id: str, answer: str) -> tuple[bool, str]:
    """Whether the benchmark's own check accepts an answer of `Episode.answer`, and its message."""
    task, right = tasks()[task_id], right_calls()[task_id]
    try:
        turns = json.loads(answer)
        calls = [[[str(call) for call in turn]] for turn in turns]
    except (ValueError, TypeError):
        calls = []
    calls += [[[]]] * (len(right) - len(calls))
    result = multi_turn_checker(calls, right, task, CATEGORY, "agent")
    return result["valid"], "" if result["valid"] else str(result["error_message"])
