"""Records agent runs of the OpenAI Agents SDK (extra `hansei[openai-agents]`).

add_trace_processor(HanseiTracingProcessor(playbook="support"))
Runner.run_sync(agent, "Please refund order W2378156.")
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from hansei.integrations.conversation import Conversation
from hansei.integrations.extras import needs_extra
from hansei.models import ReflectMode
from hansei.recording.recorder import Recorder, default_recorder
from hansei.recording.trace import RecordedTrace, current_trace, trace

try:
    from agents.tracing import Span, SpanError, Trace, TracingProcessor
except ModuleNotFoundError as error:
    raise needs_extra("openai-agents", error) from None

log = logging.getLogger("hansei")

DEFAULT_WORKFLOW_NAME = "Agent workflow"
"""The name that the Agents SDK gives a trace without a name of its own."""
FLUSH_SECONDS = 5.0


@dataclass
class _Run:
    """One trace of the Agents SDK. `is_own`: the processor started it and ends it."""

    recorded: RecordedTrace
    is_own: bool
    needs_task: bool
    conversation: Conversation = field(default_factory=Conversation)


class HanseiTracingProcessor(TracingProcessor):
    """Records each trace of the Agents SDK: messages, tool calls, handoffs and errors. Inside a
    `hansei.trace` block the events are part of that trace. Never raises into the agent.
    """

    def __init__(
        self,
        *,
        playbook: str | None = None,
        project_id: str | None = None,
        reflect: ReflectMode = "auto",
        recorder: Recorder | None = None,
    ) -> None:
        self._playbook = playbook
        self._project_id = project_id
        self._reflect: ReflectMode = reflect
        self._recorder = recorder
        self._runs: dict[str, _Run] = {}

    def on_trace_start(self, trace: Trace) -> None:
        try:
            self._runs[trace.trace_id] = self._start(trace)
        except Exception as error:
            log.warning("A trace of the Agents SDK is not recorded: %r", error)

    def on_trace_end(self, trace: Trace) -> None:
        run = self._runs.pop(trace.trace_id, None)
        if run is not None and run.is_own:
            run.recorded.__exit__(None, None, None)

    def on_span_start(self, span: Span[Any]) -> None:
        """A span is recorded when it ends, with its result."""

    def on_span_end(self, span: Span[Any]) -> None:
        run = self._runs.get(span.trace_id)
        if run is None:
            return
        try:
            _record_span(run, span)
        except Exception as error:
            log.warning("A span of the Agents SDK is not recorded: %r", error)

    def force_flush(self) -> None:
        recorder = self._recorder or default_recorder()
        if recorder is not None:
            recorder.flush(FLUSH_SECONDS)

    def shutdown(self) -> None:
        """The recorder sends at the end of the process what is left."""

    def _start(self, started: Trace) -> _Run:
        outer = current_trace()
        if outer is not None:
            return _Run(outer, is_own=False, needs_task=False)
        recorded = trace(
            started.name,
            playbook=self._playbook,
            project_id=self._project_id,
            session_id=getattr(started, "group_id", None),
            reflect=self._reflect,
            recorder=self._recorder,
            metadata={"openai_trace_id": started.trace_id},
        )
        return _Run(recorded, is_own=True, needs_task=started.name == DEFAULT_WORKFLOW_NAME)


def _record_span(run: _Run, span: Span[Any]) -> None:
    data, error = span.span_data, span.error
    if data.type == "response":
        _record_response(run, data)
    elif data.type == "generation":
        _record_messages(run, data.input or (), data.output or (), data.model)
    elif data.type == "function":
        # The output is what the model receives.
        message = None if error is None else data.output or _describe(error)
        run.recorded.tool_call(
            data.name, data.input, result=data.output, error=message, call_id=span.span_id
        )
    elif data.type == "handoff":
        content = f"Handoff from {data.from_agent} to {data.to_agent}"
        run.recorded.event("system_event", content, agent=data.from_agent)
    elif data.type == "guardrail" and data.triggered:
        run.recorded.error(f"The guardrail {data.name} stopped the agent.")
    if error is not None:
        _record_error(run, data.type, _describe(error))


def _record_error(run: _Run, kind: str, message: str) -> None:
    """The error of a function is its result. After the error of a model call, the agent may try
    again.
    """
    if kind in ("response", "generation", "agent"):
        run.recorded.error(message)
    if kind == "agent" and run.is_own:
        run.recorded.set_outcome("error", message)


def _record_response(run: _Run, data: Any) -> None:
    response = data.response
    is_text = isinstance(data.input, str)
    inputs: list[Any] = (
        [{"role": "user", "content": data.input}] if is_text else list(data.input or ())
    )
    instructions = getattr(response, "instructions", None)
    if isinstance(instructions, str):
        inputs.insert(0, {"role": "system", "content": instructions})
    outputs = list(response.output) if response is not None else []
    _record_messages(run, inputs, outputs, getattr(response, "model", ""))


def _record_messages(run: _Run, inputs: Iterable[Any], outputs: Iterable[Any], model: Any) -> None:
    """Tools are left to the spans of functions, which know the errors."""
    messages = list(inputs)
    if run.needs_task and (task := _find_task(messages)):
        run.needs_task = False
        run.recorded.update(task_description=task)
    run.conversation.record(
        run.recorded, messages, outputs, model=str(model or ""), records_tools=False
    )


def _find_task(messages: Iterable[Any]) -> str | None:
    """The text of the first user message."""
    for message in messages:
        fields = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
        if fields.get("role") == "user":
            content = fields.get("content")
            return content if isinstance(content, str) else None
    return None


def _describe(error: SpanError) -> str:
    """The message and the details of a span's error."""
    details = (error.get("data") or {}).get("error")
    return f"{error['message']}: {details}" if details else str(error["message"])
