"""Records one agent run: `with trace("refund an order", playbook="support") as t: …`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, Self, Unpack
from uuid import uuid4

from hansei.endpoints.bullets import RenderPlaybookOptions, RenderPlaybookResponse
from hansei.errors import HanseiError, NotFound
from hansei.recording.encoding import MAX_CONTENT_CHARACTERS, to_json, to_text
from hansei.recording.recorder import Recorder, default_recorder
from hansei.types import OutcomeType, ReflectMode

log = logging.getLogger("hansei")

Role = Literal["user", "assistant", "system", "developer", "tool"]
_EVENT_TYPES: Mapping[str, str] = {
    "user": "user_message",
    "assistant": "llm_response",
    "system": "system_event",
    "developer": "system_event",
    "tool": "tool_response",
}
_STOPPED_BY_USER = (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
_current: ContextVar[RecordedTrace | None] = ContextVar("hansei_trace", default=None)
_UNKNOWN: Any = object()


class RecordedTrace:
    """A trace that is being recorded. After its start, no method raises or waits for the service,
    except `render` and `arender`, which wait up to 5 seconds.
    """

    def __init__(
        self, recorder: Recorder | None, fields: Mapping[str, Any], reflect: ReflectMode
    ) -> None:
        self.external_id = f"sdk-{uuid4().hex}"
        self.task = str(fields.get("task_description") or "")
        self.playbook: str | None = fields.get("playbook")
        self.retrieval_id: str | None = None
        self._recorder = recorder
        self._project_id: str | None = fields.get("project_id")
        self._outcome: OutcomeType | None = "success"
        self._token: Token[RecordedTrace | None] | None = None
        self._call_count = 0
        self._has_ended = False
        self._pid = os.getpid()
        self.update(external_id=self.external_id, _reflect=reflect, **fields)

    def message(
        self, role: Role, content: object, *, agent: str | None = None, **metadata: Any
    ) -> None:
        """Record what the user, the model (`assistant`) or the program (`system`) wrote."""
        kind = _EVENT_TYPES.get(role, "system_event")
        self.event(kind, content, agent=agent, metadata=metadata)

    def tool_call(
        self,
        name: str,
        arguments: object = None,
        *,
        result: object = _UNKNOWN,
        error: object = None,
        call_id: str | None = None,
        agent: str | None = None,
    ) -> ToolCall:
        """Record a call of a tool, and its result or error if they are known. Otherwise, report
        them with the methods of the returned call.
        """
        self._call_count += 1
        call = ToolCall(self, name, call_id or f"call-{self._call_count}", agent)
        metadata = {"call_id": call.call_id}
        self.event("tool_call", arguments, tool_name=name, agent=agent, metadata=metadata)
        if error is not None:
            call.fail(error)
        elif result is not _UNKNOWN:
            call.respond(result)
        return call

    def error(self, error: object, *, agent: str | None = None) -> None:
        """Record an error that is no result of a tool."""
        text = describe_error(error)
        self.event("error_event", text, error={"message": text}, agent=agent)

    def event(
        self,
        event_type: str,
        content: object = "",
        *,
        tool_name: str | None = None,
        error: Mapping[str, Any] | None = None,
        agent: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Record an event of any type (docs/events.md)."""
        recorder = self._recorder
        if recorder is None or self._has_ended or self._is_parents():
            return
        text = to_text(content)
        event: dict[str, Any] = {"event_type": event_type, "content": text}
        if len(text) > MAX_CONTENT_CHARACTERS:
            event["content"] = text[:MAX_CONTENT_CHARACTERS]
            cut = len(text) - MAX_CONTENT_CHARACTERS
            metadata = {**(metadata or {}), "truncated_characters": cut}
        event["timestamp"] = datetime.now(UTC).isoformat()
        if tool_name:
            event["tool_name"] = str(tool_name)[:128]
        if error:
            event["error"] = error
        if agent:
            event["agent"] = str(agent)[:128]
        if metadata:
            event["metadata"] = metadata
        recorder.add(self.external_id, f"E{to_json(event)}\n")

    def update(self, **fields: Any) -> None:
        """Set fields of the trace, such as `generated_answer`, `ground_truth` or `task_key`."""
        self._add_fields(fields)

    def set_outcome(self, outcome: OutcomeType | None, error: object = None) -> None:
        """How the agent run ended. Without it, `success` if the block ends without an exception.
        None means that it is not known yet.
        """
        self._outcome = outcome
        if error is not None:
            self.update(error={"error_message": describe_error(error)})

    def render(self, query: str | None = None, **options: Unpack[RenderPlaybookOptions]) -> str:
        """The prompt block of the playbook for the task, or for `query`. "" without a playbook,
        if it does not exist yet, and if the service is unavailable. The trace gets its
        `retrieval_id`.
        """
        if self._recorder is None or self.playbook is None:
            return ""
        options.setdefault("project_id", self._project_id)
        text = self.task if query is None else query
        try:
            block = self._recorder.client.render_playbook(self.playbook, text, **options)
        except NotFound:
            return ""  # nothing was learned yet
        except HanseiError as error:
            log.warning("The agent runs without its playbook. %s", error.detail)
            return ""
        return self._join(block)

    async def arender(
        self, query: str | None = None, **options: Unpack[RenderPlaybookOptions]
    ) -> str:
        """`render` for asyncio."""
        return await asyncio.to_thread(self.render, query, **options)

    def _join(self, block: RenderPlaybookResponse) -> str:
        self.retrieval_id = block["retrieval_id"]
        self.update(retrieval_id=self.retrieval_id)
        return block["text"]

    def _add_fields(self, fields: Mapping[str, Any], *, is_last: bool = False) -> None:
        if self._recorder is None or self._has_ended or self._is_parents():
            return
        self._has_ended = is_last
        self._recorder.add(self.external_id, f"T{to_json(fields)}\n", is_last=is_last)

    def _is_parents(self) -> bool:
        """Whether this is a forked child: the trace belongs to the process that began it."""
        return os.getpid() != self._pid

    def _end(self, error: BaseException | None) -> None:
        fields: dict[str, Any] = {"outcome": self._outcome}
        if isinstance(error, _STOPPED_BY_USER):
            fields = {"outcome": None, "metadata": {"stopped_by": type(error).__name__}}
        elif error is not None and not _is_normal_exit(error):
            self.error(error)
            is_timeout = isinstance(error, TimeoutError)
            fields["outcome"] = "timeout" if is_timeout else "error"
            message = describe_error(error)
            fields["error"] = {"error_message": message, "exception": type(error).__name__}
        self._add_fields(fields, is_last=True)

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(error)
        if self._token is not None:
            try:
                _current.reset(self._token)
            except ValueError:  # another context, as in an asynchronous generator
                _current.set(None)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)


