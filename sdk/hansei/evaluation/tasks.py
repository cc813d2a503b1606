"""Tasks of an evaluation: JSON lines, and how answers are scored."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from hansei._file_limit import read_file
from hansei.errors import EvaluationError
from hansei.recording.encoding import to_text

Split = Literal["stream", "held_out"]
BULLET_KEY = re.compile(r"\b[a-z]+-\d{5}\b")
_CITATION = re.compile(rf"\s*\[{BULLET_KEY.pattern}(?:,\s*{BULLET_KEY.pattern})*\]")
TOLERANCE = 1e-6
"""Largest relative difference of two numbers that count as equal."""
FIELDS = frozenset(
    {
        *("id", "task", "expected", "match", "scorer", "solution", "group", "control"),
        *("split", "metadata"),
    }
)


@dataclass(frozen=True)
class Task:
    """`control` tasks need no advice. `solution` is the right answer as other agents may see it;
    by default it is `expected`. Only the scorer sees `metadata`.
    """

    id: str
    task: Any
    expected: Any = None
    match: str | None = None
    scorer: str | None = None
    solution: Any = None
    group: str | None = None
    control: bool = False
    split: Split = "stream"
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def text(self) -> str:
        return to_text(self.task)

    @property
    def right_answer(self) -> str | None:
        answer = self.expected if self.solution is None else self.solution
        return None if answer is None else to_text(answer)

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self)
        optional = {"control": self.control, "metadata": self.metadata}
        return {k: v for k, v in fields.items() if v is not None and optional.get(k, True)}


@dataclass(frozen=True)
class Score:
    """`value` is between 0 and 1. `feedback` is what the agent may learn about its mistake."""

    value: float
    feedback: str = ""


def read_tasks(path: Path, *, has_scorer: bool = False) -> list[Task]:
    """Raises `EvaluationError` with the damaged lines."""
    try:
        lines = read_file(path).splitlines()
    except OSError as error:
        raise EvaluationError(f"Cannot read {path}: {error.strerror}.") from error
    numbered = [(n, line) for n, line in enumerate(lines, start=1) if line.strip()]
    return parse_tasks(numbered, source=str(path), has_scorer=has_scorer)


def parse_tasks(
    lines: Iterable[tuple[int, bytes | Mapping[str, Any]]],
    *,
    source: str,
    has_scorer: bool,
    is_stored: bool = False,
) -> list[Task]:
    """`is_stored`: the tasks were checked when the evaluation started."""
    tasks: list[Task] = []
    line_of: dict[str, int] = {}
    errors: dict[str, list[int]] = {}
    for number, line in lines:
        try:
            task = _parse_task(line)
            if not is_stored:
                _check_scoring(task, has_scorer)
            if task.id in line_of:
                raise ValueError(f"ID '{task.id}' is already used in line {line_of[task.id]}")
            line_of[task.id] = number
            tasks.append(task)
        except (ValueError, KeyError, RecursionError) as error:
            errors.setdefault(_reason(error), []).append(number)
    if errors:
        shown = [f"{_lines(numbers)}: {reason}" for reason, numbers in errors.items()]
        more = f"; and {len(shown) - 5} more" if shown[5:] else ""
        raise EvaluationError(f"{source} has damaged tasks. {'; '.join(shown[:5])}{more}.")
    if not tasks:
        raise EvaluationError(f"{source} contains no task.")
    return tasks


def _lines(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    more = f" and {len(numbers) - 5} more" if numbers[5:] else ""
    return f"lines {', '.join(map(str, numbers[:5]))}{more}"


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"no valid JSON ({error.msg} at column {error.colno})"
    if isinstance(error, UnicodeDecodeError):
        return "no valid UTF-8"
    if isinstance(error, KeyError):
        return f"`{error.args[0]}` is missing"
    return str(error) or type(error).__name__


def _parse_task(line: bytes | Mapping[str, Any]) -> Task:
    data: Any = json.loads(line.decode("utf-8-sig")) if isinstance(line, bytes) else dict(line)
    if not isinstance(data, dict):
        raise ValueError("a task is a JSON object")
    fields = cast("dict[str, Any]", data)
    if unknown := sorted(set(fields) - FIELDS):
        raise ValueError(f"unknown field `{unknown[0]}`; put data of your own into `metadata`")
    values: dict[str, Any] = {**fields, "id": str(fields["id"]), "task": fields["task"]}
    task = Task(**values)
    if not task.id or not task.text.strip():
        raise ValueError("`id` and `task` must not be empty")
    if task.split not in ("stream", "held_out"):
        raise ValueError("`split` is `stream` or `held_out`")
    if not isinstance(cast("object", task.group), str | None):
        raise ValueError("`group` is a text")
    if not isinstance(cast("object", task.metadata), dict):
        raise ValueError("`metadata` is an object")
    return task


def _check_scoring(task: Task, has_scorer: bool) -> None:
    if task.expected is not None and (task.scorer or has_scorer):
        raise ValueError(
            "both `expected` and a scorer; use one, and `solution` for a right answer to show"
        )
    if task.expected is None and not task.scorer and not has_scorer and task.match != "outcome":
        raise ValueError("needs `expected`, a scorer, or `match: outcome`")
    if task.match is not None and task.match not in MATCHES:
        raise ValueError(f"`match` is one of {', '.join(MATCHES)}")
    if task.match == "number" and not _is_number(task.expected):
        raise ValueError(f"`match: number`, but `expected` is no number: {to_text(task.expected)}")
    if task.match == "regex":
        try:
            re.compile(str(task.expected))
        except re.error as error:
            raise ValueError(f"`expected` is no regular expression: {error}") from error


def score_by_match(task: Task, answer: Any, outcome: str | None) -> Score:
    """Score an answer by `expected` and `match`, or by the outcome that the agent reports. Cited
    bullets, such as `[pat-00001]`, are no part of the answer: only arms with advice can cite.
    """
    if isinstance(answer, str) and not _CITATION.search(to_text(task.expected)):
        bare, citations = _CITATION.subn("", answer)
        answer = bare.strip() if citations else answer
    if task.match == "outcome":
        return Score({"success": 1.0, "partial": 0.5}.get(outcome or "", 0.0))
    name = task.match or ("text" if isinstance(task.expected, str) else "json")
    return Score(float(MATCHES[name](answer, task.expected)))


def _normalize(value: Any) -> str:
    return " ".join(to_text(value).casefold().split()).strip(" .")


def _to_number(value: Any) -> float:
    """Raises `ValueError`."""
    return float(to_text(value).strip(" $€%").replace(",", ""))


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(_to_number(value))
    except ValueError:
        return False


def _is_same_number(answer: Any, expected: Any) -> bool:
    try:
        first, second = _to_number(answer), _to_number(expected)
    except ValueError:
        return _normalize(answer) == _normalize(expected)
    return math.isclose(first, second, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _is_same_json(answer: Any, expected: Any) -> bool:
    if isinstance(answer, str) and not isinstance(expected, str):
        try:
            answer = json.loads(answer)
        except ValueError:
            return False
    return answer == expected


def _items(value: Any) -> list[str]:
    parts = cast("list[Any]", value) if isinstance(value, list) else to_text(value).split(",")
    return [_normalize(part) for part in parts]


def share_of_items(answer: Any, expected: Any) -> float:
    """Share of the expected comma-separated items that are at their place in the answer."""
    given, wanted = _items(answer), _items(expected)
    return sum(a == b for a, b in zip(given, wanted, strict=False)) / len(wanted)


MATCHES: dict[str, Callable[[Any, Any], bool | float]] = {
    "text": lambda answer, expected: _normalize(answer) == _normalize(expected),
    "exact": lambda answer, expected: to_text(answer) == to_text(expected),
    "number": _is_same_number,
    "contains": lambda answer, expected: _normalize(expected) in _normalize(answer),
    "regex": lambda answer, expected: re.search(str(expected), to_text(answer)) is not None,
    "json": _is_same_json,
    "items": share_of_items,
    "outcome": lambda _answer, _expected: False,
}
"""Name → comparison of an answer with the expected one. `outcome` is decided by the agent."""


def with_held_out(tasks: Sequence[Task], held_out: int, order: Sequence[int]) -> list[Task]:
    """The tasks, of which the first `held_out` of `order` become held out."""
    chosen = set(order[:held_out])
    return [
        replace(task, split="held_out") if i in chosen else task for i, task in enumerate(tasks)
    ]
