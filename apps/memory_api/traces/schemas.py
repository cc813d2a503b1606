"""Traces on the wire: one agent run as an ordered list of events (spec 5, "Data Models")."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from typing_extensions import TypeAliasType

from memory_api.core.schemas import (
    MAX_EVENTS,
    Metadata,
    Name,
    Page,
    PlaybookName,
    ProjectId,
    RequestModel,
    ResponseModel,
    RowMetadata,
    TenantRequest,
    UtcDatetime,
    with_examples,
)
from memory_api.traces.expected_results import ExpectationRequest
from memory_api.traces.tools import ToolDefinition, Tools

ReflectMode = TypeAliasType("ReflectMode", Literal["auto", "always", "never"])
"""auto: failure, error, timeout and partial always; success in full mode or after a failed attempt
at the task.
"""
TraceState = TypeAliasType("TraceState", Literal["open", "closed"])
TraceFormat = TypeAliasType(
    "TraceFormat",
    Literal[
        "auto", "hansei", "openai", "openai-responses", "anthropic", "claude-code", "codex", "otel",
        "langfuse", "langsmith", "tau-bench", "swe-agent",
    ],
)  # fmt: skip
"""The format of the records of a body."""
OwnData = Annotated[Metadata, BeforeValidator(lambda value: {} if value is None else value)]
"""Data of the client. Null means none."""

EXAMPLE_EVENTS: list[dict[str, Any]] = [
    {"event_type": "user_message", "content": "Where is order #W2378156?"},
    {"event_type": "tool_call", "tool_name": "get_order", "content": '{"order_id": "W2378156"}'},
    {"event_type": "tool_response", "tool_name": "get_order", "content": "Error: order not found",
     "error": "order not found"},
]  # fmt: skip
EXAMPLE_REQUEST: dict[str, Any] = {
    "external_id": "run-2026-11-21-0001", "task_key": "order-status", "outcome": "failure",
    "task_description": "Tell a customer where an order is",
    "tools": [{"name": "get_order", "description": "Look up an order by its ID", "writes": False}],
    "events": EXAMPLE_EVENTS,
}  # fmt: skip
EXAMPLE_TRACE: dict[str, Any] = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa04", "project_id": "default",
    "external_id": "run-2026-11-21-0001", "task_key": "order-status", "session_id": None,
    "playbook": None, "task_description": "Tell a customer where an order is", "task_goal": None,
    "outcome": "failure", "conflict": None, "state": "closed", "error": None, "language": None,
    "used_bullet_keys": [], "metadata": {}, "event_count": 1, "duplicate_of": None,
    "created_at": "2026-11-21T09:00:00Z", "closed_at": "2026-11-21T09:00:00Z",
}  # fmt: skip
EXAMPLE_EVENT: dict[str, Any] = {
    "seq": 0, "event_id": "e0000", "event_type": "tool_response", "tool_name": "get_order",
    "content": "Error: order not found", "error": {"message": "order not found"},
    "timestamp": "2026-11-21T09:00:00Z", "metadata": {}, "agent": "support",
}  # fmt: skip
EXAMPLE_TRACE_WITH_EVENTS: dict[str, Any] = EXAMPLE_TRACE | {
    "query": "Where is order #W2378156?", "generated_answer": None, "reasoning_steps": None,
    "ground_truth": None, "test_report": None, "tools": EXAMPLE_REQUEST["tools"],
    "events": [EXAMPLE_EVENT], "next_cursor": None,
}  # fmt: skip
EXAMPLE_UPDATED_TRACE: dict[str, Any] = EXAMPLE_TRACE | {
    "state": "open",
    "closed_at": None,
    "sanitized": False,
}


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


class ErrorInfo(RequestModel):
    """Why an agent run failed. A string is read as the message. `category` and `message` are
    accepted for `error_category` and `error_message`; your own data goes into `context`.
    """

    error_category: ErrorCategory = Field(
        default=ErrorCategory.UNKNOWN_ERROR,
        validation_alias=AliasChoices("error_category", "category"),
    )
    error_message: str = Field(
        default="", validation_alias=AliasChoices("error_message", "message")
    )
    context: Metadata = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, data: Any) -> Any:
        return {"error_message": data} if isinstance(data, str) else data


class Event(RequestModel):
    """One entry of a trace. The order of the list counts, not `timestamp`. Your own data goes into
    `metadata`.
    """

    event_id: Name | None = Field(
        default=None, description="Unique in the trace. Default: derived from its position."
    )
    event_type: EventType
    content: str = Field(
        default="", description="Text of a message, arguments or response of a tool."
    )
    timestamp: UtcDatetime | None = None
    metadata: OwnData = Field(default_factory=dict)
    tool_name: Name | None = None
    error: Metadata | None = Field(
        default=None, description='A string is read as `{"message": …}`.'
    )
    agent: Name | None = Field(default=None, description="Which agent, if several take part.")

    @field_validator("error", mode="before")
    @classmethod
    def _read_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"message": value} if value else None
        return value


class CreateTraceRequest(ExpectationRequest):
    """One agent run. A closed trace needs at least one event. Your own data goes into
    `metadata`.
    """

    project_id: ProjectId = None
    external_id: Name | None = Field(
        default=None,
        validation_alias=AliasChoices("external_id", "id"),
        description="Your ID of the trace, unique in the project. Makes sending it again safe.",
    )
    task_key: Name | None = Field(
        default=None,
        validation_alias=AliasChoices("task_key", "group"),
        description="Traces with the same key are attempts at one task and are compared.",
    )
    playbook: PlaybookName | None = Field(
        default=None,
        validation_alias=AliasChoices("playbook", "dataset"),
        description="The playbook that learns from this trace.",
    )
    parent_id: UUID | None = Field(
        default=None, description="The trace of the agent that started this one."
    )
    session_id: Name | None = Field(default=None, description="Groups traces of one session.")
    task_description: str | None = None
    task_goal: str | None = None
    outcome: OutcomeType | None = Field(default=None, description="Null if it is not known yet.")
    state: TraceState = Field(
        default="closed", description="Events can be appended to an open trace until it is closed."
    )
    error: ErrorInfo | None = None
    query: str | None = Field(default=None, description="What the agent was asked.")
    generated_answer: str | None = Field(default=None, description="The final answer of the agent.")
    reasoning_steps: list[str] = Field(default_factory=list, max_length=MAX_EVENTS)
    test_report: str | None = Field(
        default=None,
        description="JUnit XML of tests, which decides the outcome. Other output is quoted.",
    )
    used_bullet_keys: list[Name] = Field(
        default_factory=list,
        max_length=1000,
        validation_alias=AliasChoices("used_bullet_keys", "used_bullet_ids"),
        description="Keys of the bullets that the agent used.",
    )
    retrieval_id: UUID | None = Field(
        default=None, description="The search or render that gave the agent its bullets."
    )
    related_memory_ids: list[UUID] = Field(default_factory=list, max_length=1000)
    language: Name | None = Field(default=None, description="Language of the texts, such as `en`.")
    metadata: OwnData = Field(default_factory=dict)
    tools: Tools = Field(default_factory=list[ToolDefinition])
    events: list[Event] = Field(default_factory=list, max_length=MAX_EVENTS, validate_default=True)

    @field_validator("events")
    @classmethod
    def _check_closed_has_events(cls, events: list[Event], info: ValidationInfo) -> list[Event]:
        if not events and info.data.get("state") == "closed":
            raise ValueError("A closed trace needs at least one event")
        return events


class AppendEventsRequest(TenantRequest):
    """More events of an open trace, in order. `tools` are added to those of the trace."""

    events: list[Event] = Field(min_length=1, max_length=MAX_EVENTS)
    tools: Tools = Field(default_factory=list[ToolDefinition])


class RecordOutcomeRequest(ExpectationRequest):
    """The outcome of an agent run, recorded later. Without `ground_truth`, `match` is about the
    ground truth of the trace.
    """

    NEEDS_GROUND_TRUTH = False

    outcome: OutcomeType
    error: ErrorInfo | None = None
    test_report: str | None = None
    reflect: ReflectMode = "auto"


class CloseTraceRequest(TenantRequest):
    """The end of an open trace. Without `outcome`, a recorded outcome stays."""

    outcome: OutcomeType | None = None
    error: ErrorInfo | None = None
    reflect: ReflectMode = "auto"


class TraceReceipt(ResponseModel):
    """Confirms a stored trace."""

    trace_id: UUID
    run_id: UUID | None = Field(
        default=None, description="The first learning run; null if there is none."
    )
    duplicate: bool = Field(default=False, description="True if the trace was stored before.")
    sanitized: bool = Field(
        default=False, description="True if unstorable characters were replaced."
    )
    line: int | None = Field(default=None, description="Line of an NDJSON body, from 1.")


class RejectedLine(ResponseModel):
    """A line of an NDJSON body that was not stored."""

    line: int = Field(description="Line of the body, from 1.")
    error: Metadata = Field(description="`code`, `detail` and, if known, `field`.")


class CreateTracesResponse(ResponseModel):
    """The result of each line, in order."""

    items: list[TraceReceipt | RejectedLine]
    stored_count: int
    duplicate_count: int
    rejected_count: int


class TraceEvent(ResponseModel):
    """A stored event."""

    model_config = with_examples(EXAMPLE_EVENT)

    seq: int = Field(description="Position in the trace, from 0.")
    event_id: str
    event_type: str
    content: str
    timestamp: UtcDatetime | None
    metadata: RowMetadata
    tool_name: str | None
    error: Any
    agent: str | None


class OutcomeConflict(ResponseModel):
    """A check that the client declared contradicts the outcome that it reported."""

    reported: OutcomeType = Field(description="The outcome that the client reported.")
    check: OutcomeType = Field(
        description="The result of the check: `success` or `failure`. Learning uses it."
    )
    reasons: list[str] = Field(description="What the check found, with both texts.")


class Trace(ResponseModel):
    """A trace without its events."""

    model_config = with_examples(EXAMPLE_TRACE)

    id: UUID
    project_id: str
    external_id: str | None
    task_key: str | None
    session_id: str | None
    playbook: str | None
    task_description: str | None
    task_goal: str | None
    outcome: str | None = Field(description="As the client reported it.")
    conflict: OutcomeConflict | None = Field(
        description="Set if a test report, a ground truth with `match`, or expected calls "
        "contradict `outcome`."
    )
    state: str
    error: Any
    language: str | None
    used_bullet_keys: list[str] = Field(description="Keys of the bullets that the agent used.")
    metadata: RowMetadata
    event_count: int
    duplicate_of: UUID | None = Field(
        description="The first trace, if this one was sent again without an `external_id`."
    )
    created_at: UtcDatetime
    closed_at: UtcDatetime | None


class UpdatedTrace(Trace):
    """A trace after events were appended."""

    model_config = with_examples(EXAMPLE_UPDATED_TRACE)

    sanitized: bool = Field(
        default=False, description="True if unstorable characters were replaced."
    )


class TracePage(Page[Trace]):
    """One page of traces, newest first."""


class TraceEventPage(Page[TraceEvent]):
    """One page of the events of a trace, in order."""


class TraceWithEvents(Trace):
    """A trace with its answer, its evidence and its first 200 events."""

    model_config = with_examples(EXAMPLE_TRACE_WITH_EVENTS)

    query: str | None
    generated_answer: str | None
    reasoning_steps: Any
    ground_truth: Any
    test_report: str | None
    tools: Tools = Field(description="The tools that were sent with the trace.")
    events: list[TraceEvent] = Field(default_factory=list[TraceEvent])
    next_cursor: str | None = Field(
        default=None, description="Cursor of the following events; null if all events are here."
    )