class ToolCall:
    """A recorded call that waits for its result. In a `with` block, an exception is its error."""

    def __init__(self, trace: RecordedTrace, name: str, call_id: str, agent: str | None) -> None:
        self.name = name
        self.call_id = call_id
        self._trace = trace
        self._agent = agent
        self._has_response = False

    def respond(self, result: object) -> None:
        """Record the result."""
        self._respond(result, None)

    def fail(self, error: object) -> None:
        """Record an error instead of a result."""
        message = describe_error(error)
        self._respond(message, {"message": message})

    def _respond(self, result: object, error: Mapping[str, Any] | None) -> None:
        if self._has_response:
            return
        self._has_response = True
        self._trace.event(
            "tool_response",
            result,
            tool_name=self.name,
            error=error,
            agent=self._agent,
            metadata={"call_id": self.call_id},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.fail(error)
        else:
            self.respond(None)


def trace(
    task: str,
    *,
    playbook: str | None = None,
    project_id: str | None = None,
    task_key: str | None = None,
    session_id: str | None = None,
    reflect: ReflectMode = "auto",
    recorder: Recorder | None = None,
    **fields: Any,
) -> RecordedTrace:
    """Record an agent run. Use it in a `with` or `async with` block.

    The trace is sent in the background when the block ends. Its outcome is `success`, `error` after
    an exception or `timeout` after a `TimeoutError`, unless `set_outcome` states another one.
    `fields` are other fields of a trace, such as `query`, `tools` or `metadata`. Without a
    configured service, nothing is recorded and the block runs as usual.
    """
    named = {
        "task_description": to_text(task),
        "playbook": playbook,
        "project_id": project_id,
        "task_key": task_key,
        "session_id": session_id,
    }
    outer = _current.get()
    if outer is not None:
        metadata = {"parent_external_id": outer.external_id} | dict(fields.get("metadata") or {})
        fields["metadata"] = metadata
    given = {name: value for name, value in named.items() if value is not None}
    return RecordedTrace(recorder or default_recorder(), given | fields, reflect)


def current_trace() -> RecordedTrace | None:
    """The trace of the innermost block that runs in this thread or task."""
    return _current.get()


def describe_error(error: object) -> str:
    """The type and the message of an exception, otherwise the value as text."""
    if not isinstance(error, BaseException):
        return to_text(error)
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _is_normal_exit(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and error.code in (None, 0)
