"""One run of an agent on a multi-turn task of BFCL, with the simulators of the package."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, cast

from hansei.evaluation.bfcl import bfcl_tasks, call_problem, import_bfcl, requests_of, tools_of

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


def documentation(tool: dict[str, Any]) -> str:
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
        self.task = bfcl_tasks()[self.task_id]
        self.requests = requests_of(self.task)
        self.documentation = {n: documentation(tool) for n, tool in tools_of(self.task).items()}
        self._record("user_message", self.requests[0])

    def prompt(self, advice: str = "") -> list[dict[str, str]]:
        """The messages of the first call of a model."""
        instructions = INSTRUCTIONS.format(tools="\n".join(self.documentation.values()))
        return [
            {"role": "system", "content": instructions},
            {"role": "user", "content": f"{advice.strip()}\n{self.requests[0]}".lstrip()},
        ]

    def tools(self) -> list[dict[str, str]]:
        """The tools, as a trace lists them."""
        return [{"name": n, "description": text} for n, text in self.documentation.items()]

    def say(self, reply: str) -> str | None:
        """Execute the calls of a reply. Returns the results and, at the end of a turn, the next
        request; None when the task is finished.
        """
        self.replies += 1
        lines = [line.strip() for line in reply.splitlines() if line.strip()]
        results = [self._execute(match[1]) for line in lines if (match := CALL.match(line))]
        if lines and lines[-1] == "MORE" and self.replies < MAX_REPLIES_PER_TURN:
            return "\n".join([*results, "", "Continue."])
        if len(self.turns) == len(self.requests):
            return None
        self.replies = 0
        request = self.requests[len(self.turns)]
        self.turns.append([])
        self._record("user_message", request)
        return "\n".join([*results, "", request]).lstrip()

    def _execute(self, line: str) -> str:
        name = line.partition("(")[0]
        self._record("tool_call", line, tool_name=name)
        if problem := call_problem(line, self.documentation):
            result = f"Error: {problem}"
        else:
            self.turns[-1].append(line)
            simulators = import_bfcl("eval_checker.multi_turn_eval.multi_turn_utils")
            results, _ = simulators.execute_multi_turn_func_call(
                [line],
                self.task["initial_config"],
                self.task["involved_classes"],
                f"agent{id(self)}",
                self.task_id,
            )
            result = cast("str", results[0])
        self._record("tool_response", result, tool_name=name)
        return f"{name}: {result[:MAX_RESULT_CHARACTERS]}"

    def _record(self, event_type: str, content: str, **fields: str) -> None:
        self.events.append({"event_type": event_type, "content": content, **fields})

    def answer(self) -> str:
        """The calls of each turn as JSON: all that a score needs."""
        return json.dumps(self.turns)
