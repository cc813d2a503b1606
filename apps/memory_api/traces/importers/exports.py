"""Converts exports of Langfuse, LangSmith and OpenTelemetry to traces. Pure."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from memory_api.core.errors import InvalidRequest
from memory_api.core.schemas import MAX_NAME_LENGTH
from memory_api.traces.importers.agent_logs import Fields, Record, objects
from memory_api.traces.importers.messages import CALL_ID_KEY, messages_to_events
from memory_api.traces.importers.session_lines import parse_messages
from memory_api.traces.otlp.decoding import decode_json
from memory_api.traces.otlp.genai import SOURCE, group_spans

MAX_RUN_DEPTH = 30
MAX_WAITING_CALLS = 64
"""Calls without a response that a tool is compared with, the latest."""
MAX_PYTHON_TEXT = 20_000
"""Characters of arguments as text of Python, whose parser takes 500 bytes for each."""
_MISSING = object()


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
    found = _ExportEvents()
    observations = objects(record.get("observations"))
    parents = {each.get("parentObservationId") for each in observations}
    for each in sorted(observations, key=_start_time):
        is_whole = not each.get("parentObservationId") and (
            each.get("id") in parents or each.get("isRootObservation") or len(observations) == 1
        )
        _add_observation(each, found, is_call=not is_whole)
    events = found.events
    if not events:
        raise InvalidRequest("The trace has no `observations` with content.", field="observations")
    given, returned = _parsed(record.get("input")), _parsed(record.get("output"))
    query = _last_text(given, "user") or _text(given)
    return {
        "events": events,
        "external_id": _identity("langfuse", record.get("id")),
        "session_id": record.get("sessionId"),
        "task_description": query or record.get("name"),
        "query": query or None,
        "generated_answer": _last_text(returned, "assistant") or _text(returned) or None,
        "metadata": {"name": record.get("name"), "scores": record.get("scores") or None},
    }


def _parsed(value: Any) -> Any:
    """The value of JSON text: the API of Langfuse has inputs and outputs as text by default."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def group_observations(items: Sequence[Any]) -> list[Any]:
    """The traces of a list of Langfuse's observations API; another list unchanged."""
    observations = objects(items)
    if not observations or not all("traceId" in each and "type" in each for each in observations):
        return list(items)
    traces: dict[str, Fields] = {}
    for each in observations:
        new: Fields = {"id": each["traceId"], "observations": []}
        trace = traces.setdefault(str(each["traceId"]), new)
        trace["observations"].append(each)
        for field, source in (("sessionId",) * 2, ("userId",) * 2, ("name", "traceName")):
            trace[field] = trace.get(field) or each.get(source)
        if each.get("isRootObservation") or not each.get("parentObservationId"):
            trace |= {name: each.get(name) for name in ("input", "output")}
    return list(traces.values())


def from_langsmith(record: Record) -> Fields:
    """A run of LangSmith with its `child_runs`."""
    found = _ExportEvents()
    _add_run(record, found, 0)
    error = record.get("error")
    session_id = record.get("session_id")
    given, returned = record.get("inputs"), record.get("outputs")
    query = _last_text(given, "user") or _text(given)
    return {
        "events": found.events,
        "external_id": _identity("langsmith", record.get("id")),
        "session_id": session_id if isinstance(session_id, str) else None,
        "task_description": query or record.get("name"),
        "query": query or None,
        "generated_answer": _last_text(returned, "assistant") or _text(returned) or None,
        "outcome": "error" if error else None,
        "error": {"error_message": str(error)} if error else None,
        "metadata": {"name": record.get("name")},
    }


def _last_text(value: Any, role: str) -> str:
    """The last text of `role` in the state of a graph or in the messages of a call."""
    messages = [each for each in _find_messages(value) if each.get("role") == role]
    return _text(messages[-1].get("content")) if messages else ""


def _add_run(run: Record, found: _ExportEvents, depth: int) -> None:
    if depth > MAX_RUN_DEPTH:
        return
    kind = str(run.get("run_type"))
    children = sorted(objects(run.get("child_runs")), key=_start_time)
    given, returned = run.get("inputs"), run.get("outputs")
    if kind in ("tool", "retriever"):
        found.add_tool(run.get("name"), run.get("id"), given, returned, run.get("error"))
    elif kind == "llm":
        found.add_messages(_message_events(given, "user"), _message_events(returned, "assistant"))
    elif run.get("error"):
        found.events.append(_error_event(run["error"]))
    elif not children and depth == 0:
        found.add_messages(_message_events(given, "user"), _message_events(returned, "assistant"))
    for child in children:
        _add_run(child, found, depth + 1)


def _add_observation(observation: Record, found: _ExportEvents, *, is_call: bool) -> None:
    """Add the events of an observation. `is_call`: as a span, it is a call and not the whole
    trace.
    """
    kind = str(observation.get("type")).upper()
    given, returned = _parsed(observation.get("input")), _parsed(observation.get("output"))
    failure = observation.get("statusMessage") if observation.get("level") == "ERROR" else None
    if kind in ("TOOL", "RETRIEVER") or (kind == "SPAN" and is_call):
        name, identity = observation.get("name"), observation.get("id")
        found.add_tool(name, identity, given, returned, failure)
        return
    if kind == "GENERATION":
        found.add_messages(_message_events(given, "user"), _message_events(returned, "assistant"))
    elif kind == "EVENT":
        text = _text(given) or _text(returned)
        found.events.append({"event_type": "system_event", "content": text})
    if failure:
        found.events.append(_error_event(failure))


