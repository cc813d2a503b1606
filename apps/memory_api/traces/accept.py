"""Taking traces in: stored in one transaction with the first run that learns from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import ValidationError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.away import is_away
from apps.memory_api.core.body import parse
from apps.memory_api.core.errors import HanseiError, Invalid, TooLarge
from apps.memory_api.core.http import describe
from apps.memory_api.jobs.chain import EVALUATE, REFLECT, begin, first_run, next_of
from apps.memory_api.jobs.queries import latest_run
from apps.memory_api.jobs.tables import Run
from apps.memory_api.runtime import Runtime
from apps.memory_api.tenants.identity import Identity
from apps.memory_api.traces.ingest import store_trace, wants_reflection
from apps.memory_api.traces.ndjson import MAX_LINE, Line
from apps.memory_api.traces.queries import get_trace
from apps.memory_api.traces.schemas import LineRefused, Reflect, TraceAccepted, TraceIn
from apps.memory_api.traces.tables import Trace

log = structlog.get_logger()

OURS = {"code": "internal_error", "detail": "This line could not be stored; it is in the log."}


@dataclass(frozen=True)
class Intake:
    """Who sends, and what is to become of it."""

    runtime: Runtime
    caller: Identity
    reflect: Reflect

    async def one(self, session: AsyncSession, body: TraceIn, *, cleaned: bool) -> TraceAccepted:
        """Store a trace and begin to learn from it. A duplicate answers with the run it has."""
        self.caller.check_tenant(body.tenant_id)
        stored = await store_trace(session, body, self.caller.project(body.project_id))
        if stored.duplicate:
            return await self.known(session, stored.trace, cleaned=cleaned)
        return await self.ended(session, stored.trace, cleaned=cleaned)

    async def known(self, session: AsyncSession, trace: Trace, *, cleaned: bool) -> TraceAccepted:
        """The answer to what was sent before: the trace and the run it has, or now gets because
        nobody had asked for one yet.
        """
        if self.reflect != "never":  # one run, however many send it at once
            await get_trace(session, trace.id, for_update=True)
        run = await latest_run(session, trace.id, EVALUATE, REFLECT)
        if run is None or self._wants_more(run):
            run = await self.learn_from(session, trace) or run
        run_id = (run.parent_id or run.id) if run else None
        return TraceAccepted(trace_id=trace.id, run_id=run_id, duplicate=True, cleaned=cleaned)

    async def ended(self, session: AsyncSession, trace: Trace, *, cleaned: bool) -> TraceAccepted:
        """The answer to news of a trace: with the reflection on it, if there is to be one."""
        await session.flush()
        run = await self.learn_from(session, trace)
        run_id = run.id if run else None
        return TraceAccepted(trace_id=trace.id, run_id=run_id, cleaned=cleaned)

    def _wants_more(self, run: Run) -> bool:
        """Whether a reflection is asked for where the evaluation saw no need of one."""
        ended_there = run.kind == EVALUATE and run.state == "done" and next_of(run) is None
        return self.reflect == "always" and ended_there

    async def learn_from(self, session: AsyncSession, trace: Trace) -> Run | None:
        """The first step of learning from a trace, queued, if it is to be learnt from."""
        settings = self.runtime.settings
        if not settings.reflective_memory_enabled:
            return None
        mode = settings.reflective_memory_mode
        if not await wants_reflection(session, trace, self.reflect, mode):
            return None
        run = first_run(
            session,
            project_id=trace.project_id,
            trace_id=trace.id,
            reflect=self.reflect,
            max_attempts=settings.max_attempts,
        )
        return await begin(self.runtime.queue, session, run)

    async def lines(
        self, session: AsyncSession, lines: Sequence[Line]
    ) -> list[TraceAccepted | LineRefused]:
        """Some lines of an NDJSON body in one transaction; each is a savepoint, so a bad one takes
        no other along.
        """
        answers: list[TraceAccepted | LineRefused] = []
        for number, raw in lines:
            try:
                if raw is None:
                    raise TooLarge(f"A line may have {MAX_LINE} bytes.")
                parsed = parse(raw)
                body = TraceIn.model_validate(parsed.value)
                async with session.begin_nested():
                    answer = await self.one(session, body, cleaned=parsed.cleaned)
                answers.append(answer.model_copy(update={"line": number}))
            except (HanseiError, ValidationError) as error:
                answers.append(LineRefused(line=number, error=refusal(error)))
            except DBAPIError as error:
                if is_away(error):
                    raise
                log.error("line_failed", line=number, exc_info=error)
                answers.append(LineRefused(line=number, error=OURS))
        return answers


def refusal(error: HanseiError | ValidationError) -> dict[str, Any]:
    """What is wrong with a line, in the fields of a problem document."""
    if isinstance(error, HanseiError):
        found = {"code": error.code, "detail": error.detail}
        return found | ({"field": error.field} if error.field else {})
    first = describe(dict(error.errors()[0]))
    return {"code": Invalid.code, "detail": first["message"], "field": first["field"]}
