"""Traces on the wire: one agent run as an ordered list of events (DESIGN section 3, spec 5 "Data
Models").
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, cast
from uuid import UUID

from pydantic import (
    AliasChoices,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from apps.memory_api.core.openapi import shown
from apps.memory_api.core.schemas import (
    MAX_EVENTS,
    Body,
    Metadata,
    Model,
    Name,
    PlaybookName,
    TenantBody,
    Time,
)
from apps.memory_api.traces import examples

Reflect = Literal["auto", "always", "never"]
"""auto: failure, error, timeout and partial always; success in full mode or after a failed attempt
of the task.
"""


def fold_unknown(data: Any, names: frozenset[str]) -> Any:
    """Move what a body has beside `names` into its `metadata`, so that nothing sent is lost. A
    `metadata` of null is none.
    """
    if not isinstance(data, dict):
        return data
    body = cast(dict[str, Any], data)
    given = body.get("metadata", {})
    if given is not None and body.keys() <= names:
        return body
    if not isinstance(given, dict | None):
        return body
    rest = {key: value for key, value in body.items() if key not in names}
    known = {key: value for key, value in body.items() if key in names}
    return known | {"metadata": rest | cast(dict[str, Any], given or {})}


class EventType(StrEnum):
    TOOL_CALL = "tool_call"
    TOOL_RESPONSE = "tool_response"
    LLM_CALL = "llm_call"
    LLM_RESPONSE = "llm_response"
    USER_MESSAGE = "user_message"
    SYSTEM_EVENT = "system_event"
    ERROR_EVENT = "error_event"

    @classmethod
    def _missing_(cls, value: object) -> EventType | None:
        return cls.USER_MESSAGE if value == "user_input" else None


class OutcomeType(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    PARTIAL = "partial"
    TIMEOUT = "timeout"
    ERROR = "error"


class ErrorCategory(StrEnum):
    TOOL_ERROR = "tool_error"
    TIMEOUT_ERROR = "timeout_error"
    VALIDATION_ERROR = "validation_error"
    LLM_ERROR = "llm_error"
    NETWORK_ERROR = "network_error"
    PERMISSION_ERROR = "permission_error"
    UNKNOWN_ERROR = "unknown_error"


class ErrorInfo(Body):
    """Why a run failed. Both spellings of the documents are accepted: `category` or
    `error_category`,
    `message` or `error_message`; a bare string is a message. Unknown keys are kept in `context`."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    error_category: ErrorCategory = Field(
        ErrorCategory.UNKNOWN_ERROR, validation_alias=AliasChoices("error_category", "category")
    )
    error_message: str = Field("", validation_alias=AliasChoices("error_message", "message"))
    context: Metadata = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _lenient(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"error_message": data}
        if not isinstance(data, dict):
            return data
        body = cast(dict[str, Any], data)
        given = body.get("context")
        rest = {key: value for key, value in body.items() if key not in _ERROR_NAMES}
        if not rest or not isinstance(given, dict | None):
            return body
        known = {key: value for key, value in body.items() if key in _ERROR_NAMES}
        return known | {"context": rest | cast(dict[str, Any], given or {})}


_ERROR_NAMES = frozenset({"error_category", "category", "error_message", "message", "context"})