class _ExportEvents:
    """The events of an export, each once: a model call repeats the conversation before it, and a
    tool has an entry of its own besides the messages of its call.
    """

    def __init__(self) -> None:
        self.events: list[Fields] = []
        self._seen: set[tuple[str, str, int]] = set()
        self._waiting: dict[str, tuple[str, Any]] = {}
        """Tool and arguments of the calls without a response, by call ID."""

    def add_messages(self, given: list[Fields], returned: list[Fields]) -> None:
        """The messages of one model call."""
        repeated = Counter[tuple[str, str]]()
        for event in given + returned:
            kind = event["event_type"]
            call_id = event.get("metadata", {}).get(CALL_ID_KEY)
            key = (str(kind), call_id or event.get("content", ""))
            repeated[key] += 1
            self._add(event, (*key, 0 if call_id else repeated[key]))

    def add_tool(self, name: Any, identity: Any, given: Any, returned: Any, error: Any) -> None:
        """A tool that was executed. Its call is the one that its result names, else the first call
        of the tool with these arguments and without a response, else one of its own. Without
        recorded arguments, it is the only call that waits; if several wait, the call is unknown.
        """
        tool = str(name or "tool")[:MAX_NAME_LENGTH]
        (message,) = _find_messages(returned)[:1] or [None]
        call_id = message.get("tool_call_id") if message is not None else None
        waiting = {key: args for key, (known, args) in self._waiting.items() if known == tool}
        is_unknown = given in (None, "")
        if call_id is None and is_unknown and len(waiting) == 1:
            (call_id,) = waiting
        elif call_id is None and not is_unknown:
            executed = _arguments(given)
            call_id = next((k for k in waiting if _is_same_call(waiting[k], executed)), None)
        has_call = call_id is not None or not is_unknown or not waiting
        call_id = str(call_id or identity)
        shared: Fields = {"tool_name": tool, "metadata": {CALL_ID_KEY: call_id}}
        call = {"event_type": "tool_call", "content": _text(given), **shared}
        text = _text(message.get("content") if message is not None else returned)
        response = {"event_type": "tool_response", "content": text, **shared}
        if error:
            response["error"] = {"message": str(error)}
        if has_call:
            self._add(call, ("tool_call", call_id, 0))
        self._add(response, ("tool_response", call_id, 0))

    def _add(self, event: Fields, key: tuple[str, str, int]) -> None:
        if key in self._seen:
            return
        self._seen.add(key)
        self.events.append(event)
        kind, call_id, number = key
        if kind == "tool_call" and not number:
            arguments = _arguments(event.get("content"))
            self._waiting[call_id] = str(event.get("tool_name")), arguments
            if len(self._waiting) > MAX_WAITING_CALLS:
                del self._waiting[next(iter(self._waiting))]
        elif kind == "tool_response":
            self._waiting.pop(call_id, None)


def _arguments(value: Any) -> Any:
    """Arguments as an object. LangChain writes them as text of Python, alone in `input`."""
    text = value
    if isinstance(value, Mapping):
        fields = cast(Record, value)
        text = fields.get("input") if len(fields) == 1 else None
    if not isinstance(text, str):
        return cast(Any, value)
    parsed: Any = _parsed(text)
    is_short = isinstance(parsed, str) and len(parsed) <= MAX_PYTHON_TEXT
    if is_short and parsed.lstrip().startswith("{"):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            parsed = ast.literal_eval(parsed.strip())
    return cast(Any, parsed if isinstance(parsed, Mapping) else value)


def _is_same_call(called: Any, executed: Any) -> bool:
    """Whether a tool was executed with the arguments of a call, to which a program may add some."""
    if called == executed:
        return True
    if not isinstance(called, Mapping) or not isinstance(executed, Mapping):
        return False
    wanted, found = cast(Record, called), cast(Record, executed)
    return bool(wanted) and all(found.get(name, _MISSING) == wanted[name] for name in wanted)


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
        for name in ("messages", "choices", "generations", "output"):
            if name in fields:
                return _find_messages(fields[name])
        if isinstance(fields.get("message"), Mapping):
            return _find_messages(_langchain_message(fields["message"]))
        return _find_messages(converted) if (converted := _langchain_message(fields)) else []
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = cast("Sequence[Any]", value)
        match items:
            case [str(role), str(text)] if role in _PAIR_ROLES:  # ("user", "…") of LangChain
                return [{"role": _LANGCHAIN_ROLES.get(role, role), "content": text}]
            case _:
                return [found for item in items for found in _find_messages(item)]
    return []


_LANGCHAIN_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
_PAIR_ROLES = frozenset({"user", "assistant", *_LANGCHAIN_ROLES})
_LANGCHAIN_CLASS = re.compile(r"(Human|AI|System|Tool)Message(?:Chunk)?")
"""The class of a message, which is its `type` if it was streamed, and the end of its `id`."""


def _langchain_message(value: Any) -> Any:
    """A message of LangChain (`type`, `content`, `tool_calls` with `args`) in the form of a chat
    API; any other value unchanged, None if an object is no message.
    """
    if not isinstance(value, Mapping):
        return value
    fields = cast(Record, value)
    inner = fields.get("kwargs")
    if isinstance(inner, Mapping):
        path = fields.get("id")
        name = cast("list[Any]", path)[-1] if isinstance(path, list) and path else None
        return _langchain_message({"type": name, **cast(Record, inner)})
    kind = str(fields.get("type"))
    if match := _LANGCHAIN_CLASS.fullmatch(kind):
        kind = match[1].lower()
    role = fields.get("role") or _LANGCHAIN_ROLES.get(kind)
    if not isinstance(role, str):
        return None
    more = fields.get("additional_kwargs")
    earlier = cast(Record, more).get("tool_calls") if isinstance(more, Mapping) else None
    calls = [
        {"id": call.get("id"), "name": call.get("name"), "arguments": call.get("args")}
        if "args" in call
        else call
        for call in objects(fields.get("tool_calls") or earlier)
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
