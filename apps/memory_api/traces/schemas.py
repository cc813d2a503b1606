"""Traces on the wire: one agent run as an ordered list of events (DESIGN section 3, spec 5 "Data Models")."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import AliasChoices, ConfigDict, Field, model_validator

from apps.memory_api.core.schemas import Body, Metadata, Name, Time


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
    """Why a run failed. Both spellings of the documents are accepted: `category` or `error_category`,
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
        if isinstance(data, dict):
            known = {"error_category", "category", "error_message", "message", "context"}
            rest = {k: v for k, v in data.items() if k not in known}
            if rest:
                return {k: v for k, v in data.items() if k in known} | {
                    "context": rest | dict(data.get("context") or {})
                }
        return data


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
    def _keep_unknown(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known = {k: v for k, v in data.items() if k in cls.model_fields}
        if isinstance(known.get("error"), str):
            known["error"] = {"message": known["error"]} if known["error"] else None
        rest = {k: v for k, v in data.items() if k not in cls.model_fields}
        if rest and isinstance(known.get("metadata", {}), dict):
            known["metadata"] = rest | (known.get("metadata") or {})
        return known
