"""Compare an answer with the expected one.

Without a declared `match`, the answers are the same, or the answer contains the expected one, or
the comparison is undecided. It is `different` only for two numbers of the same form and unit.
Dates, names, units and languages have too many forms for more.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, cast

from memory_api.text.excerpts import excerpt
from memory_api.text.numbers import (
    Number,
    compare_numbers,
    find_numbers,
    has_known_unit,
    is_equal,
    parse_number,
)
from memory_api.traces.expected_results import MAX_ACCEPTED_ANSWERS, MatchRule

AnswerRelation = Literal["same", "contains_expected", "undecided", "different"]


@dataclass(frozen=True, slots=True)
class AnswerComparison:
    """An answer compared with the expected one.

    `is_met`: whether the expectation is met, None if that is undecided. `is_declared`: the client
    declared how to compare, and the comparison decided. `reason` shows both texts.
    """

    relation: AnswerRelation
    is_met: bool | None
    reason: str
    is_declared: bool = False

    @property
    def is_proven(self) -> bool:
        return self.is_met is not None and (self.is_declared or self.relation == "different")


MAX_ANSWER_LENGTH = 20_000
"""Characters of an answer that are compared."""
_END_PUNCTUATION = " .,;:!?…。、，．！？"
_QUOTES = "\"'“”„‚‘’«»「」『』`* "
_UNSPACED_SCRIPT = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_ORDER: tuple[AnswerRelation, ...] = ("same", "contains_expected", "undecided", "different")


def normal_form(text: str) -> str:
    """The form in which `exact` and `contains` compare: Unicode NFKC, without case, with single
    spaces and without punctuation at the end.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split()).rstrip(_END_PUNCTUATION)


class _Answer:
    """An answer, parsed at most once, however many answers are accepted."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def form(self) -> str:
        return normal_form(self.text)

    @cached_property
    def number(self) -> Number | None:
        """The number, if the answer is nothing but one."""
        return parse_number(self.text)

    @cached_property
    def numbers(self) -> Sequence[Number]:
        """Those with different values in it, as `is_equal` compares them."""
        found = find_numbers(self.text) if self.number is None else [self.number]
        return list({(number.readings, number.unit): number for number in found}.values())

    @cached_property
    def readings(self) -> Set[Decimal]:
        return {value for number in find_numbers(self.text) for value in number.readings}


def compare_answers(answer: Any, expected: Any, match: MatchRule | None = None) -> AnswerComparison:
    """Compares an answer with the expected one, or with the closest of several (a list), of which
    the first `MAX_ACCEPTED_ANSWERS` count. Never raises. Values that are not text are compared as
    text. `match` is that of an answer.
    """
    is_list = isinstance(expected, list | tuple)
    options = cast("Sequence[Any]", expected)[:MAX_ACCEPTED_ANSWERS] if is_list else [expected]
    if not options:
        return AnswerComparison("undecided", None, "There is no expected answer.")
    given, best, wanted = _Answer(_to_text(answer)), len(_ORDER), ""
    for option in map(_to_text, options):
        rank = _ORDER.index(_relation(given, option, match))
        if rank < best:
            best, wanted = rank, option
        if best == 0:
            break
    relation = _ORDER[best]
    is_met = True if relation == "same" else False if relation == "different" else None
    if match == "contains" and relation == "contains_expected":
        is_met = True
    return AnswerComparison(
        relation, is_met, _reason(given.text, wanted, relation, match), match is not None
    )


def _to_text(value: Any) -> str:
    return "" if value is None else str(value)[:MAX_ANSWER_LENGTH].strip()


def _relation(given: _Answer, expected: str, match: MatchRule | None) -> AnswerRelation:
    if not expected:
        return "undecided"
    if match == "number":
        return _compare_stated_number(given, expected)
    expected_form = normal_form(expected)
    if given.form == expected_form:
        return "same"
    if match == "exact":
        return "different"
    contains = bool(expected_form) and _contains(given.form, expected_form)
    if match is not None:
        return "contains_expected" if contains else "different"
    if given.form.strip(_QUOTES) == expected_form.strip(_QUOTES) != "":
        return "same"
    expected_number = parse_number(expected)
    if expected_number is None:
        return "contains_expected" if contains else "undecided"
    if given.number is not None:
        return compare_numbers(given.number, expected_number)
    is_stated = contains or not given.readings.isdisjoint(expected_number.readings)
    return "contains_expected" if is_stated else "undecided"


def _compare_stated_number(given: _Answer, expected: str) -> AnswerRelation:
    """The rules of `match: number`. An answer with several numbers of which one is equal is
    undecided; an answer without the number in digits is another one.
    """
    wanted = parse_number(expected)
    if wanted is None or not has_known_unit(wanted):
        return "undecided"
    if not any(is_equal(one, wanted) for one in given.numbers):
        return "different"
    values = {one.readings for one in given.numbers}
    return "same" if len(values) == 1 else "contains_expected"


def _contains(text: str, part: str) -> bool:
    """Whether `text` contains `part` and no letter or digit is next to it. Scripts without spaces
    are compared by character.
    """
    if _UNSPACED_SCRIPT.search(part):
        return part in text
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) is not None


def _reason(given: str, expected: str, relation: AnswerRelation, match: MatchRule | None) -> str:
    given, expected = excerpt(given, 80), excerpt(expected, 80)
    subject = f"Answer {given!r}" if given else "The empty answer"
    predicates = {
        "same": f"is the expected answer {expected!r}.",
        "contains_expected": f"contains the expected answer {expected!r} and more.",
        "undecided": (
            f"and the expected answer {expected!r} differ in form. Whether they mean the same is"
            " undecided."
        ),
        "different": f"is not the expected answer {expected!r}.",
    }
    declared = f" (match: {match})" if match else ""
    return f"{subject} {predicates[relation]}{declared}"
