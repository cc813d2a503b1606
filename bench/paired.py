"""Tasks with known answers, and the paired difference between two ways to answer them.

The interval is for the mean over tasks of (score with − score without). Repeats of a task are
averaged first, because they are not independent (Miller 2024, arXiv 2411.00640). It is the adjusted
Wald interval for matched pairs of Agresti & Min (Statistics in Medicine 24, 2005). This adds two
pairs (one unchanged, half a pair better, half a pair worse), so that a few tasks that all agree do
not appear certain. It is used in the same way for scores between 0 and 1.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory_api.trace_analysis.answer_comparison import compare_answers

QUANTILE = 1.96
"""Quantile of the normal distribution for a 95 % interval."""
RIGHT, WRONG = 1.0, 0.0
PARTLY_RIGHT = 0.5
PARTLY_RIGHT_RELATIONS = ("contains_expected", "part_of_expected")
"""Scores that are recorded as success and failure. Scores between them are recorded as partial."""


class Unfit(Exception):
    """The measurement is not possible. The message says why in one line."""


@dataclass(frozen=True)
class Task:
    """A task. All its attempts share `key`. `right` is None if only a command can judge answers."""

    query: str
    key: str
    right: Any = None
    check: re.Pattern[str] | None = None


@dataclass(frozen=True)
class Difference:
    """The difference with − without, over the tasks that have both scores."""

    tasks: int
    with_: float
    without: float
    better: int
    same: int
    worse: int
    low: float
    high: float


def read_tasks(path: Path) -> list[Task]:
    """Raises `Unfit` with the line number."""
    tasks = []
    for number, line in enumerate(path.read_text(encoding="utf8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            tasks.append(task_of(json.loads(line)))
        except (ValueError, KeyError, re.error) as error:
            raise Unfit(f"{path}, line {number}: {type(error).__name__}: {error}") from error
    if not tasks:
        raise Unfit(f"{path} contains no task.")
    return tasks


def task_of(given: Mapping[str, Any]) -> Task:
    """Raises KeyError without `query`, and `re.error` if `check` is not a regular expression."""
    query = str(given["query"])
    key = given.get("task_key") or hashlib.sha256(query.encode()).hexdigest()[:16]
    check = given.get("check")
    return Task(query, str(key), given.get("ground_truth"), re.compile(check) if check else None)


def split(tasks: Sequence[Task], share: float, seed: int) -> tuple[list[Task], list[Task]]:
    """Split randomly into tasks to learn from and tasks to measure. All attempts of a task are in
    the same part.
    """
    keys = sorted({task.key for task in tasks})
    random.Random(seed).shuffle(keys)
    taught = set(keys[: round(share * len(keys))])
    return [t for t in tasks if t.key in taught], [t for t in tasks if t.key not in taught]


def score(task: Task, text: str, pattern: re.Pattern[str] | None = None) -> float | None:
    """Score an answer, 0 to 1; None if the task has no known answer. `pattern` extracts the answer
    from a longer text: the first group of its last match, or this match.
    """
    found = list(pattern.finditer(text)) if pattern else []
    if found:
        last = found[-1]
        text = last.group(1) if last.re.groups else last.group()
    if task.check is not None:
        return RIGHT if task.check.search(text) else WRONG
    if task.right is None:
        return None
    comparison = compare_answers(text, task.right)
    return PARTLY_RIGHT if comparison.relation in PARTLY_RIGHT_RELATIONS else comparison.score


def by_command(command: str, task: Task, text: str) -> float:
    """Score an answer with a command. It reads `{query, task_key, ground_truth, answer}` as JSON.
    Exit code 0 means correct.
    """
    asked = {"query": task.query, "task_key": task.key, "ground_truth": task.right, "answer": text}
    done = subprocess.run(command, shell=True, input=json.dumps(asked).encode(), check=False)
    return RIGHT if done.returncode == 0 else WRONG


def difference(with_: Mapping[str, float], without: Mapping[str, float]) -> Difference:
    """Compare two mappings of task key → score. Raises `Unfit` if no task has both scores."""
    keys = sorted(with_.keys() & without.keys())
    if not keys:
        raise Unfit("No task could be scored. Set `ground_truth` or `check`, or pass --check.")
    apart = [with_[key] - without[key] for key in keys]
    count = len(apart) + 2  # the two pairs more
    mean = sum(apart) / count
    spread = (sum(x * x for x in apart) + 1) / count - mean * mean
    reach = QUANTILE * math.sqrt(spread / count)
    return Difference(
        tasks=len(keys),
        with_=sum(with_[key] for key in keys) / len(keys),
        without=sum(without[key] for key in keys) / len(keys),
        better=sum(x > 0 for x in apart),
        same=sum(x == 0 for x in apart),
        worse=sum(x < 0 for x in apart),
        low=max(-1.0, mean - reach),
        high=min(1.0, mean + reach),
    )
