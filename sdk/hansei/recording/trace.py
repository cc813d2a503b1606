"""Records one agent run: `with trace("refund an order", playbook="support") as t: …`."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack
from uuid import uuid4

from hansei._request import Id
from hansei.models import EventType, OutcomeType, ReflectMode
from hansei.recording.advice import RenderOptions
from hansei.recording.checks import (
    EVENT_TYPES_OF_ROLES,
    Role,
    check_event_type,
    check_fields,
    check_render_options,
    check_role,
)
from hansei.recording.encoding import MAX_CONTENT_CHARACTERS, to_json, to_text
from hansei.recording.recorder import Recorder, default_recorder

log = logging.getLogger("hansei")

_STOPPED_BY_USER = (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
_current: ContextVar[RecordedTrace | None] = ContextVar("hansei_trace", default=None)
_UNKNOWN: Any = object()
_open_ids: set[str] = set()
_has_warned = False
P = ParamSpec("P")
R = TypeVar("R")


class RecordedTrace:
    """A trace that is being recorded. No method raises because of the service or waits for it,
    except `render` and `arender`, which wait up to one second. A wrong argument is an error.
    """

    def __init__(
        self, recorder: Recorder | None, fields: Mapping[str, Any], reflect: ReflectMode
    ) -> None:
        self._name = f"sdk-{uuid4().hex}"
        """Names the lines of this trace in the spool."""
        self.external_id = str(fields.get("external_id") or self._name)
        self.task = str(fields.get("task_description") or "")
        self.playbook: str | None = fields.get("playbook")
        self.retrieval_id: str | None = None
        self._recorder = recorder
        self._project_id: str | None = fields.get("project_id")
        self._session_id: str | None = fields.get("session_id")
        self._outcome: OutcomeType | None = None
        self._token: Token[RecordedTrace | None] | None = None
        self._call_count = 0
        self._has_ended = False
        self._pid = os.getpid()
        self._is_recorded = recorder is not None and recorder.options.is_sampled()
        self._set({**fields, "external_id": self.external_id, "_reflect": reflect})

    def message(
        self, role: Role, content: object, *, agent: str | None = None, **metadata: Any
    ) -> None:
        """Record what the user, the model (`assistant`) or the program (`system`) wrote."""
        check_role(role)
        self.event(EVENT_TYPES_OF_ROLES[role], content, agent=agent, metadata=metadata)

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
        event_type: EventType,
        content: object = "",
        *,
        tool_name: str | None = None,
        error: Mapping[str, Any] | None = None,
        agent: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Record an event of any type (docs/events.md)."""
        check_event_type(event_type)
        recorder = self._recorder
        if recorder is None or not self._takes_more():
            return
        text = recorder.options.mask_text(to_text(content))
        event: dict[str, Any] = {"event_type": event_type, "content": text}
        if len(text) > MAX_CONTENT_CHARACTERS:
            event["content"] = text[:MAX_CONTENT_CHARACTERS]
            cut = len(text) - MAX_CONTENT_CHARACTERS
            metadata = {**(metadata or {}), "truncated_characters": cut}
        event["timestamp"] = datetime.now(UTC).isoformat()
        if tool_name:
            event["tool_name"] = str(tool_name)[:128]
        if error:
            event["error"] = recorder.options.mask_fields(error)
        if agent:
            event["agent"] = str(agent)[:128]
        if metadata:
            event["metadata"] = recorder.options.mask_fields(metadata)
        recorder.add(self._name, f"E{to_json(event)}\n")

    def update(self, **fields: Any) -> None:
        """Set fields of the trace, such as `generated_answer`, `ground_truth` or `task_key`. Raises
        `TypeError` for a name that a trace does not have; data of your own goes into `metadata`.
        The `external_id` is that of `trace` and does not change.
        """
        if "external_id" in fields:
            raise TypeError("`update` cannot change `external_id`. Pass it to `hansei.trace`.")
        self._set(fields)

    def _set(self, fields: Mapping[str, Any]) -> None:
        check_fields(fields)
        self._outcome = fields.get("outcome", self._outcome)
        self._add_fields(fields)

    def set_outcome(self, outcome: OutcomeType | None, error: object = None) -> None:
        """State how the agent run ended. None takes a statement back: the outcome is unknown until
        `record_outcome` states it.
        """
        fields: dict[str, Any] = {"outcome": outcome}
        if error is not None:
            fields["error"] = {"error_message": describe_error(error)}
        self.update(**fields)

    def render(self, query: str | None = None, **options: Unpack[RenderOptions]) -> str:
        """The prompt block of the playbook for the task, or for `query`. "" without a playbook and
        before it has learned anything. If the service does not answer within a second, the last
        block that this process got. The trace gets its `retrieval_id`.
        """
        check_render_options(options)
        recorder, playbook = self._recorder, self.playbook
        if recorder is None or playbook is None:
            return ""
        options.setdefault("project_id", self._project_id)
        options.setdefault("session_id", self._session_id or self.external_id)
        text = self.task if query is None else query
        client = recorder.client
        block = recorder.advice.render(
            playbook, lambda: client.playbooks.render(playbook, text, **options)
        )
        if block.retrieval_id is not None:
            self.retrieval_id = block.retrieval_id
            self.update(retrieval_id=self.retrieval_id)
        return block.text

    async def arender(self, query: str | None = None, **options: Unpack[RenderOptions]) -> str:
        """`render` for asyncio."""
        return await asyncio.to_thread(self.render, query, **options)

    def _add_fields(self, fields: Mapping[str, Any], *, is_last: bool = False) -> None:
        recorder = self._recorder
        if recorder is None or not self._takes_more():
            return
        self._has_ended = is_last
        line = to_json(recorder.options.mask_fields(fields))
        recorder.add(self._name, f"T{line}\n", is_last=is_last)

    def _takes_more(self) -> bool:
        """False after its end, and in a forked child: the run belongs to who began it."""
        return self._is_recorded and not self._has_ended and os.getpid() == self._pid

    def _end(self, error: BaseException | None) -> None:
        fields: dict[str, Any] = {}
        if isinstance(error, _STOPPED_BY_USER):
            fields["metadata"] = {"stopped_by": type(error).__name__}
        elif error is not None and not _is_normal_exit(error):
            self.error(error)
            if self._outcome is None:
                fields["outcome"] = "timeout" if isinstance(error, TimeoutError) else "error"
                fields["error"] = {
                    "error_message": describe_error(error),
                    "context": {"exception": type(error).__name__},
                }
        self._add_fields(fields, is_last=True)

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        _open_ids.add(self._name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(error)
        _open_ids.discard(self._name)
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
    external_id: Id | None = None,
    reflect: ReflectMode = "auto",
    recorder: Recorder | None = None,
    **fields: Any,
) -> RecordedTrace:
    """Record an agent run. Use it in a `with` or `async with` block.

    The trace is sent in the background when the block ends. Its outcome is what `outcome=` or
    `set_outcome` states. Without a statement, an exception that leaves the block is the outcome
    `error`, a `TimeoutError` is `timeout`, and a block that ends normally has no outcome;
    `record_outcome` can state it later. `external_id` is your ID of this one run, by default a new
    one. `fields` are other fields of a trace, such as `query`, `tools` or `metadata`; another name
    raises `TypeError`. Without a configured service, nothing is recorded and the block runs as
    usual.
    """
    named = {
        "task_description": to_text(task),
        "playbook": playbook,
        "project_id": project_id,
        "task_key": task_key,
        "session_id": session_id,
        "external_id": external_id,
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


def with_trace(function: Callable[P, R]) -> Callable[P, R]:
    """The function, to be called in another thread as a part of the current trace:
    `executor.submit(hansei.with_trace(search), query)`. A thread of an executor does not know the
    trace otherwise.
    """
    outer = _current.get()

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _current.set(outer)
        try:
            return function(*args, **kwargs)
        finally:
            _current.reset(token)

    return call


def warn_outside_trace(tool_name: str) -> None:
    """Say once that a call is not recorded, if it runs in a thread while a trace is open."""
    global _has_warned
    if _has_warned or not _open_ids or threading.current_thread() is threading.main_thread():
        return
    _has_warned = True
    log.warning(
        "`%s` runs in a thread outside of any trace, so it is not recorded. "
        "Submit `hansei.with_trace(function)` to record it.",
        tool_name,
    )


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
