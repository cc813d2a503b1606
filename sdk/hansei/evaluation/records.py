"""The files of an evaluation: what was answered and what was learned, one JSON line each."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from hansei._model import Json
from hansei.errors import EvaluationError
from hansei.recording.encoding import to_json

ANSWERS_FILE, LEARNING_FILE = "answers.jsonl", "learning.jsonl"
Check = Callable[[Any], bool]


MAX_NUMBER = 10**15


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= MAX_NUMBER


def is_count(value: Any) -> bool:
    return isinstance(value, int) and is_number(value)


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_list(value: Any) -> bool:
    return isinstance(value, list)


def is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_text, cast("list[Any]", value)))


def is_list_of_objects(value: Any) -> bool:
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return all(isinstance(item, dict) for item in items)


def is_usage(value: Any) -> bool:
    return isinstance(value, dict) and all(map(is_number, cast("Json", value).values()))


def optional(is_valid: Check) -> Check:
    """A check that also accepts None."""
    return lambda value: value is None or is_valid(value)


_ANSWER: Mapping[str, Check] = {
    **dict.fromkeys(("repeat", "window"), is_count),
    **dict.fromkeys(("phase", "task_id", "arm", "advice"), is_text),
    **dict.fromkeys(("advice_tokens", "seconds"), is_number),
    "score": lambda value: is_number(value) and value <= 1,
    **dict.fromkeys(("error", "retrieval_id"), optional(is_text)),
    **dict.fromkeys(("bullet_keys", "cited"), is_list_of_texts),
    "events": is_list_of_objects,
    "answer": lambda _: True,
    "usage": optional(is_usage),
    "usd": optional(is_number),
}
_LEARNING: Mapping[str, Check] = {
    **dict.fromkeys(("repeat", "window", "traces", "bullets", "waiting"), is_count),
    **dict.fromkeys(("judged", "followed"), is_list_of_texts),
    "helpful": optional(is_count),
    "project": is_text,
    "failed_runs": is_list,
    "usage": is_usage,
    "seconds": is_number,
}


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


def _read_records(
    path: Path, fields: Mapping[str, Check], defaults: Mapping[str, Any] | None = None
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


def check_fields(record: Json, fields: Mapping[str, Check], place: str) -> None:
    """Raises `EvaluationError` with the first field that is missing or has another form."""
    for name, is_valid in fields.items():
        if name not in record or not is_valid(record[name]):
            raise EvaluationError(f"{place}: `{name}` is missing or damaged.")
