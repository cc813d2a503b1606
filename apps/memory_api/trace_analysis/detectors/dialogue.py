"""Detects what can be said of a conversation without tools."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from memory_api.text.excerpts import excerpt, first_sentence
from memory_api.trace_analysis.arguments import as_mapping
from memory_api.trace_analysis.parser import ParsedTrace
from memory_api.trace_analysis.structure import Dialogue

_MAX_MESSAGES = 200
_CLAUSE_END = re.compile(r"[。！？!?\n、,;:]|\.\s")
_MIN_PHRASE, _MAX_PHRASE = 6, 60


def parse_ratings(ground_truth: Any) -> tuple[tuple[str, float], ...]:
    """Ratings, lowest first, if the ground truth consists of two or more numbers by criterion; else
    ().
    """
    ratings = as_mapping(ground_truth)
    if len(ratings) < 2:
        return ()
    pairs: list[tuple[str, float]] = []
    for name, value in ratings.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
            return ()
        pairs.append((excerpt(str(name), 40), float(value)))
    return tuple(sorted(pairs, key=lambda pair: pair[1]))


def find_dialogue(trace: ParsedTrace, ground_truth: Any) -> Dialogue | None:
    """None if the trace has calls, several agents or fewer than two replies."""
    if trace.calls or trace.steps or len(trace.reply_positions) < 2:
        return None
    users = trace.user_positions[:_MAX_MESSAGES]
    if len(users) < 2:
        return None
    dissatisfied = next(  # before the first reply, a user is dissatisfied with something else
        (
            p
            for p in users
            if p > trace.reply_positions[0]
            and trace.vocabulary.search("dissatisfaction", trace.content_at(p)[:2_000])
        ),
        None,
    )
    reply = (
        trace.last_before(trace.reply_positions, dissatisfied) if dissatisfied is not None else None
    )
    return Dialogue(
        user_message_count=len(trace.user_positions),
        reply_count=len(trace.reply_positions),
        repeated_phrases=_repeated_phrases(trace),
        dissatisfied_message=first_sentence(trace.content_at(dissatisfied), 100)
        if dissatisfied is not None
        else None,
        dissatisfied_event_id=trace.event_ids[dissatisfied] if dissatisfied is not None else None,
        reply_before_dissatisfaction=excerpt(trace.content_at(reply), 100)
        if reply is not None
        else None,
        reply_before_dissatisfaction_event_id=trace.event_ids[reply] if reply is not None else None,
        ratings=parse_ratings(ground_truth),
    )


def _repeated_phrases(trace: ParsedTrace) -> tuple[tuple[str, int, str], ...]:
    """The two most frequent clauses of 6 to 60 characters in three or more replies."""
    counts: Counter[str] = Counter()
    first_event: dict[str, str] = {}
    for position in trace.reply_positions[:_MAX_MESSAGES]:
        clauses = {c.strip() for c in _CLAUSE_END.split(trace.content_at(position)[:3_000])}
        for clause in clauses:
            if _MIN_PHRASE <= len(clause) <= _MAX_PHRASE:
                counts[clause] += 1
                first_event.setdefault(clause, trace.event_ids[position])
    repeated = sorted((-n, first_event[c], c) for c, n in counts.items() if n >= 3)
    return tuple((clause, -n, event_id) for n, event_id, clause in repeated[:2])
