"""The files of an evaluation: what was answered and what was learned, one JSON line each."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from hansei._model import Json
from hansei.errors import EvaluationError
from hansei.recording.encoding import to_json

ANSWERS_FILE, LEARNING_FILE = "answers.jsonl", "learning.jsonl"


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


def read_records(path: Path) -> Iterator[Json]:
    """All complete lines. A line that was cut off is ignored: its call is made again."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            try:
                record: Any = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield cast("Json", record)
