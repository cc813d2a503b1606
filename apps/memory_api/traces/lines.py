"""Lines of NDJSON: some hundreds at a time, in one transaction and a handful of statements.

Each line succeeds or fails by itself. The many plain ones go in together; a line that is a
duplicate, or any line when the database refuses them together, is taken alone in a savepoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import structlog
from pydantic import ValidationError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.away import is_away, may_pass
from apps.memory_api.core.body import parse
from apps.memory_api.core.errors import HanseiError, Invalid, TooLarge, Unavailable
from apps.memory_api.core.http import describe
from apps.memory_api.jobs.bounds import QueueFull
from apps.memory_api.jobs.chain import EVALUATE, REFLECT
from apps.memory_api.jobs.queries import latest_runs
from apps.memory_api.traces.accept import Intake, known_trace
from apps.memory_api.traces.ingest import (
    content_hash,
    events_json,
    insert_events,
    insert_traces,
    trace_row,
)
from apps.memory_api.traces.ndjson import MAX_LINE, Line
from apps.memory_api.traces.queries import known_externals
from apps.memory_api.traces.redaction import without_secrets
from apps.memory_api.traces.schemas import LineRefused, TraceAccepted, TraceIn

log = structlog.get_logger()

OURS = {"code": "internal_error", "detail": "This line could not be stored; it is in the log."}

AT_A_TIME = 4
"""Lines that are read without giving way."""

Answers = dict[int, TraceAccepted | LineRefused]
"""By the number of the line."""


@dataclass(frozen=True)
class Sent:
    """A line that can be read, of a caller who may send it; `row` and `events` (JSON) are what is
    stored of it, without secrets. What was read is not kept but for these: most lines need no more.
    """

    line: int
    raw: bytes
    cleaned: bool
    row: dict[str, Any]
    events: str

    @property
    def trace_id(self) -> UUID:
        return self.row["id"]

    @property
    def address(self) -> tuple[str, str] | None:
        """What it is known by."""
        name = self.row["external_id"]
        return None if name is None else (self.row["project_id"], name)

    def is_learnt_from(self, intake: Intake) -> bool:
        return intake.learns_from(self.row["state"], self.row["outcome"])


Read = Sent | LineRefused


async def read_lines(intake: Intake, lines: Sequence[Line]) -> list[Read]:
    """What can be done with some lines before they are stored. This is work of the processor: those
    who wait for the database have a turn after every few lines.
    """
    read: list[Read] = []
    for line in lines:
        read.append(_read(intake, *line))
        if len(read) % AT_A_TIME == 0:
            await asyncio.sleep(0)
    return read


async def take_lines(
    intake: Intake, session: AsyncSession, read: Sequence[Read]
) -> list[TraceAccepted | LineRefused]:
    """Some lines in the session's transaction; an answer each, in their order."""
    sent = [one for one in read if isinstance(one, Sent)]
    answers: Answers = {one.line: one for one in read if isinstance(one, LineRefused)}
    plain = await _plain(intake, session, sent, answers)
    try:
        async with session.begin_nested():
            answers.update(await _together(intake, session, plain))
    except (DBAPIError, asyncpg.PostgresError, QueueFull) as error:
        if is_away(error):
            raise
        log.info("lines_taken_one_by_one", lines=len(plain), because=type(error).__name__)
    left = [one for one in sent if one.line not in answers]
    answers.update(await _again(intake, session, left))
    for one in left:
        if one.line not in answers:
            answers[one.line] = await _alone(intake, session, one)
    return [answers[one.line] for one in read]


def _read(intake: Intake, line: int, raw: bytes | None) -> Read:
    try:
        if raw is None:
            raise TooLarge(f"A line may have {MAX_LINE} bytes.")
        parsed = parse(raw)
        body = TraceIn.model_validate(parsed.value)
        tenant_id = intake.caller.tenant_id
        intake.caller.check_tenant(body.tenant_id)
        project_id = intake.caller.project(body.project_id)
        clean, content = without_secrets(body), content_hash(body)
        row = trace_row(tenant_id, clean, project_id, content, intake.trace_id(line))
        return Sent(line, raw, parsed.cleaned, row, events_json(clean.events))
    except (HanseiError, ValidationError) as error:
        return LineRefused(line=line, error=refusal(error))


