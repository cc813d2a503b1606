"""Compare an answer with the expected one.

Without a declared `match`, the answers are the same, or the answer contains the expected one, or
the comparison is undecided. It is `different` only for two numbers of the same form and unit.
Dates, names, units and languages have too many forms for more.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any, Literal, cast

from memory_api.text.excerpts import excerpt
from memory_api.text.numbers import (
    Number,
    compare_numbers,
    find_numbers,
    has_known_unit,
    is_equal,
    occurs_in,
    parse_number,
)
from memory_api.traces.expected_results import MatchRule

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


_MAX_ANSWER_LENGTH = 20_000
_END_PUNCTUATION = " .,;:!?…。、，．！？"
_QUOTES = "\"'“”„‚‘’«»「」『』`* "
_UNSPACED_SCRIPT = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_ORDER = ("same", "contains_expected", "undecided", "different")


def normal_form(text: str) -> str:
    """The form in which `exact` and `contains` compare: Unicode NFKC, without case, with single
    spaces and without punctuation at the end.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split()).rstrip(_END_PUNCTUATION)


def compare_answers(answer: Any, expected: Any, match: MatchRule | None = None) -> AnswerComparison:
    """Compares an answer with the expected one, or with the closest of several (a list). Never
    raises. Values that are not text are compared as text. `match` is that of an answer.
    """
    if isinstance(expected, list | tuple):
        options = [compare_answers(answer, one, match) for one in cast("list[Any]", expected)]
        undecided = AnswerComparison("undecided", None, "There is no expected answer.")
        return min(options, key=lambda one: _ORDER.index(one.relation), default=undecided)
    given, wanted = _to_text(answer), _to_text(expected)
    relation = _relation(given, wanted, match)
    is_met = True if relation == "same" else False if relation == "different" else None
    if match == "contains" and relation == "contains_expected":
        is_met = True
    return AnswerComparison(
        relation, is_met, _reason(given, wanted, relation, match), match is not None
    )


def _to_text(value: Any) -> str:
    return "" if value is None else str(value)[:_MAX_ANSWER_LENGTH].strip()


def _relation(given: str, expected: str, match: MatchRule | None) -> AnswerRelation:
    if not expected:
        return "undecided"
    if match == "number":
        return _compare_stated_number(given, expected)
    given_form, expected_form = normal_form(given), normal_form(expected)
    if given_form == expected_form:
        return "same"
    if match == "exact":
        return "different"
    contains = bool(expected_form) and _contains(given_form, expected_form)
    if match is not None:
        return "contains_expected" if contains else "different"
    if given_form.strip(_QUOTES) == expected_form.strip(_QUOTES) != "":
        return "same"
    number, expected_number = parse_number(given), parse_number(expected)
    if number is not None and expected_number is not None:
        return compare_numbers(number, expected_number)
    return "contains_expected" if contains or _states(given, expected_number) else "undecided"


def _compare_stated_number(given: str, expected: str) -> AnswerRelation:
    """The rules of `match: number`. An answer with several numbers of which one is equal is
    undecided; an answer without the number in digits is another one.
    """
    number, wanted = parse_number(given), parse_number(expected)
    if wanted is None or not has_known_unit(wanted):
        return "undecided"
    numbers = [number] if number is not None else find_numbers(given)
    equal = [one for one in numbers if is_equal(one, wanted)]
    if not equal:
        return "different"
    values = {one.readings for one in numbers}
    return "same" if len(values) == 1 else "contains_expected"


def _states(text: str, number: Number | None) -> bool:
    return number is not None and occurs_in(number, find_numbers(text))


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
