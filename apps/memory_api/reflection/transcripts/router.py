"""Reflection on transcripts over HTTP (spec 4)."""

from __future__ import annotations

from fastapi import APIRouter

from memory_api.api.deps import PreferHeader, RuntimeDep, Sanitized, Writer
from memory_api.api.problems import problems
from memory_api.api.route import LargeBodyRoute
from memory_api.auth.identity import Identity
from memory_api.core.errors import InvalidRequest
from memory_api.core.schemas import body_example
from memory_api.llm.errors import LLMError
from memory_api.playbooks.citations import extract_cited_ids
from memory_api.reflection.foreground import (
    ACCEPTED_RESPONSES,
    ForegroundReflection,
    reflect_in_foreground,
)
from memory_api.reflection.pipeline import LearningStep
from memory_api.reflection.schemas import ModelFailure
from memory_api.reflection.transcripts.schemas import (
    ReflectOnTranscriptRequest,
    ReflectOnTranscriptResponse,
)
from memory_api.reflection.transcripts.step import (
    CITED_IDS,
    FIRST_TRACE_ID,
    RECORD_VERDICTS,
    TRANSCRIPT,
    TranscriptLearner,
)
from memory_api.runtime import Runtime
from memory_api.traces.importers.messages import messages_to_events
from memory_api.traces.importers.session_lines import parse_messages
from memory_api.traces.intake import StartedRun
from memory_api.traces.queries import get_trace_by_external_id
from memory_api.traces.schemas import CreateTraceRequest
from memory_api.traces.storage import content_external_id, content_hash

router = APIRouter(prefix="/api/v1/transcripts", tags=["reflections"], route_class=LargeBodyRoute)

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


@router.post(
    "/reflect",
    summary="Reflect on a transcript",
    responses=ACCEPTED_RESPONSES
    | problems("budget_spent", "price_unknown", 409, "queue_full", 502, "llm_paused", 504),
    openapi_extra=body_example(REFLECT),
)
async def reflect_on_transcript(
    body: ReflectOnTranscriptRequest,
    runtime: RuntimeDep,
    caller: Writer,
    sanitized: Sanitized,
    prefer: PreferHeader = "",
) -> ReflectOnTranscriptResponse:
    """Returns what went well or badly in a session, and a tag for each bullet that it used.

    Uses the citations in the messages; without citations, the content. A session counts once, also
    if it is sent again after it has grown (with a `session_id`). If the model fails, the analysis
    is empty and the failed run has the cause.
    """
    request = ForegroundReflection(
        await _with_external_id(runtime, caller, body),
        LearningStep(TranscriptLearner()),
        ReflectOnTranscriptResponse,
        prefer,
        sanitized,
        input={RECORD_VERDICTS: body.record_verdicts, CITED_IDS: body.cited_ids},
        is_answered_by=lambda run: run.input[RECORD_VERDICTS] or not body.record_verdicts,
        empty_response=lambda started, error: _empty_response(body, started, error),
    )
    return await reflect_in_foreground(runtime, caller, request)


async def _with_external_id(
    runtime: Runtime, caller: Identity, body: ReflectOnTranscriptRequest
) -> CreateTraceRequest:
    """The transcript as a trace with an external_id.

    If the client gives none, it is derived: from the session_id and the first message, or from the
    content without a session_id. A session that was sent before and has grown is a trace of its
    own, whose verdicts are counted for the first one.
    """
    trace = transcript_to_trace(body)
    if body.external_id is not None:
        return trace
    content = trace.model_dump(mode="json", exclude={"tenant_id", "project_id"})
    content_id = content_external_id(TRANSCRIPT, content)
    if body.session_id is None:
        return trace.model_copy(update={"external_id": content_id})
    first_message = trace.events[0].content
    session_id = content_external_id(TRANSCRIPT, [body.session_id, body.playbook, first_message])
    first = trace.model_copy(update={"external_id": session_id})
    project_id = caller.resolve_project(body.project_id)
    async with runtime.sessions.for_tenant(caller.tenant_id) as session:
        known = await get_trace_by_external_id(session, project_id, session_id)
    if known is None or known.content_hash == content_hash(first):
        return first
    metadata = {FIRST_TRACE_ID: str(known.id)}
    return trace.model_copy(update={"external_id": content_id, "metadata": metadata})


def transcript_to_trace(body: ReflectOnTranscriptRequest) -> CreateTraceRequest:
    """Raises `InvalidRequest` if no message has text."""
    events = messages_to_events(parse_messages(body.messages))
    if not events:
        raise InvalidRequest(
            "`messages` contains no text by a user, an assistant, a tool or the system.",
            field="messages",
        )
    return CreateTraceRequest(
        project_id=body.project_id,
        external_id=body.external_id,
        task_key=body.task_key,
        playbook=body.playbook,
        session_id=body.session_id,
        task_description=body.task_description,
        outcome=body.outcome,
        used_bullet_keys=body.cited_ids or [],
        retrieval_id=body.retrieval_id,
        tools=body.tools,
        events=events,
    )


def _empty_response(
    body: ReflectOnTranscriptRequest, started: StartedRun, error: LLMError
) -> ReflectOnTranscriptResponse:
    """The answer that S4 asks for when the model fails."""
    cited = body.cited_ids
    return ReflectOnTranscriptResponse(
        analysis="",
        bullet_tags=[],
        cited_ids=extract_cited_ids(parse_messages(body.messages)) if cited is None else cited,
        run_id=started.run.id,
        trace_id=started.trace_id,
        degraded=True,
        error=ModelFailure(code=error.code, message=error.detail),
    )
