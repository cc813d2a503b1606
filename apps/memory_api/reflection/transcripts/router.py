"""Transcripts over HTTP (spec 4)."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Header, Query

from apps.memory_api.api_route import ApiRoute
from apps.memory_api.core.errors import Conflict, Invalid
from apps.memory_api.core.openapi import example
from apps.memory_api.deps import Cleaned, RuntimeDep, Writer
from apps.memory_api.llm.errors import LLMError
from apps.memory_api.playbook.citations import extract_cited_ids
from apps.memory_api.reflection.attend import Begun, attend, begin
from apps.memory_api.reflection.insights.trace import identity
from apps.memory_api.reflection.insights.wire import Failed
from apps.memory_api.reflection.router import ACCEPTED, later
from apps.memory_api.reflection.transcripts.read import events_of, messages_of
from apps.memory_api.reflection.transcripts.run import (
    APPLY,
    CITED,
    COUNTS_WITH,
    TRANSCRIPT,
    reflect_transcript,
)
from apps.memory_api.reflection.transcripts.wire import TranscriptIn, TranscriptReflection
from apps.memory_api.runtime import Runtime
from apps.memory_api.tenants.identity import Identity
from apps.memory_api.traces.ingest import content_hash
from apps.memory_api.traces.queries import find_external
from apps.memory_api.traces.schemas import TraceIn

router = APIRouter(prefix="/api/v1/transcripts", tags=["reflections"], route_class=ApiRoute)

REFLECT = {
    "messages": [
        {"role": "user", "content": "Add a field for the phone number to the form."},
        {
            "role": "assistant",
            "content": "Forms are described in forms.yaml [ctx-00002]; I add it.",
        },
        {"role": "user", "content": "It is there, thank you."},
    ],
    "playbook": "coding",
}


@router.post("/reflect", responses=ACCEPTED, openapi_extra=example(REFLECT))
async def reflect(
    body: TranscriptIn,
    runtime: RuntimeDep,
    caller: Writer,
    cleaned: Cleaned,
    apply: Annotated[bool | None, Query(description="As in the body.")] = None,
    prefer: Annotated[str, Header(description="`respond-async`: answer 202 at once.")] = "",
) -> TranscriptReflection:
    """Reflect on a session: what went well and badly, and what it shows of the playbook's bullets.

    Cited bullets guide it; without citations it goes by content. The tags are counted once for a
    session, however often it is sent, and also when it has grown (with a `session_id`). When the
    model fails the answer is empty, and the failed run holds the cause.
    """
    if not runtime.settings.reflective_memory_enabled:
        raise Conflict("Reflection is switched off (REFLECTIVE_MEMORY_ENABLED).")
    project_id = caller.project(body.project_id)
    wait = "respond-async" not in prefer.lower()
    asked = {APPLY: body.apply if apply is None else apply, CITED: body.cited_ids}
    trace = await _named(runtime, caller, project_id, body)
    begun = await begin(
        runtime,
        caller.tenant_id,
        trace,
        project_id,
        TRANSCRIPT,
        asked,
        wait=wait,
        settles=lambda run: run.input[APPLY] or not asked[APPLY],
    )
    if begun.known and begun.run.state == "done":
        answer = TranscriptReflection.model_validate(begun.run.result)
        return answer.model_copy(update={"duplicate": True, "cleaned": cleaned})
    if begun.known or not wait:
        return cast(
            TranscriptReflection, later(begun.run.id, begun.trace_id, begun.run.state, cleaned)
        )
    try:
        answer = await attend(runtime, begun.run, reflect_transcript)
    except LLMError as error:
        if runtime.settings.on_model_failure == "fail":
            raise
        answer = _nothing(body, begun, error)
    return answer.model_copy(update={"cleaned": cleaned})


async def _named(
    runtime: Runtime, caller: Identity, project_id: str, body: TranscriptIn
) -> TraceIn:
    """The session as a trace, known by what is in it; with a session_id by that and how it began,
    so that what is sent again after the session has grown counts with what was sent before.
    """
    trace = trace_of(body)
    if body.external_id is not None:
        return trace
    content = identity(TRANSCRIPT, trace.model_dump(mode="json", exclude={"tenant_id"}))
    if body.session_id is None:
        return trace.model_copy(update={"external_id": content})
    opening = trace.events[0].content
    name = identity(TRANSCRIPT, [body.session_id, body.playbook, opening])
    first = trace.model_copy(update={"external_id": name})
    async with runtime.sessions.tenant(caller.tenant_id) as session:
        known = await find_external(session, project_id, name)
    if known is None or known.content_hash == content_hash(first):
        return first
    grown = {"external_id": content, "metadata": {COUNTS_WITH: str(known.id)}}
    return trace.model_copy(update=grown)


def trace_of(body: TranscriptIn) -> TraceIn:
    """Raises `Invalid` when there is no message in it."""
    events = events_of(messages_of(body.messages))
    if not events:
        raise Invalid("There is no message of a known role with text in it.", field="messages")
    return TraceIn(
        project_id=None,
        external_id=body.external_id,
        task_key=body.task_key,
        playbook=body.playbook,
        session_id=body.session_id,
        task_description=body.task_description,
        outcome=body.outcome,
        used_keys=body.cited_ids or [],
        render_id=body.render_id,
        events=events,
    )


def _nothing(body: TranscriptIn, begun: Begun, error: LLMError) -> TranscriptReflection:
    """Spec 4's answer when the model fails."""
    cited = body.cited_ids
    return TranscriptReflection(
        analysis="",
        bullet_tags=[],
        cited_ids=extract_cited_ids(messages_of(body.messages)) if cited is None else cited,
        run_id=begun.run.id,
        trace_id=begun.trace_id,
        degraded=True,
        error=Failed(code=error.code, message=error.detail),
    )
