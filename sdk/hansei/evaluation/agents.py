"""Calls an agent or a scorer: a command that exchanges one JSON document, or a Python function."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, cast

from hansei._model import Json
from hansei._names import check_names
from hansei.errors import EvaluationError
from hansei.evaluation.command_words import hide_variables, require_files
from hansei.evaluation.tasks import Score, Task, score_by_match
from hansei.params import Event
from hansei.recording.checks import check_event_type
from hansei.session_files import MAX_DEPTH, is_too_deep

MAX_OUTPUT_BYTES = 16 * 1024 * 1024
MAX_STDERR_CHARACTERS = 400
SIZE_CHECK_SECONDS = 0.1
MAX_RETRY_PAUSE_SECONDS = 10.0
MAX_USAGE = 1e12
"""Of one call. More tokens or dollars are an error of the agent, which would decide the report."""
STOPPED = "stopped"
"""The message of a call that `Commands.stop` ended."""
OUTCOMES = ("success", "failure", "partial", "timeout", "error")
FUNCTION = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")

Function = Callable[[Json], Any]
Scorer = Callable[[Task, Json], Score]


class CallFailed(Exception):
    """One call of the agent or the scorer failed. The message is one line."""


@dataclass(frozen=True)
class Answer:
    """What an agent returned for one task."""

    answer: Any = None
    events: list[Json] = field(default_factory=list[Json])
    outcome: str | None = None
    feedback: str = ""
    usage: Json = field(default_factory=dict[str, Any])
    tools: list[Any] = field(default_factory=list[Any])
    """Tools that the agent could call, as a trace lists them."""


class Commands:
    """Runs commands. `stop` ends all that are running."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(self, command: str, document: Json) -> Any:
        """Send a document to a command and return its response. Raises `CallFailed`."""
        with TemporaryFile() as given, TemporaryFile() as output, TemporaryFile() as errors:
            given.write(json.dumps(document, ensure_ascii=False).encode() + b"\n")
            given.seek(0)
            try:
                process = subprocess.Popen(
                    shlex.split(command),
                    stdin=given,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,  # Ctrl-C must not end a call that is paid for
                )
            except (OSError, ValueError) as error:
                raise CallFailed(f"cannot start `{hide_variables(command)}`: {error}") from error
            self._running.add(process)
            try:
                status = self._wait(process, output, errors)
            finally:
                self._running.discard(process)
                _kill(process)
                process.wait()
            if self._stopped:
                raise CallFailed(STOPPED)
            if status != 0:
                shown = " ".join(_text(errors).split())[-MAX_STDERR_CHARACTERS:]
                raise CallFailed(f"exit status {status}: {shown or 'nothing on standard error'}")
            return _parse_document(_text(output))

    def _wait(self, process: subprocess.Popen[bytes], *written: IO[bytes]) -> int:
        """The exit status. Raises `CallFailed` if it takes or prints too much."""
        deadline = time.monotonic() + self._timeout
        status = None
        while status is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise CallFailed(f"no answer within {self._timeout:g} s")
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(timeout=min(left, SIZE_CHECK_SECONDS))
            if any(os.fstat(file.fileno()).st_size > MAX_OUTPUT_BYTES for file in written):
                raise CallFailed(f"printed more than {MAX_OUTPUT_BYTES // 2**20} MiB")
        return status

    def stop(self) -> None:
        self._stopped = True
        for process in list(self._running):
            _kill(process)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the command, and where the system can, the processes that it started."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _parse_document(text: str) -> Any:
    """The whole output, or its last line if other text precedes it."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise CallFailed("printed nothing; expected one JSON document")
    for part in (text, lines[-1]):
        try:
            return json.loads(part)
        except (ValueError, RecursionError):
            continue
    raise CallFailed(f"printed no JSON: {lines[-1][:80]!r}")


def load_function(name: str) -> Function | None:
    """The function that `module:function` names, or None if `name` is a command."""
    if not FUNCTION.match(name):
        return None
    module, function = name.split(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return cast("Function", getattr(importlib.import_module(module), function))
    except Exception as error:  # the module may raise anything
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
        raise EvaluationError(f"Cannot load the function `{name}`: {what}.") from error
    finally:
        sys.path.pop(0)


def make_agent(agent: str | Function, commands: Commands) -> Function:
    function = load_function(agent) if isinstance(agent, str) else agent
    if function is not None:
        return function
    command = cast("str", agent)
    require_files(command)
    return lambda request: commands.run(command, request)


def make_scorer(
    scorer: str | Callable[..., Any] | None, tasks: Iterable[Task], commands: Commands
) -> Scorer:
    """Scores with the task's own scorer, the given one, or `expected`."""
    function = load_function(scorer) if isinstance(scorer, str) else scorer
    programs = {task.scorer for task in tasks if task.scorer}
    if isinstance(scorer, str) and function is None:
        programs.add(scorer)
    for program in programs:
        require_files(program)

    def score(task: Task, result: Json) -> Score:
        document = {**task.to_json(), **result, "task_id": task.id}
        if task.scorer or (isinstance(scorer, str) and function is None):
            return to_score(commands.run(task.scorer or cast("str", scorer), document))
        if function is not None:
            try:
                return to_score(function(document))
            except Exception as error:
                raise CallFailed(f"{type(error).__name__}: {error}") from error
        return score_by_match(task, result.get("answer"), result.get("outcome"))

    return score


