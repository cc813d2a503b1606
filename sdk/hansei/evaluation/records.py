"""The files of an evaluation: what was answered and what was learned, one JSON line each."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from hansei._model import Json
from hansei.errors import EvaluationError
from hansei.recording.encoding import to_json

ANSWERS_FILE, LEARNING_FILE, PRICES_FILE = "answers.jsonl", "learning.jsonl", "prices.jsonl"
MAX_NUMBER = 10**15
"""Of an amount, of whatever it is. None is negative."""
Form = Any
"""A type, a text, None or a check; a list or dict with the form of its items; a tuple of these."""


def _is_share(value: Any) -> bool:
    return matches(value, float) and value <= 1


TEXTS, USAGE, OPTIONAL_TEXT = [str], {str: float}, (str, None)

_ANSWER: Mapping[str, Form] = {
    **dict.fromkeys(("repeat", "window"), int),
    **dict.fromkeys(("phase", "task_id", "arm", "advice"), str),
    **dict.fromkeys(("advice_tokens", "seconds"), float),
    "score": _is_share,
    **dict.fromkeys(("error", "retrieval_id"), OPTIONAL_TEXT),
    **dict.fromkeys(("bullet_keys", "cited"), TEXTS),
    "events": [dict],
    "answer": object,
    "usage": (USAGE, None),
    "usd": (float, None),
}
_LEARNING: Mapping[str, Form] = {
    **dict.fromkeys(("repeat", "window", "traces", "bullets", "waiting"), int),
    **dict.fromkeys(("judged", "followed"), TEXTS),
    "helpful": (int, None),
    "project": str,
    "failed_runs": list,
    "usage": USAGE,
    "seconds": float,
}
_PRICES: Mapping[str, Form] = dict.fromkeys(("input_price", "output_price"), float)


def matches(value: Any, form: Form) -> bool:
    """Whether a value has a form. `int` and `float` are amounts; `float` is any number."""
    if form is None or isinstance(form, str):
        return value == form
    if isinstance(form, tuple):
        return any(matches(value, each) for each in cast("tuple[Form, ...]", form))
    if isinstance(form, list):
        (item,) = cast("list[Form]", form)
        return isinstance(value, list) and all(matches(each, item) for each in cast(Any, value))
    if isinstance(form, dict):
        (item,) = cast("dict[Form, Form]", form).values()
        return isinstance(value, dict) and all(matches(v, item) for v in cast(Json, value).values())
    if form in (int, float):
        return isinstance(value, int | form) and 0 <= value <= MAX_NUMBER
    return isinstance(value, form) if isinstance(form, type) else bool(form(value))


class RecordFile:
    """Appends lines that are on the disk when `append` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def append(self, record: Json) -> None:
        """Raises `EvaluationError`, for example if the disk is full."""
        with self._lock:
            try:
                with self._path.open("ab+") as file:
                    if file.tell() and not _ends_with_newline(file):
                        file.write(b"\n")  # after a line that was cut off
                    file.write(to_json(record).encode() + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise EvaluationError(f"Cannot write {self._path}: {error.strerror}.") from error


def _ends_with_newline(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def read_answers(folder: Path) -> Iterator[Json]:
    """The records of answers. Raises `EvaluationError` for a damaged one."""
    return _read_records(folder / ANSWERS_FILE, _ANSWER)


def read_learning(folder: Path) -> Iterator[Json]:
    """The records of what was learned. Raises `EvaluationError` for a damaged one."""
    return _read_records(folder / LEARNING_FILE, _LEARNING, {"waiting": 0, "helpful": None})


def read_prices(folder: Path) -> dict[str, float]:
    """The prices that the last call for this folder used, if any. Raises `EvaluationError` for
    damaged ones.
    """
    records = list(_read_records(folder / PRICES_FILE, _PRICES))
    return {name: records[-1][name] for name in _PRICES} if records else {}


def _read_records(
    path: Path, fields: Mapping[str, Form], defaults: Mapping[str, Any] | None = None
) -> Iterator[Json]:
    """All complete lines. A line that was cut off is ignored: its call is made again. `defaults`:
    fields that older versions did not write.
    """
    if not path.exists():
        return
    if not path.is_file():  # reading a named pipe would wait for a writer
        raise EvaluationError(f"{path} is not a file.")
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                record: Any = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                found = {**(defaults or {}), **cast("Json", record)}
                check_fields(found, fields, f"{path}, line {number}")
                yield found


def check_fields(record: Json, fields: Mapping[str, Form], place: str) -> None:
    """Raises `EvaluationError` with the first field that is missing or has another form."""
    for name, form in fields.items():
        if name not in record or not matches(record[name], form):
            raise EvaluationError(f"{place}: `{name}` is missing or damaged.")