async def _again(intake: Intake, session: AsyncSession, sent: Sequence[Sent]) -> Answers:
    """Lines that were sent before, word for word, and need nothing new."""
    known = await _known(session, sent)
    there = {one.line: known[one.address] for one in sent if one.address and one.address in known}
    runs = await latest_runs(session, [trace for trace, _ in there.values()], EVALUATE, REFLECT)
    answers: Answers = {}
    for one in sent:
        trace_id, content = there.get(one.line, (None, None))
        if trace_id is None or not intake.settled_by(runs.get(trace_id)):
            continue
        if content == one.row["content_hash"]:
            answer = known_trace(trace_id, runs.get(trace_id), cleaned=one.cleaned)
            answers[one.line] = answer.model_copy(update={"line": one.line})
    return answers


async def _known(
    session: AsyncSession, sent: Sequence[Sent]
) -> dict[tuple[str, str], tuple[UUID, bytes]]:
    return await known_externals(session, [one.address for one in sent if one.address])


async def _plain(
    intake: Intake, session: AsyncSession, sent: Sequence[Sent], answers: Answers
) -> list[Sent]:
    """The first line of each name, as far as the queue has room. Answers those it has none for.
    Which names have a trace already shows when they are stored; when room is short it is asked
    before, for those need none.
    """
    room = await intake.runtime.queue.room(session)
    short = room < sum(one.is_learnt_from(intake) for one in sent)
    taken = set(await _known(session, sent) if short else ())
    plain: list[Sent] = []
    for one in sent:
        if one.address in taken:
            continue
        if one.address is not None:
            taken.add(one.address)
        if one.is_learnt_from(intake):
            if room <= 0:
                answers[one.line] = LineRefused(line=one.line, error=refusal(QueueFull()))
                continue
            room -= 1
        plain.append(one)
    return plain


async def _together(intake: Intake, session: AsyncSession, sent: Sequence[Sent]) -> Answers:
    """Those that are new, stored with one statement for each table."""
    stored = await insert_traces(session, [one.row for one in sent])
    fresh = [one for one in sent if one.trace_id in stored]
    await insert_events(session, [(one.trace_id, 0, one.events) for one in fresh])
    learnt = {one.trace_id: one.row["project_id"] for one in fresh if one.is_learnt_from(intake)}
    runs = await intake.learn_from_many(session, learnt)
    return {
        one.line: TraceAccepted(
            trace_id=one.trace_id,
            run_id=run.id if (run := runs.get(one.trace_id)) else None,
            cleaned=one.cleaned,
            line=one.line,
        )
        for one in fresh
    }


async def _alone(intake: Intake, session: AsyncSession, one: Sent) -> TraceAccepted | LineRefused:
    body = TraceIn.model_validate(parse(one.raw).value)
    try:
        async with session.begin_nested():
            answer = await intake.one(session, body, cleaned=one.cleaned, number=one.line)
        return answer.model_copy(update={"line": one.line})
    except HanseiError as error:
        return LineRefused(line=one.line, error=refusal(error))
    except (DBAPIError, asyncpg.PostgresError) as error:
        if is_away(error):
            raise
        if may_pass(error):
            return LineRefused(line=one.line, error=refusal(Unavailable()))
        log.error("line_failed", line=one.line, exc_info=error)
        return LineRefused(line=one.line, error=OURS)


def refusal(error: HanseiError | ValidationError) -> dict[str, Any]:
    """What is wrong with a line, in the fields of a problem document."""
    if isinstance(error, HanseiError):
        found: dict[str, Any] = {"code": error.code, "detail": error.detail}
        if "Retry-After" in error.headers:
            found["retry_after"] = int(error.headers["Retry-After"])
        return found | ({"field": error.field} if error.field else {})
    first = describe(dict(error.errors()[0]))
    return {"code": Invalid.code, "detail": first["message"], "field": first["field"]}
