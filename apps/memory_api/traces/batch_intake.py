"""Stores the traces of an NDJSON body: one result per line, with constant memory.

Each batch of lines is one transaction. New traces are stored with a few statements. Each other
line, and each line of a batch that the database rejects, is stored in a savepoint of its own, so
one line cannot make others fail.

The response is collected in a temporary file and sent when the body has ended. Sending it earlier
could block both sides, because some clients read the response only after they have sent everything.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import IO, Any, TypeVar
from uuid import UUID

import asyncpg
import structlog
from pydantic import ValidationError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.api.problems import describe_field_error
from memory_api.core.db_errors import DatabaseUnavailable, is_connection_error, is_transient
from memory_api.core.errors import (
    HanseiError,
    InvalidRequest,
    PayloadTooLarge,
    ServiceUnavailable,
)
from memory_api.core.json_input import parse_json
from memory_api.core.schemas import check_field_counts
from memory_api.run_queue.admission import QueueFull
from memory_api.runs.chain import EVALUATE, REFLECT
from memory_api.runs.queries import latest_runs
from memory_api.traces.importers.formats import PART_FACTOR, ConvertedLine
from memory_api.traces.intake import TraceIntake, duplicate_receipt
from memory_api.traces.ndjson import MAX_LINE_BYTES
from memory_api.traces.queries import find_known_external_ids
from memory_api.traces.redaction import redact_trace_isolated
from memory_api.traces.schemas import CreateTraceRequest, RejectedLine, TraceReceipt
from memory_api.traces.storage import (
    NewTrace,
    content_hash,
    events_json,
    insert_events,
    insert_traces,
    to_row,
)

log = structlog.get_logger()

INTERNAL_ERROR = {
    "code": "internal_error",
    "detail": "This line could not be stored. See the log of the service.",
}

MAX_LINES_WITHOUT_YIELD = 4
"""Lines that are parsed before other tasks of the event loop run."""

Results = dict[int, TraceReceipt | RejectedLine]
"""Line number → result."""


@dataclass(frozen=True)
class ParsedLine:
    """A valid line. `row` and `events` (JSON) are redacted and ready to be stored. The parsed
    request is not kept, to save memory.
    """

    line: int
    cleaned: bool
    row: dict[str, Any]
    events: str

    @property
    def trace_id(self) -> UUID:
        return self.row["id"]

    @property
    def external_id(self) -> tuple[str, str] | None:
        """(project ID, external ID), if the trace has one."""
        external_id = self.row["external_id"]
        return None if external_id is None else (self.row["project_id"], external_id)

    @property
    def has_related_memories(self) -> bool:
        return bool(self.row["related_memory_ids"])

    def needs_run(self, intake: TraceIntake) -> bool:
        row = self.row
        return intake.should_learn(
            row["state"], row["outcome"], row["ground_truth"], row["test_report"]
        )


LineResult = ParsedLine | RejectedLine


async def parse_lines(intake: TraceIntake, lines: Sequence[ConvertedLine]) -> list[LineResult]:
    """Parses, validates and redacts lines. This needs the CPU, so other tasks run after every few
    lines.
    """
    results: list[LineResult] = []
    for line in lines:
        results.append(await _parse_line(intake, *line))
        if len(results) % MAX_LINES_WITHOUT_YIELD == 0:
            await asyncio.sleep(0)
    return results


async def accept_lines(
    intake: TraceIntake, session: AsyncSession, lines: Sequence[LineResult]
) -> list[TraceReceipt | RejectedLine]:
    """Stores a batch of lines in the session's transaction. Returns one result per line,
    in order.
    """
    parsed = [line for line in lines if isinstance(line, ParsedLine)]
    results: Results = {line.line: line for line in lines if isinstance(line, RejectedLine)}
    # Related memories are looked up line by line.
    plain = [line for line in parsed if not line.has_related_memories]
    new = await _select_new_lines(intake, session, plain, results)
    try:
        async with session.begin_nested():
            results.update(await _store_new_lines(intake, session, new))
    except (DBAPIError, asyncpg.PostgresError, QueueFull) as error:
        if is_connection_error(error):
            raise
        log.info("lines_accepted_one_by_one", lines=len(new), reason=type(error).__name__)
    others = [line for line in parsed if line.line not in results]
    results.update(await _match_duplicates(intake, session, others))
    for line in others:
        if line.line not in results:
            results[line.line] = await _store_line(intake, session, line)
    return [results[line.line] for line in lines]


async def _parse_line(
    intake: TraceIntake, line: int, raw: bytes | HanseiError | None
) -> LineResult:
    try:
        if isinstance(raw, HanseiError):
            raise raw
        if raw is None:
            raise PayloadTooLarge(f"A line can have at most {MAX_LINE_BYTES} bytes.")
        parsed = parse_json(raw)
        check_field_counts(parsed.value, CreateTraceRequest)
        body = CreateTraceRequest.model_validate(parsed.value)
        tenant_id = intake.caller.tenant_id
        intake.caller.require_tenant(body.tenant_id)
        project_id = intake.caller.resolve_project(body.project_id)
        events, clean = events_json(body.events), await redact_trace_isolated(body, tenant_id)
        content = content_hash(body, events)
        row = to_row(tenant_id, clean, project_id, content, intake.reserved_trace_id(line))
        if clean is not body:
            events = events_json(clean.events)
        return ParsedLine(line, parsed.sanitized, row, events)
    except (HanseiError, ValidationError) as error:
        return RejectedLine(line=line, error=line_error(error))


async def _match_duplicates(
    intake: TraceIntake, session: AsyncSession, lines: Sequence[ParsedLine]
) -> Results:
    """The results of lines with the same content as a stored trace that needs no further run."""
    known = await _find_known(session, lines)
    traces = {line.line: known[line.external_id] for line in lines if line.external_id in known}
    runs = await latest_runs(session, [trace for trace, _ in traces.values()], EVALUATE, REFLECT)
    results: Results = {}
    for one in lines:
        trace_id, content = traces.get(one.line, (None, None))
        if trace_id is None or not intake.is_answered_by(runs.get(trace_id)):
            continue
        if content == one.row["content_hash"]:
            receipt = duplicate_receipt(trace_id, runs.get(trace_id), sanitized=one.cleaned)
            results[one.line] = receipt.model_copy(update={"line": one.line})
    return results


async def _find_known(
    session: AsyncSession, lines: Sequence[ParsedLine]
) -> dict[tuple[str, str], tuple[UUID, bytes]]:
    external_ids = [line.external_id for line in lines if line.external_id]
    return await find_known_external_ids(session, external_ids)


async def _select_new_lines(
    intake: TraceIntake, session: AsyncSession, lines: Sequence[ParsedLine], results: Results
) -> list[ParsedLine]:
    """The first line of each external ID. Lines that the queue has no capacity for are added to
    `results` as rejected.

    Existing external IDs are usually detected when the traces are stored. If the capacity is short,
    they are looked up first, because those lines need no capacity.
    """
    room = await intake.runtime.queue.get_remaining_capacity(session)
    is_short = room < sum(line.needs_run(intake) for line in lines)
    seen = set(await _find_known(session, lines) if is_short else ())
    new: list[ParsedLine] = []
    for line in lines:
        if line.external_id in seen:
            continue
        if line.external_id is not None:
            seen.add(line.external_id)
        if line.needs_run(intake):
            if room <= 0:
                results[line.line] = RejectedLine(line=line.line, error=line_error(QueueFull()))
                continue
            room -= 1
        new.append(line)
    return new


async def _store_new_lines(
    intake: TraceIntake, session: AsyncSession, lines: Sequence[ParsedLine]
) -> Results:
    """Stores the new traces with one statement per table. Skips existing external IDs."""
    stored_ids = await insert_traces(session, [line.row for line in lines])
    stored = [line for line in lines if line.trace_id in stored_ids]
    await insert_events(session, [(line.trace_id, 0, line.events) for line in stored])
    projects = {line.trace_id: line.row["project_id"] for line in stored if line.needs_run(intake)}
    run_ids = await intake.enqueue_learning_many(session, projects)
    return {
        line.line: TraceReceipt(
            trace_id=line.trace_id,
            run_id=run_ids.get(line.trace_id),
            sanitized=line.cleaned,
            line=line.line,
        )
        for line in stored
    }


async def _store_line(
    intake: TraceIntake, session: AsyncSession, one: ParsedLine
) -> TraceReceipt | RejectedLine:
    """Stores one line in a savepoint."""
    new = NewTrace(one.row, [(0, one.events)])
    try:
        async with session.begin_nested():
            receipt = await intake.accept(session, new, sanitized=one.cleaned)
        return receipt.model_copy(update={"line": one.line})
    except DatabaseUnavailable:
        raise
    except HanseiError as error:
        return RejectedLine(line=one.line, error=line_error(error))
    except (DBAPIError, asyncpg.PostgresError) as error:
        if is_connection_error(error):
            raise
        if is_transient(error):
            return RejectedLine(line=one.line, error=line_error(ServiceUnavailable()))
        log.error("line_failed", line=one.line, exc_info=error)
        return RejectedLine(line=one.line, error=INTERNAL_ERROR)


def line_error(error: HanseiError | ValidationError) -> dict[str, Any]:
    """The error of a line, in the fields of a problem document."""
    if isinstance(error, HanseiError):
        problem: dict[str, Any] = {"code": error.code, "detail": error.detail}
        if "Retry-After" in error.headers:
            problem["retry_after"] = int(error.headers["Retry-After"])
        return problem | ({"field": error.field} if error.field else {})
    first = describe_field_error(dict(error.errors()[0]), CreateTraceRequest)
    return {"code": InvalidRequest.code, "detail": first["message"], "field": first["field"]}


MAX_RESPONSE_BYTES_IN_MEMORY = 1024 * 1024
"""A larger response is written to a temporary file."""
RESPONSE_CHUNK_BYTES = 64 * 1024

T = TypeVar("T")

STORAGE_ERRORS = (
    DatabaseUnavailable,
    SQLAlchemyError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
)


class BatchResponseWriter:
    def __init__(self) -> None:
        self.stored = self.duplicates = self.rejected = 0
        self.file: IO[bytes] = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - closed by chunks()
            MAX_RESPONSE_BYTES_IN_MEMORY
        )
        self.file.write(b'{"items":[')

    @property
    def lines(self) -> int:
        return self.stored + self.duplicates + self.rejected

    def add(self, item: TraceReceipt | RejectedLine) -> None:
        if item.line is not None and item.line >= PART_FACTOR:
            item = item.model_copy(update={"line": item.line % PART_FACTOR})
        self.file.write((b"," if self.lines else b"") + item.model_dump_json().encode())
        if isinstance(item, RejectedLine):
            self.rejected += 1
        elif item.duplicate:
            self.duplicates += 1
        else:
            self.stored += 1

    async def chunks(self) -> AsyncIterator[bytes]:
        with closing(self.file):
            self.file.write(
                f'],"stored_count":{self.stored},"duplicate_count":{self.duplicates},'
                f'"rejected_count":{self.rejected}}}'.encode()
            )
            self.file.seek(0)
            while chunk := self.file.read(RESPONSE_CHUNK_BYTES):
                yield chunk


async def accept_batches(
    intake: TraceIntake, batches: AsyncIterable[Sequence[ConvertedLine]]
) -> BatchResponseWriter:
    """Stores batches of lines. Parses the next batch while one is being stored.

    If the database becomes unavailable, the results so far remain and all later lines are rejected
    as `unavailable`. Raises the error if nothing was stored yet.
    """
    response, is_unavailable = BatchResponseWriter(), False
    try:
        async with aclosing(prefetch(_parse_batches(intake, batches))) as prefetched:
            async for lines in prefetched:
                is_unavailable = is_unavailable or not await _store_batch(intake, lines, response)
                if is_unavailable:
                    for line in lines:
                        error = line_error(ServiceUnavailable())
                        response.add(RejectedLine(line=line.line, error=error))
    except BaseException:
        response.file.close()
        raise
    return response


async def _parse_batches(
    intake: TraceIntake, batches: AsyncIterable[Sequence[ConvertedLine]]
) -> AsyncGenerator[list[LineResult]]:
    async for lines in batches:
        yield await parse_lines(intake, lines)


async def _store_batch(
    intake: TraceIntake, lines: Sequence[LineResult], response: BatchResponseWriter
) -> bool:
    """Stores lines and adds their results. Returns False if the database is unavailable."""
    try:
        async with intake.runtime.sessions.for_tenant(intake.caller.tenant_id) as session:
            items = await accept_lines(intake, session, lines)
    except STORAGE_ERRORS as error:
        if not response.lines or not is_transient(error):
            raise
        log.warning("lines_rejected", first_line=lines[0].line, error=str(error))
        return False
    for item in items:
        response.add(item)
    return True


async def prefetch(source: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Yields the items of `source`, and computes the next one while the caller handles the last.
    Closes `source`.
    """
    async with aclosing(source):
        next_item = asyncio.ensure_future(anext(source, None))
        try:
            while (item := await next_item) is not None:
                next_item = asyncio.ensure_future(anext(source, None))
                yield item
        finally:
            next_item.cancel()
            await asyncio.gather(next_item, return_exceptions=True)
