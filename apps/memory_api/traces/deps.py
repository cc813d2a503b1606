"""Redacted bodies of requests. Redaction takes up to 30 s and the dependency `Session` holds a
connection, so a route declares the caller first, then the body, then the session.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from apps.memory_api.api.deps import Writer
from apps.memory_api.traces.redaction import RedactedChange, redact_change_isolated
from apps.memory_api.traces.schemas import (
    AppendEventsRequest,
    CloseTraceRequest,
    CreateTraceRequest,
    RecordOutcomeRequest,
)
from apps.memory_api.traces.storage import NewTrace, prepare_trace


async def read_new_trace(body: CreateTraceRequest, caller: Writer) -> NewTrace:
    caller.require_tenant(body.tenant_id)
    project_id = caller.resolve_project(body.project_id)
    return await prepare_trace(body, caller.tenant_id, project_id)


async def read_appended_events(body: AppendEventsRequest) -> RedactedChange[AppendEventsRequest]:
    return await redact_change_isolated(body)


async def read_outcome(body: RecordOutcomeRequest) -> RedactedChange[RecordOutcomeRequest]:
    return await redact_change_isolated(body)


async def read_closing(body: CloseTraceRequest) -> RedactedChange[CloseTraceRequest]:
    return await redact_change_isolated(body)


NewTraceBody = Annotated[NewTrace, Depends(read_new_trace)]
AppendedEventsBody = Annotated[RedactedChange[AppendEventsRequest], Depends(read_appended_events)]
OutcomeBody = Annotated[RedactedChange[RecordOutcomeRequest], Depends(read_outcome)]
ClosingBody = Annotated[RedactedChange[CloseTraceRequest], Depends(read_closing)]
