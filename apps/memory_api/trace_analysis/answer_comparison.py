"""Compare an answer with the expected one: as code, as a number, else as text."""

from __future__ import annotations

import ast
import re
import unicodedata
from dataclasses import dataclass
from typing import Any, Literal, cast

from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.quantities import (
    RELATIVE_TOLERANCE,
    find_quantities,
    has_unknown_conversion,
    is_exact_comparison,
    is_same_quantity,
    parse_quantity,
)

AnswerRelation = Literal["same", "contains_expected", "part_of_expected", "different", "unknown"]


@dataclass(frozen=True, slots=True)
class AnswerComparison:
    """An answer compared with the expected one.

    `score`: 1 for `same`, 0 for `different`, None for all other relations: a text that contains the
    expected answer may also deny it. `is_exact`: the relation holds for the answers as they stand,
    apart from case, quotation marks, punctuation and articles. Otherwise the score is an opinion.
    """

    compared_as: Literal["text", "number", "code"]
    relation: AnswerRelation
    score: float | None
    reason: str
    is_exact: bool = False


_CODE_FENCE = re.compile(r"```[\w+-]*\n(?P<code>.*?)```", re.DOTALL)
_TOKEN = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|\w+|[^\w\s]")
_CODE_LINE = re.compile(
    r"^\s*(?:def |class |import |from \w+ import |return\b|for .+:$|if .+:$|func |function "
    r"|const |let |var |#include|public |package )|[;{}]\s*$|^\s*\w+ ?= ?\S|=>",
    re.MULTILINE,
)
_MAX_CODE_LENGTH = 100_000


def extract_code(text: str) -> str | None:
    """The code in a text: inside its only ``` fence, or the whole text if at least half of its
    lines look like code. None for prose, and for several fences.
    """
    fenced = list(_CODE_FENCE.finditer(text[:_MAX_CODE_LENGTH]))
    if fenced:
        return fenced[0]["code"] if len(fenced) == 1 else None
    lines = [line for line in text[:_MAX_CODE_LENGTH].splitlines() if line.strip()]
    if not lines:
        return None
    code_lines = sum(bool(_CODE_LINE.search(line)) for line in lines)
    return text if code_lines * 2 >= len(lines) else None


def is_same_code(one: str, other: str) -> bool:
    """Compares Python by its syntax tree, so comments and layout do not matter; other code by its
    tokens.
    """
    trees = _syntax_tree(one), _syntax_tree(other)
    if None not in trees:
        return trees[0] == trees[1]
    return _TOKEN.findall(one[:_MAX_CODE_LENGTH]) == _TOKEN.findall(other[:_MAX_CODE_LENGTH])


def _syntax_tree(code: str) -> str | None:
    try:
        return ast.dump(ast.parse(code[:_MAX_CODE_LENGTH]))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


SCORE_BY_RELATION = {"same": 1.0, "different": 0.0}
"""The other relations decide nothing."""

_MAX_ANSWER_LENGTH = 20_000
_MAX_COMPARED_WORDS = 6
"""A longer text may say the same in other words, so text cannot decide."""
_ARTICLES = frozenset({"the", "a", "an"})
_LEADING_ARTICLES = frozenset(
    ["der", "die", "das", "ein", "eine", "le", "la", "les", "un", "une", "el", "los", "las", "una"]
)
_ELIDED_ARTICLE = re.compile(r"\b[ldLD]['’](?=\w)")
_TRAILING_PARENTHESES = re.compile(r"(?<!\s)\s*\([^)]{0,200}\)\s*$")
_UNSPACED_SCRIPT = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_ACCENTS = re.compile("[\u0300-\u036f]")
_PUNCTUATION = re.compile(r"[^\w\s]|_")
_SYMBOL = re.compile(r"[+#<>=/\\*^%$€£¥@|~&_]|(?<!\w)[-−.](?=\w)|(?<=\w)[-−](?!\w)")
"""Characters that `normalize_answer` removes though they distinguish answers: C++ and C#."""
_RELATION_ORDER = ("same", "contains_expected", "part_of_expected", "unknown", "different")


def compare_answers(
    answer: Any, expected: Any, *, tolerance: float = RELATIVE_TOLERANCE
) -> AnswerComparison:
    """Compares an answer with the expected one, or with the closest of several (a list). Never
    raises.

    Values that are not text are compared as text.
    """
    if isinstance(expected, list | tuple):
        options = [
            compare_answers(answer, one, tolerance=tolerance) for one in cast("list[Any]", expected)
        ]
        return min(options, key=_closeness, default=_no_expected_answer())
    given, expected = _to_text(answer), _to_text(expected)
    return (
        _compare_code(given, expected)
        or _compare_number(given, expected, tolerance)
        or _compare_text(given, expected)
    )


def _closeness(comparison: AnswerComparison) -> tuple[int, bool]:
    """Orders comparisons with several accepted answers, closest first: the answer is proven right
    by any of them, and proven wrong only by all.
    """
    is_exact = comparison.is_exact
    return (
        _RELATION_ORDER.index(comparison.relation),
        is_exact if comparison.relation == "different" else not is_exact,
    )


def _to_text(value: Any) -> str:
    return "" if value is None else str(value)[:_MAX_ANSWER_LENGTH].strip()


