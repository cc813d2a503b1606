"""Tasks with known answers, and what two ways of answering them are worth beside each other.

The interval is for the mean over tasks of score with − score without: repeats of one task are
averaged first, because they are not independent (Miller 2024, arXiv 2411.00640). It is the
adjusted Wald interval for matched pairs of Agresti & Min (Statistics in Medicine 24, 2005): as if
two pairs more had been seen, one that stayed, half a one that got better and half a one that got
worse; so a few tasks that all agree are not taken for certainty. For scores between 0 and 1 it is
used alike.
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

from apps.memory_api.evaluation.evidence import compare

QUANTILE = 1.96
"""Of the normal distribution, for 95 %."""
RIGHT, WRONG = 1.0, 0.0
"""Scores that are told as success and failure; what lies between is partial."""


class Unfit(Exception):
    """What makes a measurement worthless, in one line."""


@dataclass(frozen=True)
class Task:
    """`key` names the task over all its attempts; `right` is None when only a command can tell."""

    query: str
    key: str
    right: Any = None
    check: re.Pattern[str] | None = None


@dataclass(frozen=True)
class Difference:
    """With minus without, over tasks that both sides have a score for."""

    tasks: int
    with_: float
    without: float
    better: int
    same: int
    worse: int
    low: float
    high: float


def read_tasks(path: Path) -> list[Task]:
    """Raises `Unfit`, naming the line."""
    tasks = []
    for number, line in enumerate(path.read_text(encoding="utf8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            tasks.append(task_of(json.loads(line)))
        except (ValueError, KeyError, re.error) as error:
            raise Unfit(f"{path}, line {number}: {type(error).__name__}: {error}") from error
    if not tasks:
        raise Unfit(f"{path} holds no task.")
    return tasks


def task_of(given: Mapping[str, Any]) -> Task:
    """Raises KeyError without a query, `re.error` for a check that is no regular expression."""
    query = str(given["query"])
    key = given.get("task_key") or hashlib.sha256(query.encode()).hexdigest()[:16]
    check = given.get("check")
    return Task(query, str(key), given.get("ground_truth"), re.compile(check) if check else None)


def split(tasks: Sequence[Task], share: float, seed: int) -> tuple[list[Task], list[Task]]:
    """Those to learn from and those to measure, drawn by task key: all attempts of a task fall on
    one side.
    """
    keys = sorted({task.key for task in tasks})
    random.Random(seed).shuffle(keys)
    taught = set(keys[: round(share * len(keys))])
    return [t for t in tasks if t.key in taught], [t for t in tasks if t.key not in taught]


def score(task: Task, text: str, pattern: re.Pattern[str] | None = None) -> float | None:
    """0 to 1; None when the task says nothing by which to tell. `pattern` finds the answer proper
    in a longer text: its last match, or what its first group holds there.
    """
    found = list(pattern.finditer(text)) if pattern else []
    if found:
        last = found[-1]
        text = last.group(1) if last.re.groups else last.group()
    if task.check is not None:
        return RIGHT if task.check.search(text) else WRONG
    return None if task.right is None else compare(text, task.right).score


def by_command(command: str, task: Task, text: str) -> float:
    """The verdict of a command: it reads `{query, task_key, ground_truth, answer}` as JSON, and its
    exit code 0 means right.
    """
    asked = {"query": task.query, "task_key": task.key, "ground_truth": task.right, "answer": text}
    done = subprocess.run(command, shell=True, input=json.dumps(asked).encode(), check=False)
    return RIGHT if done.returncode == 0 else WRONG


def difference(with_: Mapping[str, float], without: Mapping[str, float]) -> Difference:
    """Key → score of each side. Raises `Unfit` when no task has both."""
    keys = sorted(with_.keys() & without.keys())
    if not keys:
        raise Unfit("No task could be scored: give ground_truth, check or --check.")
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
