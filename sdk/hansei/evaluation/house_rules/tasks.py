"""Benchmarks: the conventions and tasks that a seed makes. The ID of a task is enough to make it
again, for example `airline-plain-1-0007`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from threading import Lock
from typing import Any

from hansei.evaluation.house_rules import conventions
from hansei.evaluation.house_rules.conventions import Convention
from hansei.evaluation.house_rules.domain import DOMAINS, Domain, Tables, Tool
from hansei.evaluation.house_rules.world import Action, CallError, World, compare

VARIANTS = {"plain": (8, None), "renamed": (8, 30), "long": (24, 200)}
"""Variant → the number of conventions, and the number of tasks until one of them changes."""
MAX_TRIES = 3_000
MAX_TASKS = 1_000
CONTROLS_PER_CONVENTION = 0.25


@dataclass(frozen=True)
class Task:
    """A task of the desk. `phase` is 1 after a convention has changed."""

    id: str
    text: str
    actions: tuple[Action, ...]
    touched: tuple[Convention, ...]
    phase: int

    @property
    def is_control(self) -> bool:
        return not self.touched


@dataclass(frozen=True)
class Result:
    """`ignored`: the conventions that the calls ignored, as far as the outcome shows them."""

    is_right: bool
    problems: tuple[str, ...]
    ignored: tuple[Convention, ...]
    right_calls: str

    def feedback(self, kind: str) -> str:
        """What the agent learns about the outcome."""
        if self.is_right:
            return "The task was done as requested."
        text = "The task was not done as requested."
        if kind == "outcome":
            return text
        details = (
            " ".join(self.problems) if kind == "error" else f"Right calls:\n{self.right_calls}"
        )
        return f"{text} {details}"


class Benchmark:
    """The tasks of a domain, a variant and a seed, in a fixed order."""

    def __init__(self, domain: str, variant: str, seed: int) -> None:
        self.name = f"{domain}-{variant}-{seed}"
        self.domain: Domain = DOMAINS[domain]
        count, self.changes_at = VARIANTS[variant]
        self._random = random.Random(self.name)
        self.tables: Tables = self.domain.draw_tables(self._random)
        renamed = variant == "renamed"
        first = conventions.draw(self.domain, count, self._random, renamed=renamed)
        self.phases = [first]
        if self.changes_at is not None:
            self.phases.append(self._with_a_change(first))
        self.tasks: list[Task] = []
        self._lock = Lock()
        self._texts: set[str] = set()

    def _with_a_change(self, first: Sequence[Convention]) -> list[Convention]:
        """The conventions, the last one that can with another parameter."""
        for convention in reversed(first):
            found = conventions.options_of(convention, self.domain)
            others = [value for value in found if value != convention.value]
            if others:
                changed = replace(convention, value=self._random.choice(others))
                return [changed if c is convention else c for c in first]
        raise RuntimeError(f"{self.name}: no convention can change.")

    def take(self, count: int) -> list[Task]:
        """The first tasks. Each block of 10 (`long`: 30) has a task for every convention."""
        if count > MAX_TASKS:
            raise ValueError(f"A benchmark has at most {MAX_TASKS} tasks.")
        with self._lock:  # `run` does tasks in threads
            while len(self.tasks) < count:
                self._add_block()
            return self.tasks[:count]

    def _add_block(self) -> None:
        conventions_ = len(self.phases[0])
        block = [*range(conventions_), *[-1] * round(conventions_ * CONTROLS_PER_CONVENTION)]
        self._random.shuffle(block)
        for index in block:
            phase = self._phase(len(self.tasks))
            self.tasks.append(self._make(self.phases[phase][index] if index >= 0 else None))

    def _phase(self, number: int) -> int:
        return int(self.changes_at is not None and number >= self.changes_at)

    def _make(self, target: Convention | None) -> Task:
        """A task that `target` touches, or no convention."""
        number = len(self.tasks)
        phase = self._phase(number)
        for _ in range(MAX_TRIES):
            text, actions = self._draw(target)
            touched = self._touched(actions, phase)
            fits = target in touched if target is not None else not touched
            naive = self.naive_calls(actions)
            if (
                fits
                and text not in self._texts
                and self._is_right(naive, actions, phase) == (not touched)
            ):
                self._texts.add(text)
                return Task(f"{self.name}-{number:04d}", text, actions, touched, phase)
        raise RuntimeError(f"{self.name}: no task fits {target}.")

    def _draw(self, target: Convention | None) -> tuple[str, tuple[Action, ...]]:
        tools = self.domain.write_tools
        tool = self.domain.tools[target.tool] if target else self._random.choice(tools)
        values = self._values(tool)
        texts, actions = [self._text(tool, values)], [(tool.name, values)]
        first = tool.first
        others = [t for t in tools if t.first == first and t is not tool]
        if others and self._random.random() < 0.25:
            other = self._random.choice(others)
            more = self._values(other) | {first: values[first]}
            texts.append(self._text(other, more))
            actions.append((other.name, more))
        return " ".join(texts), tuple(actions)

    def _values(self, tool: Tool) -> dict[str, Any]:
        return {
            name: argument.draw(self._random, self.tables)
            for name, argument in tool.arguments.items()
        }

    def _text(self, tool: Tool, values: dict[str, Any]) -> str:
        words = {name: tool.arguments[name].words(value) for name, value in values.items()}
        return self._random.choice(tool.sentences).format(**words)

    def _touched(self, actions: Sequence[Action], phase: int) -> tuple[Convention, ...]:
        """The conventions without which other calls would be right."""
        own = self.phases[phase]
        right = self.world(phase).right_calls(actions)
        without = {
            c: World(self.domain, self.tables, [d for d in own if d is not c]).right_calls(actions)
            for c in own
            if c.tool in {name for name, _ in right}
        }
        return tuple(c for c, calls in without.items() if calls != right)

    def naive_calls(self, actions: Sequence[Action]) -> list[Action]:
        """The calls by the documentation alone."""
        return World(self.domain, self.tables, []).right_calls(actions)

    def world(self, phase: int) -> World:
        return World(self.domain, self.tables, self.phases[phase])

    def _is_right(self, calls: Sequence[Action], actions: Sequence[Action], phase: int) -> bool:
        return self._result(calls, actions, phase).is_right

    def score(self, task: Task, calls: Sequence[Action]) -> Result:
        """The outcome of calls. Calls that a tool refused have no effect."""
        return self._result(calls, task.actions, task.phase)

    def _result(self, calls: Sequence[Action], actions: Sequence[Action], phase: int) -> Result:
        wanted, found = self.world(phase), self.world(phase)
        right = wanted.right_calls(actions)
        for world, made in ((wanted, right), (found, calls)):
            for name, arguments in made:
                try:
                    world.call(name, arguments)
                except CallError:
                    continue
        problems, ignored = compare(self.phases[phase], wanted.close()[0], *found.close())
        lines = "\n".join(map(to_line, right))
        return Result(
            not problems, tuple(problems), tuple(c for c in ignored if c is not None), lines
        )


def to_line(call: Action) -> str:
    """A call as a line of an agent."""
    return f"{call[0]}({', '.join(f'{name}={value!r}' for name, value in call[1].items())})"


@cache
def benchmark(domain: str, variant: str, seed: int) -> Benchmark:
    return Benchmark(domain, variant, seed)


def find_task(task_id: str) -> tuple[Benchmark, Task]:
    """The task with this ID."""
    try:
        domain, variant, seed, number = task_id.split("-")
        found = benchmark(domain, variant, int(seed))
        return found, found.take(int(number) + 1)[int(number)]
    except (ValueError, KeyError):
        raise ValueError(f"{task_id!r} is not the ID of a task of House Rules.") from None


def reveal(found: Benchmark) -> Iterator[str]:
    """The conventions in words, for people."""
    for phase, own in enumerate(found.phases):
        for convention in own:
            if phase == 0 or convention not in found.phases[0]:
                yield f"{'' if phase == 0 else f'After {found.changes_at} tasks: '}{convention}"
