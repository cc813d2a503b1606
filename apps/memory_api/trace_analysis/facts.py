"""The facts of a trace: all that trace analysis says.

A fact is a count, a quotation or a comparison that the events prove. It names no cause and gives no
advice. People and models read the same facts, rendered by `reflection/fact_text.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class FactKind(StrEnum):
    """What a fact states.

    `error`: the error that the client stated, or that of the last event with one.
    `expectation`: what the client declared to be right, and what met it (`met` is null if that is
    undecided).
    `failed_call`: calls whose envelope reports a failure. `corrected_call`: such a call, and the
    later one of its tool, with other arguments, that did not fail. `retried_call`: such calls, and
    an identical one that did not fail.
    `repeated_call`: identical calls with the same response, or failed each time.
    `difference`: what successful and failed attempts at the task do not have in common.
    `unsourced`: numbers of the answer that no earlier event contains.
    `user_rule`: a rule that the user stated, by the mark of the client or as a correction.
    """

    COUNTS = "counts"
    ERROR = "error"
    EXPECTATION = "expectation"
    TEST = "test"
    FAILED_CALL = "failed_call"
    CORRECTED_CALL = "corrected_call"
    RETRIED_CALL = "retried_call"
    REPEATED_CALL = "repeated_call"
    EXIT_CODE = "exit_code"
    DIFFERENCE = "difference"
    UNSOURCED = "unsourced"
    USER_RULE = "user_rule"
    QUOTATION = "quotation"


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact. `event_ids` are events of this trace, the most telling first. `values` are JSON
    types; texts are excerpts.
    """

    kind: FactKind
    event_ids: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind.value, "event_ids": list(self.event_ids), **self.values}


def facts_of(facts: Iterable[Fact], *kinds: FactKind) -> Iterator[Fact]:
    return (fact for fact in facts if fact.kind in kinds)
