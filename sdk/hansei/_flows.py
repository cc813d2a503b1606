"""Operations of several requests, as generators without I/O.

A flow yields a `Request` and receives its response, yields a `Pause`, or yields an `Item` for the
caller. Both clients execute flows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, Unpack

from hansei._ndjson import Line, Source, batch_lines, read_lines
from hansei._request import API, MAX_PAGE_SIZE, Id, Request, next_page_request, write_request
from hansei._retry import MAX_PAUSE_SECONDS, Pause
from hansei.endpoints.agents import (
    AgentEvent,
    AgentExecution,
    AgentRun,
    CreateAgentRunOptions,
    ExecutionState,
    create_agent_run,
    get_agent_execution,
    get_agent_run,
    stream_agent_events,
)
from hansei.endpoints.runs import get_run, list_runs
from hansei.errors import TimedOut
from hansei.types import Page, ReflectMode, Run, TraceFormat, TraceReceipt

T = TypeVar("T")

FINISHED_STATES = ("done", "failed", "dead")
AGENT_STOPPED_STATES = ("waiting", "done", "failed", "cancelled")
"""States of an agent run in which nothing happens until a person acts."""
UNFINISHED_STATES = ("queued", "running", "waiting")
INITIAL_POLL_SECONDS, MAX_POLL_SECONDS = 0.1, 2.0
"""The interval between two polls of one run grows by half each time, up to the maximum."""
MIN_LIST_POLL_SECONDS, MAX_POLLING_SHARE = 0.4, 0.1
"""Many runs are polled with one list. Polling takes at most this share of the time, so that it does
not slow the service down."""
SESSION_FORMATS = ("claude-code", "codex")
"""Formats of whole files: the lines are one trace."""
MAX_LINE_RETRIES, LINE_RETRY_SECONDS = 12, 5.0
TRANSIENT_LINE_CODES = ("queue_full", "unavailable")
MAX_CHAIN_LENGTH = 4
"""Runs that learning from one trace can take."""
EXTRA_PAGES = 3
"""Pages read beyond the expected ones, because other clients' runs are in the same list."""


@dataclass(frozen=True)
class Item(Generic[T]):
    """One item for the caller."""

    value: T


Flow = Generator[Request[Any] | Pause | Item[T], Any, None]
SubFlow = Generator[Request[Any] | Pause | Item[Any], Any, T]


def iterate_pages(first: Request[Page[T]]) -> Flow[T]:
    request: Request[Page[T]] | None = first
    while request is not None:
        page: Page[T] = yield request
        yield from map(Item, page["items"])
        request = next_page_request(first, page)


def create_traces(
    source: Source,
    *,
    reflect: ReflectMode = "auto",
    project_id: str | None = None,
    playbook: str | None = None,
    format: TraceFormat | None = None,
) -> Flow[TraceReceipt]:
    """Store many traces and yield one receipt for each, in order.

    `source` is an iterable of dicts, an open file, or the path of a JSON or JSONL file of any size.
    The client sends 100 traces at a time. A rejected trace has an `error` in its receipt and does
    not affect the others. If the queue is full, the client retries for about one minute.
    `project_id` and `playbook` override the fields of the traces. `format` is that of the records
    in `source`, if they are no traces of Hansei; a record may then have several receipts.
    """
    overrides = {"project_id": project_id, "playbook": playbook}
    if format is not None:
        is_export = format not in SESSION_FORMATS
        lines = read_lines(source, overrides, is_export=is_export)
        yield from _import_records(lines, reflect, format)
        return
    for batch in batch_lines(read_lines(source, overrides)):
        accepted = [line for line in batch if line.error is None]
        receipts = yield from _send_lines(accepted, reflect)
        for line in batch:
            if line.error is not None:
                yield Item[TraceReceipt]({"line": line.number, "error": line.error})
            else:
                yield Item[TraceReceipt](receipts[line.number] | {"line": line.number})


def _import_records(
    lines: Iterable[Line], reflect: ReflectMode, format: TraceFormat
) -> Flow[TraceReceipt]:
    """Send records of another format. A session file is one request."""
    batches = [list(lines)] if format in SESSION_FORMATS else batch_lines(lines)
    for batch in batches:
        response = yield ndjson_request(batch, reflect, format)
        items: list[TraceReceipt] = response["items"]
        for item in items:
            line = batch[(item.get("line") or 1) - 1]
            yield Item[TraceReceipt]({**item, "line": line.number})


def _send_lines(lines: Sequence[Line], reflect: ReflectMode) -> SubFlow[dict[int, TraceReceipt]]:
    """Send lines, with retries of transient errors. Returns receipts by line number."""
    receipts: dict[int, TraceReceipt] = {}
    remaining: Sequence[Line] = lines
    for attempt in range(MAX_LINE_RETRIES + 1):
        if not remaining:
            break
        if attempt:
            yield Pause(_line_retry_pause([receipts[line.number] for line in remaining]))
        items: list[TraceReceipt] = (yield ndjson_request(remaining, reflect))["items"]
        for line, item in zip(remaining, items, strict=True):
            receipts[line.number] = item
        remaining = _lines_to_retry(remaining, receipts)
    return receipts


def _lines_to_retry(lines: Sequence[Line], receipts: Mapping[int, TraceReceipt]) -> list[Line]:
    return [line for line in lines if _error_code(receipts[line.number]) in TRANSIENT_LINE_CODES]


def _error_code(receipt: TraceReceipt) -> str | None:
    return receipt.get("error", {}).get("code")


def _line_retry_pause(rejected: Iterable[TraceReceipt]) -> float:
    """The longest `retry_after` of the rejected lines, in seconds."""
    pauses = [
        float(receipt.get("error", {}).get("retry_after", LINE_RETRY_SECONDS))
        for receipt in rejected
    ]
    return min(max(pauses), MAX_PAUSE_SECONDS)


