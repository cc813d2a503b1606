"""Operations of several requests, as generators without I/O.

A flow yields a `Request` and receives its response, yields a `Pause`, or yields an `Item` for the
caller. A sub-flow returns one result. Both clients execute flows. Each public function is a method
of a resource (`sdk/generator/names.py`), with its arguments and its docstring.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from hansei._model import Model
from hansei._ndjson import Line, Source, batch_lines, read_lines
from hansei._operations import AgentEvent, ExecutionState, get_agent_events
from hansei._request import (
    MAX_PAGE_SIZE,
    Id,
    PageData,
    Request,
    api_path,
    get_request,
    list_request,
    next_page_request,
    parse_json,
    query_params,
    write_request,
)
from hansei._retry import MAX_PAUSE_SECONDS, Pause
from hansei.errors import APITimeoutError
from hansei.models import AgentExecution, AgentRun, ReflectMode, Run, TraceFormat

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


Receipt = dict[str, Any]
"""The answer to one line, as JSON."""


class ImportedTrace(Model):
    """The result of sending one trace: its IDs, or an `error` if it was rejected.

    `line` is its position in the call of `create_many`, from 1.
    """

    line: int
    trace_id: str | None
    run_id: str | None
    duplicate: bool
    sanitized: bool
    error: dict[str, Any] | None


Flow = Generator[Request[Any] | Pause | Item[T], Any, None]
SubFlow = Generator[Request[Any] | Pause | Item[Any], Any, T]


def create_traces(
    source: Source,
    *,
    reflect: ReflectMode = "auto",
    project_id: str | None = None,
    playbook: str | None = None,
    format: TraceFormat | None = None,
    outcome_from: str | None = None,
) -> Flow[ImportedTrace]:
    """Store many traces and yield one receipt for each, in order.

    `source` is an iterable of dicts, an open file, or the path of a JSON or JSONL file of any size.
    The client sends 100 traces at a time. A rejected trace has an `error` in its receipt and does
    not affect the others. If the queue is full, the client retries for about one minute.
    `project_id` and `playbook` override the fields of the traces. `format` is that of the records
    in `source`, if they are no traces of Hansei; a record may then have several receipts.
    `outcome_from` names the score of a record that is its outcome.
    """
    if outcome_from is not None:
        format = format or "hansei"
    overrides = {"project_id": project_id, "playbook": playbook}
    if format is not None:
        is_export = format not in SESSION_FORMATS
        lines = read_lines(source, overrides, is_export=is_export)
        yield from _import_records(lines, reflect, format, outcome_from)
        return
    for batch in batch_lines(read_lines(source, overrides)):
        accepted = [line for line in batch if line.error is None]
        receipts = yield from _send_lines(accepted, reflect)
        for line in batch:
            if line.error is not None:
                yield Item(_imported({"error": line.error}, line))
            else:
                yield Item(_imported(receipts[line.number], line))


def _imported(receipt: Mapping[str, Any], line: Line) -> ImportedTrace:
    fields = dict.fromkeys(("trace_id", "run_id", "error"), None)
    flags = dict.fromkeys(("duplicate", "sanitized"), False)
    return ImportedTrace.from_json({**fields, **flags, **receipt, "line": line.number})


def _import_records(
    lines: Iterable[Line], reflect: ReflectMode, format: TraceFormat, outcome_from: str | None
) -> Flow[ImportedTrace]:
    """Send records of another format. A session file is one request."""
    batches = [list(lines)] if format in SESSION_FORMATS else batch_lines(lines)
    for batch in batches:
        response = yield ndjson_request(batch, reflect, format, outcome_from)
        for item in response["items"]:
            yield Item(_imported(item, batch[(item.get("line") or 1) - 1]))


def _send_lines(lines: Sequence[Line], reflect: ReflectMode) -> SubFlow[dict[int, Receipt]]:
    """Send lines, with retries of transient errors. Returns receipts by line number."""
    receipts: dict[int, Receipt] = {}
    remaining: Sequence[Line] = lines
    for attempt in range(MAX_LINE_RETRIES + 1):
        if not remaining:
            break
        if attempt:
            yield Pause(_line_retry_pause([receipts[line.number] for line in remaining]))
        items: list[Receipt] = (yield ndjson_request(remaining, reflect))["items"]
        for line, item in zip(remaining, items, strict=True):
            receipts[line.number] = item
        remaining = _lines_to_retry(remaining, receipts)
    return receipts


def _lines_to_retry(lines: Sequence[Line], receipts: Mapping[int, Receipt]) -> list[Line]:
    return [line for line in lines if _error_code(receipts[line.number]) in TRANSIENT_LINE_CODES]


def _error_code(receipt: Receipt) -> str | None:
    return receipt.get("error", {}).get("code")


def _line_retry_pause(rejected: Iterable[Receipt]) -> float:
    """The longest `retry_after` of the rejected lines, in seconds."""
    pauses = [
        float(receipt.get("error", {}).get("retry_after", LINE_RETRY_SECONDS))
        for receipt in rejected
    ]
    return min(max(pauses), MAX_PAUSE_SECONDS)


def ndjson_request(
    lines: Iterable[Line],
    reflect: ReflectMode,
    format: TraceFormat | None = None,
    outcome_from: str | None = None,
) -> Request[Any]:
    request: Request[Any] = write_request("POST", api_path("traces"), None)
    return replace(
        request,
        parse=parse_json,
        params=query_params({"reflect": reflect, "format": format, "outcome_from": outcome_from}),
        body=b"\n".join(line.text for line in lines),
        headers=request.headers | {"Content-Type": "application/x-ndjson"},
    )


def wait_for_run(run_id: Id, *, timeout: float | None = None) -> SubFlow[Run]:
    """Wait until a run is done, failed or dead, and return it.

    Raises `APITimeoutError` after `timeout` seconds.
    """
    return (yield from _poll_run(run_id, timeout))


def follow_run(run_id: Id, *, timeout: float | None = None) -> Flow[Run]:
    """Yield a run and each run that follows it (evaluate, reflect, curate, apply) as it finishes.

    Raises `APITimeoutError` if one run takes longer than `timeout` seconds.
    """
    next_id: Id | None = run_id
    while next_id is not None:
        run = yield from _poll_run(next_id, timeout)
        yield Item(run)
        next_id = run.next_run_id


def follow_agent_run(agent_run_id: Id, *, after: int = 0) -> Flow[AgentEvent]:
    """Yield the events of an agent run after this number, until it has ended or waits for a person.
    Each request ends with the next events, so a lost connection loses none.
    """
    has_stopped = False
    while True:
        text: str = yield get_agent_events(agent_run_id, after)
        events = parse_events(text)
        for event in events:
            after = event.id
            yield Item(event)
        if events:
            has_stopped = False
        elif has_stopped:
            return
        else:
            run: AgentRun = yield get_request(api_path("agents", "runs", agent_run_id), AgentRun)
            # One more request, in case the last events came after the one before.
            has_stopped = run.state in AGENT_STOPPED_STATES


def execute_plan_generator(
    query: str,
    *,
    project_id: str | None = None,
    playbook: str | None = None,
    collections: Sequence[str] | None = None,
    plan: Mapping[str, Any] | None = None,
    interactive: bool | None = None,
    confirm_plan: bool | None = None,
    previous_run_id: Id | None = None,
) -> Flow[ExecutionState]:
    """Ask the agent and yield its state, each time with what has happened since the last one, for a
    live user interface (S3.24). Ends when the run has ended or waits for a person. The arguments
    are those of `client.agents.runs.create`.
    """
    body = {
        "query": query,
        "project_id": project_id,
        "playbook": playbook,
        "collections": collections,
        "plan": plan,
        "interactive": interactive,
        "confirm_plan": confirm_plan,
        "previous_run_id": previous_run_id,
    }
    run: AgentRun = yield write_request("POST", api_path("agents", "runs"), AgentRun, body)
    path = api_path("agents", "runs", run.id, "execution")
    after, has_stopped = 0, False
    while True:
        text: str = yield get_agent_events(run.id, after)
        events = parse_events(text)
        execution: AgentExecution = yield get_request(path, AgentExecution)
        if events:
            after = events[-1].id
            yield Item(ExecutionState(**vars(execution), events=events))
        elif has_stopped:
            return
        # One more request, in case the last events came after the one before.
        has_stopped = not events and execution.state in AGENT_STOPPED_STATES


def parse_events(text: str) -> list[AgentEvent]:
    """The events of a stream of server-sent events."""
    found: list[AgentEvent] = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "data" in fields:
            data = json.loads(fields["data"])
            found.append(AgentEvent(id=int(fields["id"]), event=fields["event"], data=data))
    return found


def _poll_run(run_id: Id, timeout: float | None = None) -> SubFlow[Run]:
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = INITIAL_POLL_SECONDS
    while True:
        run: Run = yield get_request(api_path("runs", run_id), Run)
        if run.state in FINISHED_STATES:
            return run
        if deadline is not None and time.monotonic() + pause > deadline:
            raise APITimeoutError(f"Run {run_id} is still {run.state} after {timeout:g} s.")
        yield Pause(pause)
        pause = min(pause * 1.5, MAX_POLL_SECONDS)


def poll_unfinished_runs(
    run_ids: Iterable[str], *, project_id: str | None = None
) -> Flow[set[str]]:
    """Poll many runs and yield, after each poll, those whose chain is unfinished.

    Ends when none is left. It reads the list of unfinished runs instead of single runs;
    `project_id` shortens that list.
    """
    remaining = set(run_ids)
    while remaining:
        started = time.monotonic()
        first = _list_runs(UNFINISHED_STATES, project_id)
        request: Request[PageData[Run]] | None = first
        unfinished: set[str] = set()
        while request is not None:
            page: PageData[Run] = yield request
            unfinished.update(run.parent_id or run.id for run in page.items)
            request = next_page_request(first, page)
        remaining &= unfinished
        yield Item(set(remaining))
        if remaining:
            elapsed = time.monotonic() - started
            yield Pause(max(MIN_LIST_POLL_SECONDS, elapsed * (1 / MAX_POLLING_SHARE - 1)))


def collect_finished_runs(run_ids: Iterable[str], *, project_id: str | None = None) -> Flow[Run]:
    """Yield many finished runs and the runs that followed them, in no particular order.

    Recent runs come from the list, others are fetched one by one. It waits for unfinished runs.
    """
    wanted, yielded = set(run_ids), set[str]()
    missing = set(wanted)
    pages_left = MAX_CHAIN_LENGTH * len(wanted) // MAX_PAGE_SIZE + EXTRA_PAGES
    first = _list_runs(FINISHED_STATES, project_id)
    request: Request[PageData[Run]] | None = first
    while wanted - yielded and request is not None and pages_left > 0:
        page: PageData[Run] = yield request
        for run in page.items:
            if run.id not in yielded and {run.id, run.parent_id} & wanted:
                yielded.add(run.id)
                missing |= {run.next_run_id} if run.next_run_id else set()
                yield Item(run)
        request = next_page_request(first, page)
        pages_left -= 1
    while missing := missing - yielded:
        run = yield from _poll_run(missing.pop())
        yielded.add(run.id)
        missing |= {run.next_run_id} if run.next_run_id else set()
        yield Item(run)


def _list_runs(states: Sequence[str], project_id: str | None) -> Request[PageData[Run]]:
    return list_request(
        api_path("runs"), Run, params={"state": list(states), "project_id": project_id}
    )
