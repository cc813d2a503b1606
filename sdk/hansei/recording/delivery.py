"""Sends recorded traces. Sending one again is harmless: its `external_id` identifies it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from hansei._flows import TRANSIENT_LINE_CODES, ndjson_request
from hansei._model import Json
from hansei._ndjson import MAX_BATCH_BYTES, MAX_BATCH_LINES, Line
from hansei._request import api_path, write_request
from hansei.client import Hansei
from hansei.errors import BadRequestError, ConflictError, HanseiError
from hansei.models import ReflectMode, TraceReceipt
from hansei.recording.encoding import to_json
from hansei.recording.spool import Spool

log = logging.getLogger("hansei")

MAX_SINGLE_REQUEST_BYTES = 4 * 1024 * 1024
MAX_SINGLE_REQUEST_EVENTS = 5_000
"""A larger trace is sent in several requests."""
MAX_EVENTS = 20_000
"""Events of one trace that the service accepts."""
MAX_LINE_ATTEMPTS = 5
"""Attempts at a trace that the service fails to store."""
INITIAL_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 30.0
MAX_RETRY_AFTER_SECONDS = 300.0
"""A longer `Retry-After` is shortened: a proxy may have sent it."""
NO_EVENTS = '{"event_type":"system_event","content":"The agent run recorded no events."}'


@dataclass(frozen=True)
class RecordedRun:
    """A trace as it was recorded: its fields, and its events as JSON."""

    name: str
    fields: Mapping[str, Any]
    events: list[str]
    reflect: ReflectMode

    @property
    def is_large(self) -> bool:
        size = sum(map(len, self.events))
        return size > MAX_SINGLE_REQUEST_BYTES or len(self.events) > MAX_SINGLE_REQUEST_EVENTS

    def to_line(self) -> bytes:
        fields = to_json(self.fields)
        return f'{fields[:-1]},"events":[{",".join(self.events)}]}}'.encode()


class Delivery:
    """Sends the traces of a spool, in the thread that calls it."""

    def __init__(self, client: Hansei, spool: Spool) -> None:
        self._client = client
        self._spool = spool
        self._pause = INITIAL_PAUSE_SECONDS
        self._attempts: dict[str, int] = {}
        self._last_problem = ""
        self._refused_count = 0

    def send_ready(self) -> float | None:
        """Send all traces that have ended. Returns the seconds until the next attempt is due, or
        None if nothing is left.
        """
        self._spool.adopt()
        while names := self._spool.list_ready()[:MAX_BATCH_LINES]:
            try:
                remaining = self._send(names)
            except HanseiError as error:
                return self._wait(error.detail, error.retry_after)
            if remaining:
                return self._wait("The service cannot store more traces now.", None)
            self._pause, self._last_problem = INITIAL_PAUSE_SECONDS, ""
        return None

    def pop_refused_count(self) -> int:
        """Traces that the service has refused since the last call. They are in the folder
        `rejected` of the spool.
        """
        count, self._refused_count = self._refused_count, 0
        return count

    def _wait(self, problem: str, seconds: float | None) -> float:
        if problem != self._last_problem:
            log.warning("Traces are not sent yet. Hansei retries. %s", problem)
        self._last_problem = problem
        pause = self._pause if seconds is None else min(seconds, MAX_RETRY_AFTER_SECONDS)
        self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS)
        return pause

    def _send(self, names: list[str]) -> bool:
        """Returns whether a trace of these must be sent again."""
        batch: list[RecordedRun] = []
        size = 0
        for name in names:
            run = parse_run(name, self._spool.read(name))
            if run.is_large:
                self._send_large(run)
                continue
            length = sum(map(len, run.events))
            if batch and (size + length > MAX_BATCH_BYTES or run.reflect != batch[0].reflect):
                break  # the rest follows in the next batch
            batch.append(run)
            size += length
        return self._send_batch(batch) if batch else False

    def _send_batch(self, batch: list[RecordedRun]) -> bool:
        lines = [Line(number, run.to_line()) for number, run in enumerate(batch, start=1)]
        try:
            response = self._client.send(ndjson_request(lines, batch[0].reflect))
        except (BadRequestError, ConflictError) as error:
            if error.code == "in_progress":
                raise
            if len(batch) == 1:
                self._reject(batch[0].name, error.detail)
                return False
            remaining = [self._send_batch([run]) for run in batch]
            return any(remaining)
        items: list[Json] = response["items"]
        results = [
            self._accept(run, item.get("error")) for run, item in zip(batch, items, strict=True)
        ]
        return not all(results)

    def _accept(self, run: RecordedRun, error: Mapping[str, Any] | None) -> bool:
        """Whether the trace needs no other attempt."""
        if error is None:
            self._attempts.pop(run.name, None)
            self._spool.remove(run.name)
            return True
        code = error.get("code")
        if code in TRANSIENT_LINE_CODES:
            return False
        self._attempts[run.name] = self._attempts.get(run.name, 0) + 1
        if code == "internal_error" and self._attempts[run.name] < MAX_LINE_ATTEMPTS:
            return False
        self._reject(run.name, str(error.get("detail")))
        return True

    def _reject(self, name: str, reason: str) -> None:
        self._attempts.pop(name, None)
        self._refused_count += 1
        log.error("The service refuses a recorded trace (`hansei spool list`): %s", reason)
        self._spool.reject(name, reason)

    def _send_large(self, run: RecordedRun) -> None:
        """Send a trace in parts. The service counts the events that it has, so an interrupted
        attempt continues where it ended.
        """
        fields = {name: run.fields[name] for name in run.fields if name not in ("outcome", "error")}
        try:
            body = {**fields, "state": "open"}  # a spool may have fields of another version
            path = api_path("traces")
            trace_id = self._client.send(write_request("POST", path, TraceReceipt, body)).trace_id
            stored = self._client.traces.get(trace_id)
            if stored.state == "open":
                self._append(trace_id, run.events[:MAX_EVENTS], stored.event_count)
                self._client.traces.close(
                    trace_id,
                    run.fields.get("outcome"),
                    error=run.fields.get("error"),
                    reflect=run.reflect,
                )
        except (BadRequestError, ConflictError) as error:
            if error.code == "in_progress":
                raise
            self._reject(run.name, error.detail)
            return
        self._spool.remove(run.name)

    def _append(self, trace_id: str, events: list[str], first: int) -> None:
        part: list[Any] = []
        size = 0
        for event in events[first:]:
            if part and (size + len(event) > MAX_SINGLE_REQUEST_BYTES or len(part) == 1_000):
                self._client.traces.events.append(trace_id, part)
                part, size = [], 0
            part.append(json.loads(event))
            size += len(event)
        if part:
            self._client.traces.events.append(trace_id, part)


def parse_run(name: str, text: str) -> RecordedRun:
    """Reads the lines of a spool. Skips lines that were cut when the process ended."""
    fields: dict[str, Any] = {"metadata": {}}
    events: list[str] = []
    for line in text.split("\n"):
        value = _parse_object(line[1:])
        if value is None:
            continue
        if line.startswith("E"):
            events.append(line[1:])
        elif line.startswith("T"):
            metadata = value.pop("metadata", {})
            if isinstance(metadata, dict):
                fields["metadata"] |= metadata
            fields |= value
    reflect: ReflectMode = fields.pop("_reflect", "auto")
    return RecordedRun(name, fields, events or [NO_EVENTS], reflect)


def _parse_object(text: str) -> dict[str, Any] | None:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
