"""Earlier attempts at a task as parts of a prompt.

Attempts with the same calls are shown once. A stretch of events that this run or a newer attempt
has too is replaced by a reference. What remains is shortened so that a prompt with several attempts
stays readable; the first call that differs from this run, and calls that the comparison of the
attempts names, are never left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from memory_api.llm.untrusted_text import distribute_budget, fence_text, fit_pieces, fit_text
from memory_api.reflection.trace_text import (
    MIN_PIECES_TOKENS,
    EventPiece,
    ShownContents,
    condensed,
    count_tokens,
    event_id_of,
    event_pieces,
)
from memory_api.text.terms import estimate_tokens
from memory_api.trace_analysis.attempts import Attempt
from memory_api.trace_analysis.parser import ParsedTrace, parse_trace
from memory_api.traces.schemas import Event, EventType

_MIN_STRETCH = 3
"""Events in a row that are replaced by a reference."""
_MAX_PLACES = 8
"""Places of an event that are compared. A run may repeat one event thousands of times."""
_CONTENT_TOKENS = (1_200, 600, 300, 150)
"""Limits of one content in an attempt that does not fit; the first with which it fits is used."""
_FENCE_TOKENS = 24
_EVENT_ID = re.compile(r"\ba\d+\.[\w.-]*\w")

EventKey = tuple[Any, ...]


@dataclass(frozen=True)
class AttemptText:
    """An attempt to show. `label` is a1 for the oldest attempt, `same` are the labels of attempts
    with the same outcome and the same calls. An attempt with the calls of this run has only its
    last event in `pieces`. `first_difference` are the IDs of the first call that this run does not
    have at the same place, and of its response.
    """

    label: str
    attempt: Attempt
    same: tuple[str, ...] = ()
    pieces: Sequence[EventPiece] = ()
    has_calls_of_this_run: bool = False
    first_difference: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        text = f"Attempt {self.label} ({self.attempt.outcome.value})"
        if self.has_calls_of_this_run:
            text += ", with the same calls as this run; only its last event is shown"
        if not self.same:
            return text
        labels = ", ".join(self.same)
        count = len(self.same)
        noun = "1 more attempt" if count == 1 else f"{count} more attempts"
        return f"{text}; {noun} with the same calls and the same outcome: {labels}"

    @property
    def token_count(self) -> int:
        return count_tokens(self.pieces) + self._title_tokens

    @property
    def _title_tokens(self) -> int:
        return estimate_tokens(self.title) + _FENCE_TOKENS

    def render(self, budget: int, named_ids: Collection[str]) -> str:
        """The attempt in about `budget` tokens. Events with `named_ids` are never left out."""
        budget = max(MIN_PIECES_TOKENS, budget - self._title_tokens)
        pieces = list(self.pieces)
        if count_tokens(pieces) > budget:
            protected = {*self.first_difference, *named_ids}
            whole = [_protected(piece, protected) for piece in condensed(pieces)]
            limits = (n for n in _CONTENT_TOKENS if count_tokens(_limited(whole, n)) <= budget)
            pieces = _limited(whole, next(limits, _CONTENT_TOKENS[-1]))
        text = fit_pieces([piece.to_prompt_piece() for piece in pieces], budget)
        return f"{self.title}:\n{fence_text(text, label='attempt')}"


def _protected(piece: EventPiece, event_ids: Collection[str]) -> EventPiece:
    """The piece; its ID is a text that no shortening leaves out if it is one of `event_ids`."""
    if piece.event_id not in event_ids:
        return piece
    return replace(piece, citations=(*piece.citations, f"[{piece.event_id}]"))


def _limited(pieces: Sequence[EventPiece], limit: int) -> list[EventPiece]:
    return [replace(piece, content=fit_text(piece.content, limit)) for piece in pieces]


def attempt_label(index: int) -> str:
    """The name of the attempt at this index, oldest first: a1, a2, …"""
    return f"a{index + 1}"


def render_attempts(attempts: Sequence[AttemptText], budget: int, comparison: str) -> str:
    """The attempts in `budget` tokens, newest first; the oldest ones are left out if not even the
    smallest form of each fits. `comparison` is the text that names events of them.
    """
    sizes = {item.label: item.token_count for item in attempts}
    granted = distribute_budget(budget, sizes, dict.fromkeys(sizes, 1))
    named_ids = set(_EVENT_ID.findall(comparison))
    texts: list[str] = []
    for item in attempts:
        if budget < MIN_PIECES_TOKENS:
            break
        texts.append(item.render(granted[item.label], named_ids))
        budget -= max(MIN_PIECES_TOKENS, granted[item.label])
    return "\n".join(texts)


def fold_attempts(
    attempts: Sequence[Attempt], events: Sequence[Event], shown: ShownContents
) -> list[AttemptText]:
    """The attempts (oldest first) to show, newest first: attempts with the same outcome and the
    same calls once. `events` are those of this run; `shown` already contains them.
    """
    groups: dict[tuple[str, tuple[Any, ...]], list[int]] = {}
    own_run = parse_trace(events)
    own_key = _calls_key(own_run)
    runs = [parse_trace(attempt.events) for attempt in attempts]
    for index, (attempt, run) in enumerate(zip(attempts, runs, strict=True)):
        groups.setdefault((attempt.outcome.value, _calls_key(run)), []).append(index)
    stretches = _Stretches()
    stretches.add([(event_id_of(event, n), _event_key(event)) for n, event in enumerate(events)])
    texts: list[AttemptText] = []
    for (_, key), indices in sorted(groups.items(), key=lambda item: -item[1][-1]):
        newest = indices[-1]
        label = attempt_label(newest)
        # An attempt of which only the last event is shown is no place to refer to.
        contents = ShownContents() if key == own_key else shown
        attempt = attempts[newest]
        pieces = event_pieces(attempt.events, contents, prefix=f"{label}.")
        folded = (
            pieces[-1:]
            if key == own_key
            else stretches.fold(pieces, list(map(_event_key, attempt.events)))
        )
        texts.append(
            AttemptText(
                label,
                attempt,
                tuple(map(attempt_label, indices[:-1])),
                folded,
                key == own_key,
                _first_difference(runs[newest], own_run, f"{label}."),
            )
        )
    return texts


@dataclass
class _Stretches:
    """The events that a prompt shows so far, in order, to find series of them again."""

    runs: list[list[tuple[str, EventKey]]] = field(default_factory=list[list[tuple[str, EventKey]]])
    places: dict[EventKey, list[tuple[int, int]]] = field(
        default_factory=dict[EventKey, list[tuple[int, int]]]
    )

    def add(self, run: Sequence[tuple[str, EventKey]]) -> None:
        for position, (_, key) in enumerate(run):
            places = self.places.setdefault(key, [])
            if len(places) < _MAX_PLACES:
                places.append((len(self.runs), position))
        self.runs.append(list(run))

    def fold(self, pieces: Sequence[EventPiece], keys: Sequence[EventKey]) -> list[EventPiece]:
        """The pieces of a run with references in place of series of at least `_MIN_STRETCH` events
        that were shown before. Remembers the others.
        """
        folded: list[EventPiece] = []
        start = 0
        kept: list[list[tuple[str, EventKey]]] = [[]]
        while start < len(pieces):
            first, last, length = self._longest(keys, start)
            series = pieces[start : start + max(1, length)]
            if length >= _MIN_STRETCH and not any(piece.citations for piece in series):
                text = (
                    f"[{series[0].event_id} to {series[-1].event_id}: the same {length} events "
                    f"as {first} to {last}]"
                )
                folded.append(replace(series[0], head="", content=text, tail="", is_error=False))
                kept.append([])
                start += length
            else:
                folded.append(pieces[start])
                kept[-1].append((pieces[start].event_id, keys[start]))
                start += 1
        for run in kept:
            self.add(run)
        return folded

    def _longest(self, keys: Sequence[EventKey], start: int) -> tuple[str, str, int]:
        """The first and the last ID of the longest series shown before that equals the keys from
        `start`, and its length.
        """
        best = ("", "", 0)
        for number, position in self.places.get(keys[start], ()):
            run = self.runs[number]
            length = 0
            for (_, shown), key in zip(run[position:], keys[start:], strict=False):
                if shown != key:
                    break
                length += 1
            if length > best[2]:
                best = (run[position][0], run[position + length - 1][0], length)
        return best


def _event_key(event: Event) -> EventKey:
    """Equal for events that a prompt shows alike."""
    error = str(event.error) if event.error else ""
    return event.event_type, event.tool_name, event.agent, " ".join(event.content.split()), error


def _calls_key(run: ParsedTrace) -> tuple[Any, ...]:
    """Equal for the same calls in the same order; without calls, for the same contents."""
    return tuple(call.key for call in run.calls) or tuple(event.content for event in run.events)


def _first_difference(run: ParsedTrace, own: ParsedTrace, prefix: str) -> tuple[str, ...]:
    """The IDs of the first call of an attempt that this run does not have at the same place, and of
    its response. If the attempt only ended earlier: of its last event.
    """
    for call, own_call in zip_longest(run.calls, own.calls):
        if call is None:
            break
        if own_call is None or call.key != own_call.key:
            positions = filter(None, (call.position, call.response_position))
            ids = (run.event_ids[position] for position in positions)
            return tuple(f"{prefix}{event_id}" for event_id in dict.fromkeys([call.event_id, *ids]))
    spoken = [n for n, event in enumerate(run.events) if event.event_type is EventType.LLM_RESPONSE]
    return (f"{prefix}{run.event_ids[spoken[-1]]}",) if spoken else ()
