"""One run of an agent: the prompt, the calls in its reply, and the trace. An agent needs one reply,
or two if it looks something up first.
"""

from __future__ import annotations

import ast
import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hansei.evaluation.house_rules.tasks import Result, find_task
from hansei.evaluation.house_rules.world import Action, CallError

MAX_REPLIES = 2
MAX_CALLS = 40
REFERENCE = re.compile(r"\$(\d+)")
CALL = re.compile(r"^\s*(?:\d+[.)]\s+|[-*]\s+)?(\w+\(.*\))\s*;?\s*(?:#.*)?$")
DOCUMENTATION = """\
Arguments with `=a|b|c` are optional; the first option is the default. The documentation says: \
amounts of money are in euros, other numbers in the unit of the task; dates are YYYY-MM-DD, times \
HH:MM; rows, bays and gates count from 1; objects are named by their `id`. All changes are \
processed overnight: tools answer "accepted", and look-ups show the state of this morning. The \
documentation is older than the tools and incomplete."""
INSTRUCTIONS = """\
You work at {place}. Do what the task says, and nothing else, by calls of these tools:

{tools}

{documentation}

Reply with one call a line, for example: tool_name(argument='text', other=12). `$1` is the result \
of the first call, `$1.id` its field `id`, `$1.0.id` the field of its first element. Nobody can \
answer questions. If you need results before you can continue, write MORE as the last line; you \
then see them and reply once again with the remaining calls. Write nothing else."""


@dataclass
class Episode:
    """A run of one task. `say` takes a reply of the model and returns what to show it next."""

    task_id: str
    calls: list[Action] = field(default_factory=list)
    """The accepted calls."""
    events: list[dict[str, Any]] = field(default_factory=list)
    replies: int = 0

    def __post_init__(self) -> None:
        self.benchmark, self.task = find_task(self.task_id)
        self.world = self.benchmark.world(self.task.phase)
        self.results: list[Any] = []
        self.events.append({"event_type": "system_event", "content": DOCUMENTATION})
        self.events.append({"event_type": "user_message", "content": self.request()})

    def prompt(self, advice: str = "") -> list[dict[str, str]]:
        """The messages of the first call of a model."""
        domain = self.benchmark.domain
        instructions = INSTRUCTIONS.format(
            place=domain.place,
            tools="\n".join(map(str, domain.tools.values())),
            documentation=DOCUMENTATION,
        )
        content = f"{advice.strip()}\n{self.request()}".lstrip()
        return [
            {"role": "system", "content": instructions},
            {"role": "user", "content": content},
        ]

    def tools(self) -> list[dict[str, str]]:
        """The tools, as a trace lists them."""
        tools = self.benchmark.domain.tools.values()
        return [{"name": tool.name, "description": str(tool)} for tool in tools]

    def request(self) -> str:
        """What the agent sees of its task."""
        records = "\n".join(self._records())
        return f"Records on the screen:\n{records}\n\nTask: {self.task.text}"

    def _records(self) -> list[str]:
        """The objects that the task names, and their persons."""
        domain, tables = self.benchmark.domain, self.benchmark.tables
        keys = list(dict.fromkeys(re.findall(r"\b[A-Z]\d{3}\b", self.task.text)))
        keys += [tables[domain.main][k][domain.person] for k in keys if k in tables[domain.main]]
        return [
            f"{table} {json.dumps(records[key])}"
            for key in dict.fromkeys(keys)
            for table, records in tables.items()
            if key in records
        ]

    def say(self, reply: str) -> str | None:
        """Execute the calls of a reply. Returns the results if the agent may reply again."""
        self.replies += 1
        lines = [line for line in reply.splitlines() if line.strip()]
        answers = [self._execute(m[1]) for line in lines if (m := CALL.match(line))]
        if lines and lines[-1].strip() == "MORE" and self.replies < MAX_REPLIES:
            return "\n".join([*answers, "", "Reply with the remaining calls."])
        return None

    def _execute(self, line: str) -> str:
        name = line.partition("(")[0]
        self.events.append({"event_type": "tool_call", "tool_name": name, "content": line})
        try:
            if len(self.results) >= MAX_CALLS:
                raise CallError("Too many calls.")
            tool, arguments = self._parse(line)
            result = self.world.call(tool, arguments)
            if result == "accepted":
                self.calls.append((tool, arguments))
        except CallError as error:
            result = f"error: {error}"
        self.results.append(result)
        text = result if isinstance(result, str) else json.dumps(result)
        event = {"event_type": "tool_response", "tool_name": name, "content": text}
        self.events.append(event)
        return f"${len(self.results)} = {text}"

    def _parse(self, line: str) -> Action:
        """The tool and arguments of a line. Positions take the order of the documentation."""
        try:
            call = ast.parse(REFERENCE.sub(r"_\1", _quoted_paths(line)), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise CallError("This is not a call.") from None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise CallError("This is not a call.")
        tool = self.benchmark.domain.tools.get(call.func.id)
        names = list(tool.arguments) if tool else []
        if len(call.args) > len(names) or any(word.arg is None for word in call.keywords):
            raise CallError(
                "Too many arguments." if tool else f"There is no tool {call.func.id!r}."
            )
        arguments = {n: self._value(a) for n, a in zip(names, call.args, strict=False)}
        return call.func.id, arguments | {str(w.arg): self._value(w.value) for w in call.keywords}

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Subscript):
            found, key = self._value(node.value), self._value(node.slice)
            try:
                return found[key]
            except (KeyError, IndexError, TypeError):
                raise CallError(f"The result has no {key!r}.") from None
        if isinstance(node, ast.Name) and re.fullmatch(r"_\d+", node.id):
            number = int(node.id[1:])
            if not 0 < number <= len(self.results):
                raise CallError(f"There is no result ${number}.")
            return self.results[number - 1]
        try:
            value = ast.literal_eval(node)
        except ValueError:
            raise CallError("Arguments must be texts, numbers or results like $1.id.") from None
        if not isinstance(value, (str, int, float)) or isinstance(value, bool):
            raise CallError("Arguments must be texts or numbers.")
        return value

    def answer(self) -> str:
        """The accepted calls as JSON: all that a score needs."""
        return json.dumps(self.calls)


def _quoted_paths(line: str) -> str:
    """`$1.0.id` as `$1[0]['id']`, outside of quotes."""
    pieces = re.split(r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", line)
    return "".join(
        piece if index % 2 else re.sub(r"\$\d+(?:\.\w+)+", _to_subscripts, piece)
        for index, piece in enumerate(pieces)
    )


def _to_subscripts(match: re.Match[str]) -> str:
    reference, *path = match[0].split(".")
    return reference + "".join(f"[{step}]" if step.isdigit() else f"[{step!r}]" for step in path)


def score_answer(task_id: str, answer: str) -> Result:
    """The outcome of an answer of `Episode.answer`. Anything else counts as no calls."""
    found, task = find_task(task_id)
    calls: list[Action] = []
    with suppress(ValueError, TypeError):
        calls = [(str(name), dict(arguments)) for name, arguments in json.loads(answer)]
    return found.score(task, calls)