class Event(Body):
    """One step of a run. Order is the order given; unknown fields are kept in `metadata`."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    event_id: Name | None = None
    event_type: EventType
    content: str = ""
    timestamp: Time | None = None
    metadata: Metadata = Field(default_factory=dict)
    tool_name: Name | None = None
    error: Metadata | None = None
    agent: Name | None = None

    @model_validator(mode="before")
    @classmethod
    def _lenient(cls, data: Any) -> Any:
        body = fold_unknown(data, _EVENT_NAMES)
        if isinstance(body, dict) and isinstance(error := cast(Any, body).get("error"), str):
            return cast(dict[str, Any], body) | {"error": {"message": error} if error else None}
        return cast(Any, body)


_EVENT_NAMES = frozenset(Event.model_fields)


class TraceIn(TenantBody):
    """One agent run as it is sent. Lines of `data/traces.jsonl` are accepted as they are; unknown
    fields are kept in
    `metadata`."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    project_id: Name | None = Field(None, validation_alias=AliasChoices("project_id", "project"))
    external_id: Name | None = Field(None, validation_alias=AliasChoices("external_id", "id"))
    task_key: Name | None = Field(None, validation_alias=AliasChoices("task_key", "group"))
    playbook: PlaybookName | None = Field(
        None, validation_alias=AliasChoices("playbook", "dataset")
    )
    parent_id: UUID | None = None
    session_id: Name | None = None
    task_description: str | None = None
    task_goal: str | None = None
    outcome: OutcomeType | None = None
    state: Literal["open", "closed"] = "closed"
    error: ErrorInfo | None = None
    query: str | None = None
    generated_answer: str | None = None
    reasoning_steps: list[str] = Field(default_factory=list, max_length=MAX_EVENTS)
    ground_truth: Any = None
    test_report: str | None = None
    used_keys: list[Name] = Field(
        default_factory=list,
        max_length=1000,
        validation_alias=AliasChoices("used_keys", "used_bullet_ids"),
    )
    render_id: UUID | None = None
    related_memory_ids: list[UUID] = Field(default_factory=list, max_length=1000)
    language: Name | None = None
    metadata: Metadata = Field(default_factory=dict)
    events: list[Event] = Field(default_factory=list, max_length=MAX_EVENTS, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _keep_unknown(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        unused = {alias for alias, name in _TRACE_ALIASES.items() if name in data}
        return fold_unknown(data, _TRACE_NAMES - unused)

    @field_validator("events")
    @classmethod
    def _closed_means_something_happened(
        cls, events: list[Event], info: ValidationInfo
    ) -> list[Event]:
        if not events and info.data.get("state") == "closed":
            raise ValueError("a closed trace needs at least one event")
        return events


_TRACE_ALIASES = {
    "project": "project_id",
    "id": "external_id",
    "group": "task_key",
    "dataset": "playbook",
    "used_bullet_ids": "used_keys",
}
_TRACE_NAMES = frozenset(TraceIn.model_fields) | _TRACE_ALIASES.keys()


class EventsIn(TenantBody):
    """More events of an open trace, in order."""

    events: list[Event] = Field(min_length=1, max_length=MAX_EVENTS)


class OutcomeIn(TenantBody):
    """How a run turned out, when that is known later."""

    outcome: OutcomeType
    error: ErrorInfo | None = None
    ground_truth: Any = None
    test_report: str | None = None
    reflect: Reflect = "auto"


class CloseIn(TenantBody):
    """The end of an open trace."""

    outcome: OutcomeType | None = None
    error: ErrorInfo | None = None
    reflect: Reflect = "auto"


class TraceAccepted(Model):
    """What became of a trace that was sent. `run_id` is the reflection on it, null when none was
    asked for.
    """

    trace_id: UUID
    run_id: UUID | None = None
    duplicate: bool = False
    cleaned: bool = False
    line: int | None = None


class LineRefused(Model):
    """A line of an NDJSON body that was not stored."""

    line: int
    error: Metadata


class BatchAnswer(Model):
    """One answer a line, in order: stored lines and refused ones."""

    items: list[TraceAccepted | LineRefused]
    stored: int
    duplicates: int
    refused: int


class EventView(Model):
    seq: int
    event_id: str
    event_type: str
    content: str
    timestamp: Time | None
    metadata: Metadata
    tool_name: str | None
    error: Any
    agent: str | None


class TraceView(Model):
    """A trace as it is listed."""

    model_config = shown(examples.TRACE)

    id: UUID
    project_id: str
    external_id: str | None
    task_key: str | None
    session_id: str | None
    playbook: str | None
    task_description: str | None
    task_goal: str | None
    outcome: str | None
    state: str
    error: Any
    language: str | None
    used_keys: list[str]
    metadata: Metadata
    event_count: int
    same_as: UUID | None
    created_at: Time
    closed_at: Time | None


class TraceGrown(TraceView):
    """An open trace with more events; `cleaned` when something in them could not be stored as it
    came.
    """

    model_config = shown(examples.GROWN)

    cleaned: bool = False


class TraceDetail(TraceView):
    """A trace with its events, its answer and its evidence."""

    model_config = shown(examples.WHOLE)

    query: str | None
    generated_answer: str | None
    reasoning_steps: Any
    ground_truth: Any
    test_report: str | None
    events: list[EventView]