def ndjson_request(
    lines: Iterable[Line], reflect: ReflectMode, format: TraceFormat | None = None
) -> Request[Any]:
    params = {"reflect": reflect, "format": format}
    request: Request[Any] = write_request("POST", f"{API}/traces", params=params)
    body = b"\n".join(line.text for line in lines)
    headers = request.headers | {"Content-Type": "application/x-ndjson"}
    return Request(request.method, request.path, request.params, body, headers)


def wait_for_run(run_id: Id, *, timeout: float | None = None) -> Flow[Run]:
    """Wait until a run is done, failed or dead, and return it.

    Raises `TimedOut` after `timeout` seconds.
    """
    yield Item((yield from _poll_run(run_id, timeout)))


def follow_chain(run_id: Id, *, timeout: float | None = None) -> Flow[Run]:
    """Yield a run and each run that follows it (evaluate, reflect, curate, apply) as it finishes.

    Raises `TimedOut` if one run takes longer than `timeout` seconds.
    """
    next_id: Id | None = run_id
    while next_id is not None:
        run = yield from _poll_run(next_id, timeout)
        yield Item(run)
        next_id = run["next_run_id"]


def follow_agent_run(agent_run_id: Id, *, after: int = 0) -> Flow[AgentEvent]:
    """Yield the events of an agent run after this number, until it has ended or waits for a person.
    Each request ends with the next events, so a lost connection loses none.
    """
    has_stopped = False
    while True:
        text: str = yield stream_agent_events(agent_run_id, after=after, follow=False)
        events = parse_events(text)
        for event in events:
            after = event["id"]
            yield Item(event)
        if events:
            has_stopped = False
        elif has_stopped:
            return
        else:
            run: AgentRun = yield get_agent_run(agent_run_id)
            # One more request, in case the last events came after the one before.
            has_stopped = run["state"] in AGENT_STOPPED_STATES


def execute_plan_generator(
    query: str, **options: Unpack[CreateAgentRunOptions]
) -> Flow[ExecutionState]:
    """Ask the agent and yield its state, each time with what has happened since the last one, for a
    live user interface (S3.24). Ends when the run has ended or waits for a person.
    """
    run: AgentRun = yield create_agent_run(query, **options)
    after, has_stopped = 0, False
    while True:
        text: str = yield stream_agent_events(run["id"], after=after, follow=False)
        events = parse_events(text)
        execution: AgentExecution = yield get_agent_execution(run["id"])
        if events:
            after = events[-1]["id"]
            yield Item(ExecutionState(**execution, events=events))
        elif has_stopped:
            return
        # One more request, in case the last events came after the one before.
        has_stopped = not events and execution["state"] in AGENT_STOPPED_STATES


def parse_events(text: str) -> list[AgentEvent]:
    """The events of a stream of server-sent events."""
    found: list[AgentEvent] = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "data" in fields:
            data = json.loads(fields["data"])
            found.append({"id": int(fields["id"]), "event": fields["event"], "data": data})
    return found


def _poll_run(run_id: Id, timeout: float | None = None) -> SubFlow[Run]:
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = INITIAL_POLL_SECONDS
    while True:
        run: Run = yield get_run(run_id)
        if run["state"] in FINISHED_STATES:
            return run
        if deadline is not None and time.monotonic() + pause > deadline:
            raise TimedOut(f"Run {run_id} is still {run['state']} after {timeout:g} s.")
        yield Pause(pause)
        pause = min(pause * 1.5, MAX_POLL_SECONDS)


def unfinished_runs(run_ids: Collection[str], *, project_id: str | None = None) -> Flow[set[str]]:
    """Poll many runs and yield, after each poll, those whose chain is unfinished.

    Ends when none is left. It reads the list of unfinished runs instead of single runs;
    `project_id` shortens that list.
    """
    remaining = set(run_ids)
    while remaining:
        started = time.monotonic()
        first = list_runs(state=UNFINISHED_STATES, project_id=project_id)
        request: Request[Page[Run]] | None = first
        unfinished: set[str] = set()
        while request is not None:
            page: Page[Run] = yield request
            unfinished.update(run["parent_id"] or run["id"] for run in page["items"])
            request = next_page_request(first, page)
        remaining &= unfinished
        yield Item(set(remaining))
        if remaining:
            elapsed = time.monotonic() - started
            yield Pause(max(MIN_LIST_POLL_SECONDS, elapsed * (1 / MAX_POLLING_SHARE - 1)))


def finished_runs(run_ids: Collection[str], *, project_id: str | None = None) -> Flow[Run]:
    """Yield many finished runs and the runs that followed them, in no particular order.

    Recent runs come from the list, others are fetched one by one. It waits for unfinished runs.
    """
    wanted, yielded = set(run_ids), set[str]()
    missing = set(wanted)
    pages_left = MAX_CHAIN_LENGTH * len(wanted) // MAX_PAGE_SIZE + EXTRA_PAGES
    first = list_runs(state=FINISHED_STATES, project_id=project_id)
    request: Request[Page[Run]] | None = first
    while wanted - yielded and request is not None and pages_left > 0:
        page: Page[Run] = yield request
        for run in page["items"]:
            if run["id"] not in yielded and {run["id"], run["parent_id"]} & wanted:
                yielded.add(run["id"])
                missing |= {run["next_run_id"]} if run["next_run_id"] else set()
                yield Item(run)
        request = next_page_request(first, page)
        pages_left -= 1
    while missing := missing - yielded:
        run = yield from _poll_run(missing.pop())
        yielded.add(run["id"])
        missing |= {run["next_run_id"]} if run["next_run_id"] else set()
        yield Item(run)
