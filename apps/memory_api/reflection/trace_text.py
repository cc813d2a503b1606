"""A trace as texts of a prompt: its events, error, recorded result and tools. Pure.

A long content that was shown before is replaced by a reference to it, so that a policy, a page or a
file appears once. If the pieces do not fit into the budget, repeated lines are left out first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from memory_api.core.secret_redaction import redact, redact_value
from memory_api.llm.untrusted_text import PromptPiece, fit_pieces, fit_text
from memory_api.playbooks.citations import extract_cited_ids
from memory_api.reflection.evidence import Evidence
from memory_api.text.terms import estimate_tokens
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.trace_analysis.arguments import as_mapping
from memory_api.trace_analysis.facts import Fact, FactKind, facts_of
from memory_api.trace_analysis.ground_truth import (
    MAX_RATING,
    expected_actions,
    find_ratings,
    number_of,
    states_answer,
)
from memory_api.traces.schemas import Event, EventType
from memory_api.traces.tools import ToolDefinition

_MAX_METADATA_TOKENS = 64
"""Per event."""
_MIN_REPEATED_LENGTH = 160
"""Characters of a content that is shown once only."""
_MAX_CALL_LENGTH = 1_000
"""Characters of a call that is shown even if an earlier one is the same: calls are what a reader
compares.
"""
_MIN_REPEATED_LINES = 6
"""Lines in a row that were shown before and are replaced by a reference."""
_MIN_LINE_LENGTH = 12
_CALL_ID_KEYS = ("call_id", "tool_call_id")
MIN_PIECES_TOKENS = 64
"""The smallest budget of `fit_pieces`."""


def event_id_of(event: Event, position: int) -> str:
    """The event ID, or the one that the database gives an event at this position."""
    return event.event_id or f"e{position:04d}"


def to_json(value: Any) -> str:
    clean, _ = redact_value(value)
    return json.dumps(clean, ensure_ascii=False, default=str)


@dataclass
class ShownContents:
    """What a prompt contains so far: the event that showed a content, or a line, first."""

    events_by_content: dict[bytes, str] = field(default_factory=dict[bytes, str])
    events_by_line: dict[str, str] = field(default_factory=dict[str, str])

    def content_or_reference(self, text: str, event_id: str) -> str:
        """The text, or a reference to the event that has the same text."""
        if len(text) < _MIN_REPEATED_LENGTH:
            return text
        digest = hashlib.sha256(" ".join(text.split()).encode("utf-8", "surrogatepass")).digest()
        first = self.events_by_content.setdefault(digest, event_id)
        return text if first == event_id else f"[the same {len(text)} characters as in {first}]"

    def without_repeated_lines(self, text: str, event_id: str) -> str:
        """The text with a reference in place of lines that an earlier event showed."""
        kept: list[str] = []
        repeated: list[str] = []
        sources: dict[str, None] = {}

        def end_of_series() -> None:
            if len(repeated) >= _MIN_REPEATED_LINES:
                kept.append(f"[… {len(repeated)} lines as in {', '.join([*sources][:2])} …]")
            else:
                kept.extend(repeated)
            repeated.clear()
            sources.clear()

        for line in text.split("\n"):
            key = line.strip()
            if len(key) < _MIN_LINE_LENGTH:
                (repeated if repeated else kept).append(line)
                continue
            first = self.events_by_line.setdefault(key, event_id)
            if first == event_id:
                end_of_series()
                kept.append(line)
            else:
                repeated.append(line)
                sources[first] = None
        end_of_series()
        return "\n".join(kept)


@dataclass(frozen=True, slots=True)
class EventPiece:
    """One event of a prompt: `[id] type tool (agent): content`, its error and its metadata."""

    event_id: str
    head: str
    content: str
    tail: str
    is_error: bool
    citations: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.head}{self.content}{self.tail}"

    def to_prompt_piece(self) -> PromptPiece:
        return PromptPiece(self.text, self.is_error, self.citations)


def event_pieces(
    events: Sequence[Event],
    shown: ShownContents,
    *,
    prefix: str = "",
    bullet_keys: Collection[str] = (),
) -> list[EventPiece]:
    """The events in order. `prefix`, such as `a1.`, is put before each event ID. The citations of
    these bullets are protected from shortening.
    """
    slugs = {key.rpartition("-")[0] for key in bullet_keys} - {""}
    shows_call_ids = _has_parallel_calls(events)
    return [
        _event_piece(event, f"{prefix}{event_id_of(event, position)}", shown, slugs, shows_call_ids)
        for position, event in enumerate(events)
    ]


def _event_piece(
    event: Event, event_id: str, shown: ShownContents, slugs: set[str], shows_call_ids: bool
) -> EventPiece:
    name = " ".join(filter(None, (event.event_type.value, event.tool_name)))
    agent = f" ({event.agent})" if event.agent else ""
    tail = f"\n  error: {to_json(event.error)}" if _adds_error(event) else ""
    metadata = {
        key: value
        for key, value in event.metadata.items()
        if shows_call_ids or key not in _CALL_ID_KEYS
    }
    if metadata:
        tail += f"\n  metadata: {fit_text(to_json(metadata), _MAX_METADATA_TOKENS)}"
    content = redact(event.content).text
    is_short_call = event.event_type is EventType.TOOL_CALL and len(content) <= _MAX_CALL_LENGTH
    return EventPiece(
        event_id,
        f"[{event_id}] {name}{agent}: ",
        content if is_short_call else shown.content_or_reference(content, event_id),
        tail,
        bool(event.error) or event.event_type is EventType.ERROR_EVENT,
        cited_in(event, content, slugs),
    )


def _adds_error(event: Event) -> bool:
    """Whether the `error` of an event says more than its content."""
    if not event.error:
        return False
    message = event.error.get("message")
    says_same = isinstance(message, str) and message.strip() in event.content
    return not says_same or len(event.error) > 1


def cited_in(event: Event, content: str, slugs: Collection[str]) -> tuple[str, ...]:
    """The citations in a message of the agent, with their brackets."""
    if event.event_type is not EventType.LLM_RESPONSE or "[" not in content:
        return ()
    cited = extract_cited_ids([{"role": "assistant", "content": content}], slugs)
    return tuple(f"[{key}]" for key in cited)


def _has_parallel_calls(events: Sequence[Event]) -> bool:
    """Whether a call follows another one before its response, so that only IDs pair them."""
    kinds = [event.event_type for event in events]
    calls = (EventType.TOOL_CALL, EventType.TOOL_CALL)
    return any(pair == calls for pair in pairwise(kinds))


def condensed(pieces: Iterable[EventPiece]) -> list[EventPiece]:
    """The pieces with references in place of lines that were shown before."""
    shown = ShownContents()
    return [
        piece
        if piece.citations
        else replace(piece, content=shown.without_repeated_lines(piece.content, piece.event_id))
        for piece in pieces
    ]


def count_tokens(pieces: Iterable[EventPiece]) -> int:
    return sum(estimate_tokens(piece.text + "\n") for piece in pieces)


def fit_events(pieces: Sequence[EventPiece], budget: int) -> str:
    """The pieces in at most `budget` tokens (at least 64): complete, else without repeated lines,
    else without some of them.
    """
    budget = max(MIN_PIECES_TOKENS, budget)
    if count_tokens(pieces) > budget:
        pieces = condensed(pieces)
    return fit_pieces([piece.to_prompt_piece() for piece in pieces], budget)


_MAX_TOOL_TOKENS = 64


@dataclass(frozen=True)
class StatedError:
    """The error of the run: as the client reported it, or of the last event that has one."""

    category: str
    message: str
    context: Mapping[str, object]
    event_id: str | None = None


def stated_error(context: ReflectionContext, facts: Sequence[Fact]) -> StatedError | None:
    if context.error is not None:
        error = context.error
        return StatedError(error.error_category.value, error.error_message, error.context)
    fact = next(facts_of(facts, FactKind.ERROR), None)
    return None if fact is None else StatedError("", fact.values["message"], {}, fact.event_ids[0])


def error_text(error: StatedError | None) -> str:
    if error is None:
        return ""
    lines = [f"category: {error.category}"] if error.category else []
    if error.event_id:
        lines.append(
            f"The trace states no error. The last event with an error is {error.event_id}."
        )
    lines.append(f"message: {error.message}")
    if set(error.context) - {"message"}:
        lines.append(f"context: {to_json(error.context)}")
    return "\n".join(lines)


def recorded_result(ground_truth: Any) -> str:
    """What the client recorded about the result, with the scale of its ratings; '' for a right
    answer.
    """
    if ground_truth is None or states_answer(ground_truth):
        return ""
    result = as_mapping(ground_truth)
    ratings = find_ratings(result)
    others = [
        name
        for name, value in result.items()
        if name not in ratings and number_of(value) is not None
    ]
    lines = [to_json(ground_truth)]
    if ratings:
        names = ", ".join(ratings)
        lines.append(f"{names}: a rating from 1 (worst) to {MAX_RATING} (best).")
    if others:
        lines.append(f"The client stated no scale for {', '.join(others)}.")
    return "\n".join(lines)


def tool_lines(tools: Sequence[ToolDefinition]) -> str:
    """One line per tool: name, effect, description."""
    effects = {True: "changes data", False: "only reads", None: "effect unknown"}
    lines: list[str] = []
    for tool in tools:
        description = f": {' '.join(tool.description.split())}" if tool.description else ""
        lines.append(f"- {tool.name} ({effects[tool.writes]}){description}")
    return "\n".join(fit_text(line, _MAX_TOOL_TOKENS) for line in lines)


def called_tools(context: ReflectionContext, evidence: Evidence) -> str:
    """The names of the tools that earlier attempts called or that are expected, without those that
    this run called, for a trace that lists no tools.
    """
    known = {event.tool_name for event in context.events}
    names = [
        *(event.tool_name for attempt in evidence.attempts for event in attempt.events),
        *(action.tool for action in expected_actions(evidence.ground_truth) or ()),
    ]
    return ", ".join(name for name in dict.fromkeys(names) if name and name not in known)