def _compare_code(given: str, expected: str) -> AnswerComparison | None:
    expected_value = extract_code(expected)
    if expected_value is None:
        return None
    given_value = extract_code(given)
    if is_same_code(given if given_value is None else given_value, expected_value):
        # Prose around the code may advise against it.
        is_exact = given_value is None or not _CODE_FENCE.sub("", given).strip(" \n.:")
        reason = "The code equals the expected code."
        return AnswerComparison("code", "same", 1.0, reason, is_exact or given_value == given)
    return AnswerComparison(
        "code",
        "unknown",
        None,
        "The code differs from the expected code. Whether it behaves the same is unknown.",
    )


def _compare_number(given: str, expected: str, tolerance: float) -> AnswerComparison | None:
    """None if the expected answer is not a quantity."""
    expected_value = parse_quantity(expected)
    if expected_value is None:
        return None
    given_value = parse_quantity(given)
    if given_value is not None:
        if has_unknown_conversion(given_value, expected_value):
            return _to_comparison("number", "unknown", given, expected)
        same = is_same_quantity(given_value, expected_value, tolerance)
        is_exact = is_exact_comparison(given_value, expected_value, same=same)
        return _to_comparison(
            "number", "same" if same else "different", given, expected, is_exact=is_exact
        )
    if any(is_same_quantity(one, expected_value, tolerance) for one in find_quantities(given)):
        return _to_comparison("number", "contains_expected", given, expected)
    # A text may state the number in words.
    return _to_comparison("number", "different", given, expected, is_exact=not given)


def _compare_text(given: str, expected: str) -> AnswerComparison:
    given_words, expected_words = normalize_answer(given), normalize_answer(expected)
    if not expected_words:
        return _no_expected_answer()
    if not given_words:
        return _to_comparison("text", "different", given, expected, is_exact=not given)
    without_parentheses = normalize_answer(_TRAILING_PARENTHESES.sub("", expected))
    without_parentheses = without_parentheses or expected_words
    if given_words in (expected_words, without_parentheses):
        if _SYMBOL.findall(given) != _SYMBOL.findall(expected):
            return _to_comparison("text", "unknown", given, expected)
        is_exact = _remove_form(given) == _remove_form(expected)
        return _to_comparison("text", "same", given, expected, is_exact=is_exact)
    if _contains_words(given_words, without_parentheses):
        return _to_comparison("text", "contains_expected", given, expected)
    if len(given_words) > 2 and _contains_words(expected_words, given_words):
        return _to_comparison("text", "part_of_expected", given, expected)
    has_same_letters = given_words.replace(" ", "") == expected_words.replace(" ", "")
    if has_same_letters or _is_long(expected_words):
        return _to_comparison("text", "unknown", given, expected)
    is_exact = not _is_long(given_words)
    return _to_comparison("text", "different", given, expected, is_exact=is_exact)


def _is_long(text: str) -> bool:
    """Whether a text is long enough to say the same in other words."""
    is_unspaced = _UNSPACED_SCRIPT.search(text) is not None
    return len(text.split()) > _MAX_COMPARED_WORDS or (
        is_unspaced and len(text) > 4 * _MAX_COMPARED_WORDS
    )


def _no_expected_answer() -> AnswerComparison:
    reason = "There is no expected answer to compare with."
    return AnswerComparison("text", "unknown", None, reason)


def _to_comparison(
    kind: Literal["text", "number"],
    relation: AnswerRelation,
    given: str,
    expected: str,
    *,
    is_exact: bool = False,
) -> AnswerComparison:
    given, expected = excerpt(given, 80), excerpt(expected, 80)
    subject = f"Answer {given!r}" if given else "The empty answer"
    predicates = {
        "same": f"matches the expected answer {expected!r}.",
        "contains_expected": f"contains more than the expected answer {expected!r}.",
        "part_of_expected": f"is only a part of the expected answer {expected!r}.",
        "different": f"does not match the expected answer {expected!r}.",
        "unknown": f"is worded differently than the expected answer {expected!r}.",
    }
    reason = f"{subject} {predicates[relation]}"
    return AnswerComparison(kind, relation, SCORE_BY_RELATION.get(relation), reason, is_exact)


def normalize_answer(text: str) -> str:
    """Removes case, width, accents, quotation marks, punctuation and articles."""
    folded = unicodedata.normalize("NFKD", _ELIDED_ARTICLE.sub("", text))
    words = _remove_form(unicodedata.normalize("NFKC", _ACCENTS.sub("", folded))).split()
    has_article = len(words) > 1 and words[0] in _LEADING_ARTICLES
    return " ".join(words[1:] if has_article else words)


def _remove_form(text: str) -> str:
    """Removes what does not change an answer: case, width, quotation marks, punctuation, and
    English articles before a word.
    """
    folded = unicodedata.normalize("NFKC", text).casefold().replace("'", "").replace("’", "")
    words = _PUNCTUATION.sub(" ", folded).split()
    return " ".join(
        word
        for number, word in enumerate(words)
        if word not in _ARTICLES or number == len(words) - 1
    )


def _contains_words(text: str, part: str) -> bool:
    """Whether `text` contains the words of `part` in sequence. Scripts without spaces are compared
    by character.
    """
    if _UNSPACED_SCRIPT.search(part):
        return part.replace(" ", "") in text.replace(" ", "")
    return f" {part} " in f" {text} "