def to_score(value: Any) -> Score:
    """A number, a bool, a pair with feedback, or an object with `score` and `feedback`."""
    if isinstance(value, Score):
        return value
    feedback: Any = ""
    if isinstance(value, (tuple, list)) and len(cast("list[Any]", value)) == 2:
        value, feedback = cast("list[Any]", value)
    elif isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        value, feedback = fields.get("score"), fields.get("feedback") or ""
    if not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise CallFailed(f"the scorer returned {value!r} instead of a number from 0 to 1")
    return Score(float(value), str(feedback))


def call_agent(agent: Function, request: Json, *, retries: int) -> tuple[Answer, int]:
    """Returns the answer and the number of attempts. Raises `CallFailed` after the last retry."""
    for attempt in range(retries + 1):
        try:
            return to_answer(agent(request), request["task_id"]), attempt + 1
        except CallFailed as error:
            failure = error
        except Exception as error:
            failure = CallFailed(f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
        if attempt == retries or str(failure) == STOPPED:
            raise failure
        time.sleep(min(0.5 * 2**attempt, MAX_RETRY_PAUSE_SECONDS))
    raise AssertionError("unreachable")


def to_answer(value: Any, task_id: str) -> Answer:
    """Checks a response of the agent. A string is an answer. Raises `CallFailed`."""
    if isinstance(value, str):
        return Answer(value)
    if not isinstance(value, Mapping):
        raise CallFailed(f"returned {type(value).__name__} instead of an object with `answer`")
    fields = cast("Mapping[str, Any]", value)
    if "answer" not in fields:
        raise CallFailed("returned no `answer`")
    if fields.get("task_id", task_id) != task_id:
        raise CallFailed(f"returned an answer for task '{fields['task_id']}'")
    events, outcome, usage = fields.get("events"), fields.get("outcome"), fields.get("usage")
    if events is not None and not _is_list_of_objects(events):
        raise CallFailed("`events` is no list of objects")
    for number, event in enumerate(cast("list[Json]", events or []), start=1):
        _check_event(number, event)
    if outcome is not None and outcome not in OUTCOMES:
        raise CallFailed(f"`outcome` is one of {', '.join(OUTCOMES)}")
    tools: Any = fields.get("tools") or []
    if not isinstance(tools, list):
        raise CallFailed("`tools` is no list")
    if is_too_deep(dict(fields)):
        raise CallFailed(f"returned values nested in more than {MAX_DEPTH} levels")
    feedback = str(fields.get("feedback") or "")
    return Answer(
        fields["answer"],
        list(events or []),
        outcome,
        feedback,
        _amounts(usage or {}),
        cast("list[Any]", tools),
    )


def _check_event(number: int, event: Json) -> None:
    """What the service would refuse after all calls are paid for."""
    try:
        check_event_type(event.get("event_type"))
        check_names("An event has no field", event, Event.__annotations__, "")
    except (TypeError, ValueError) as error:
        raise CallFailed(f"event {number}: {error}") from error


def _amounts(usage: object) -> Json:
    if not isinstance(usage, Mapping):
        raise CallFailed("`usage` is no object")
    used = cast("Mapping[str, Any]", usage)
    numbers = {name: value for name, value in used.items() if isinstance(value, (int, float))}
    for name, value in numbers.items():
        if not 0 <= value <= MAX_USAGE:  # NaN neither
            raise CallFailed(f"`usage.{name}` is no amount")
    return numbers


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, dict) for v in cast("list[Any]", value))
