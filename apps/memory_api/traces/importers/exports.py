"""Converts exports of Langfuse, LangSmith and OpenTelemetry to traces. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from apps.memory_api.core.errors import InvalidRequest
from apps.memory_api.traces.importers.agent_logs import Fields, Record, objects
from apps.memory_api.traces.importers.messages import messages_to_events
from apps.memory_api.traces.importers.session_lines import parse_messages
from apps.memory_api.traces.otlp.decoding import decode_json
from apps.memory_api.traces.otlp.genai import SOURCE, group_spans

MAX_RUN_DEPTH = 30


def from_otel(record: Record) -> list[Fields]:
    """An OTLP request as JSON, as the file exporter of a collector writes it."""
    return [
        {
            **group.fields,
            "events": [event.model_dump(mode="json", exclude_none=True) for event in group.events],
            "session_id": group.session_id,
            "external_id": group.external_id,
            "metadata": {"source": SOURCE},
        }
        for group in group_spans(decode_json(record)).groups
        if group.events
    ]


def from_langfuse(record: Record) -> Fields:
    """A trace of Langfuse with its `observations`."""
    observations = sorted(objects(record.get("observations")), key=_start_time)
    events = [event for each in observations for event in _observation_events(each)]
    if not events:
        raise InvalidRequest("The trace has no `observations` with content.", field="observations")
    return {
        "events": events,
        "external_id": _identity("langfuse", record.get("id")),
        "session_id": record.get("sessionId"),
        "task_description": _text(record.get("input")) or record.get("name"),
        "query": _text(record.get("input")) or None,
        "generated_answer": _text(record.get("output")) or None,
        "metadata": {"name": record.get("name"), "scores": record.get("scores") or None},
    }


def from_langsmith(record: Record) -> Fields:
    """A run of LangSmith with its `child_runs`."""
    events: list[Fields] = []
    _add_run_events(record, events, 0)
    error = record.get("error")
    session_id = record.get("session_id")
    return {
        "events": events,
        "external_id": _identity("langsmith", record.get("id")),
        "session_id": session_id if isinstance(session_id, str) else None,
        "task_description": _text(record.get("inputs")) or record.get("name"),
        "query": _text(record.get("inputs")) or None,
        "generated_answer": _text(record.get("outputs")) or None,
        "outcome": "error" if error else None,
        "error": {"error_message": str(error)} if error else None,
        "metadata": {"name": record.get("name")},
    }


def _add_run_events(run: Record, events: list[Fields], depth: int) -> None:
    if depth > MAX_RUN_DEPTH:
        return
    kind = str(run.get("run_type"))
    children = sorted(objects(run.get("child_runs")), key=_start_time)
    if kind == "tool":
        events += _tool_events(
            run.get("name"), run.get("id"), run.get("inputs"), run.get("outputs"), run.get("error")
        )
    elif kind == "llm":
        events += _message_events(run.get("inputs"), "user")
        events += _message_events(run.get("outputs"), "assistant")
    elif run.get("error"):
        events.append(_error_event(run["error"]))
    elif not children and depth == 0:
        events += _message_events(run.get("inputs"), "user")
        events += _message_events(run.get("outputs"), "assistant")
    for child in children:
        _add_run_events(child, events, depth + 1)


def _observation_events(observation: Record) -> list[Fields]:
    kind = str(observation.get("type")).upper()
    given, returned = observation.get("input"), observation.get("output")
    failure = observation.get("statusMessage") if observation.get("level") == "ERROR" else None
    if kind == "GENERATION":
        found = _message_events(given, "user") + _message_events(returned, "assistant")
    elif kind == "TOOL" or (kind == "SPAN" and observation.get("parentObservationId")):
        name, identity = observation.get("name"), observation.get("id")
        return _tool_events(name, identity, given, returned, failure)
    elif kind == "EVENT":
        found = [{"event_type": "system_event", "content": _text(given) or _text(returned)}]
    else:
        found = []
    return [*found, _error_event(failure)] if failure else found


def _tool_events(name: Any, call_id: Any, given: Any, returned: Any, error: Any) -> list[Fields]:
    shared = {"tool_name": str(name or "tool")[:128], "metadata": {"call_id": str(call_id)}}
    response: Fields = {"event_type": "tool_response", "content": _text(returned), **shared}
    if error:
        response["error"] = {"message": str(error)}
    return [{"event_type": "tool_call", "content": _text(given), **shared}, response]


def _message_events(value: Any, role: str) -> list[Fields]:
    """Messages of a chat, alone or in a field, or any other value as one message."""
    messages = _find_messages(value)
    if not messages:
        text = _text(value)
        messages = [{"role": role, "content": text}] if text else []
    events = messages_to_events(parse_messages(messages))
    return [event.model_dump(mode="json", exclude_defaults=True) for event in events]


def _find_messages(value: Any) -> list[Record]:
    if isinstance(value, Mapping):
        fields = cast(Record, value)
        if isinstance(fields.get("role"), str):
            return [fields]
        for name in ("messages", "choices", "generations"):
            if name in fields:
                return _find_messages(fields[name])
        for name in ("message", "kwargs"):
            if isinstance(fields.get(name), Mapping):
                return _find_messages(_langchain_message(fields[name]))
        return _find_messages(converted) if (converted := _langchain_message(fields)) else []
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [found for item in cast("Sequence[Any]", value) for found in _find_messages(item)]
    return []


_LANGCHAIN_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


def _langchain_message(value: Any) -> Any:
    """A message of LangChain (`type`, `content`, `tool_calls` with `args`) in the form of a chat
    API; any other value unchanged, None if an object is no message.
    """
    if not isinstance(value, Mapping):
        return value
    fields = cast(Record, value)
    inner = fields.get("kwargs")
    if isinstance(inner, Mapping):
        return _langchain_message(inner)
    role = fields.get("role") or _LANGCHAIN_ROLES.get(str(fields.get("type")))
    if role is None:
        return None
    calls = [
        {"id": call.get("id"), "name": call.get("name"), "arguments": call.get("args")}
        if "args" in call
        else call
        for call in objects(fields.get("tool_calls"))
    ]
    return {**fields, "role": role, "tool_calls": calls}


def _error_event(error: Any) -> Fields:
    return {"event_type": "error_event", "content": str(error), "error": {"message": str(error)}}


def _start_time(run: Record) -> str:
    return str(run.get("startTime") or run.get("start_time") or "")


def _identity(source: str, value: Any) -> str | None:
    return f"{source}:{value}"[:128] if value else None


def _text(value: Any) -> str:
    """Text, the only text in an object with one field, or JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, Mapping) and len(cast(Record, value)) == 1:
        (only,) = cast(Record, value).values()
        if isinstance(only, str):
            return only
    return json.dumps(value, ensure_ascii=False)
