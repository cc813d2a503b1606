"""An answer beside the right one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_api.trace_analysis.answer_comparison import compare_answers
from memory_api.traces.expected_results import MatchRule
from tests.support.cases import each_case


@each_case(("answer", "truth", "relation"), [
        ("eiffel  tower.", "Eiffel Tower", "same"),
        ("“Eiffel Tower”", "Eiffel Tower", "same"),
        ("ＡＢＣ１", "abc1", "same"),
        ("東京都。", "東京都", "same"),
        ("cat", ["dog", "Cat"], "same"),
        ("東京都です", "東京都", "contains_expected"),
        ("in Paris, France", "Paris", "contains_expected"),
        ("It is not Paris", "Paris", "contains_expected"),
        ("Never do it:\n```python\nx = 1\n```", "x = 1", "contains_expected"),
        ("Pariser", "Paris", "undecided"),
        ("Rome", "Paris", "undecided"),
        ("Rome", ["Paris", "London"], "undecided"),
        ("C#", "C++", "undecided"),
        ("no", "yes", "undecided"),
        ("", "Paris", "undecided"),
        (None, "Paris", "undecided"),
        ("Paris", "", "undecided"),
        ("Paris", [], "undecided"),
        ("def f():\n    return 1 + x", "def f():\n    return x + 1", "undecided"),
        ("12 May 2024", "2024-05-12", "undecided"),
        ("3 pm", "15:00", "undecided"),
        ("United States", "USA", "undecided"),
        ("Munich", "München", "undecided"),
        ("J. Smith", "John Smith", "undecided"),
    ])  # fmt: skip
def test_text_without_declared_match(answer: Any, truth: Any, relation: str) -> None:
    found = compare_answers(answer, truth)
    assert (found.relation, found.is_proven) == (relation, False)
    assert found.is_met is (True if relation == "same" else None)


@each_case(
    ("answer", "truth", "relation"),
    [
        ("1,234.5", "1234.5", "same"),
        ("1.234,5 €", "1.234,50 EUR", "same"),
        ("12'345", "12345", "same"),
        ("１２３", 123, "same"),
        ("2 km", "2000 m", "same"),
        ("90 min", "1.5 h", "same"),
        ("$5", "5 USD", "same"),
        ("5k", "5000", "same"),
        ("42", "43", "different"),
        ("5", "-5", "different"),
        ("45%", "54%", "different"),
        ("$5", "$6", "different"),
        ("3.1", "3.14", "undecided"),
        ("3.14159", "3.14", "undecided"),
        ("45%", "0.45", "undecided"),
        ("12 apples", "12", "undecided"),
        ("$5", "5 €", "undecided"),
        ("2 km", "2000 kg", "undecided"),
        ("1 year", "12 months", "undecided"),
        ("+34 612 345 678", "612 345 678", "undecided"),
        ("7", "007", "undecided"),
        ("nobody knows", "42", "undecided"),
        ("The answer is 142.", "42", "undecided"),
        ("not 42 but 43", "42", "contains_expected"),
    ],
)
def test_numbers_without_declared_match(answer: Any, truth: Any, relation: str) -> None:
    found = compare_answers(answer, truth)
    assert found.relation == relation
    assert found.is_proven is (relation == "different")


@each_case(
    ("match", "answer", "truth", "is_met"),
    [
        ("exact", "paris.", "Paris", True),
        ("exact", " Paris\n", "Paris", True),
        ("exact", "The capital is Paris.", "Paris", False),
        ("exact", "USA", "United States", False),
        ("exact", "USA", ["United States", "usa"], True),
        ("exact", "“Paris”", "Paris", False),
        ("exact", "", "Paris", False),
        ("exact", "1,000", "1000", False),
        ("contains", "The capital is Paris.", "Paris", True),
        ("contains", "Comparison", "Paris", False),
        ("contains", "東京都です", "東京都", True),
        ("contains", "Rome", ["Paris", "rome"], True),
        ("number", "1.250,50 €", "1250.5", True),
        ("number", "It costs 1,250.50 euros.", "1250.5 €", True),
        ("number", "1250.504", "1250.50", True),
        ("number", "45%", "0.45", True),
        ("number", "12 apples", "12", True),
        ("number", "It is 43.", "42", False),
        ("number", "forty-two", "42", False),
        ("number", "I do not know.", "42", False),
        ("number", "2 kg", "2 km", False),
        ("number", "not 42 but 43", "42", None),
        ("number", "43", ["42", "43"], True),
    ],
)
def test_declared_match(match: MatchRule, answer: str, truth: Any, is_met: bool | None) -> None:
    found = compare_answers(answer, truth, match)
    assert found.is_met is is_met
    assert found.is_proven is (is_met is not None)


@pytest.mark.parametrize("match", [None, "exact", "contains", "number"])
def test_reason_shows_both_texts(match: MatchRule | None) -> None:
    reason = compare_answers("Rome", "753", match).reason
    assert "'Rome'" in reason
    assert "'753'" in reason
    assert (f"match: {match}" in reason) is (match is not None)


VALUES = st.one_of(
    st.text(),
    st.text(alphabet="0123456789.,%$ kKm-+"),
    st.integers(),
    st.floats(),
    st.none(),
    st.booleans(),
    st.lists(st.text()),
    st.dictionaries(st.text(), st.integers()),
)
RULES = st.sampled_from([None, "exact", "contains", "number"])


@given(VALUES, VALUES, RULES)
def test_any_two_values_can_be_compared(answer: Any, truth: Any, match: MatchRule | None) -> None:
    found = compare_answers(answer, truth, match)
    assert found.is_met is not True or found.relation in ("same", "contains_expected")
    assert (found.is_met is False) is (found.relation == "different")


@given(st.text(min_size=1), st.sampled_from([None, "exact", "contains"]))
def test_answer_equals_itself(text: str, match: MatchRule | None) -> None:
    assert compare_answers(text, text, match).relation in ("same", "undecided")


AMOUNTS = st.decimals(-(10**9), 10**9, places=2, allow_nan=False, allow_infinity=False)


@given(AMOUNTS)
def test_number_formats_are_equal(number: Any) -> None:
    grouped = f"{number:,}"
    for written in (grouped, f"{number:.2f}", f" {grouped} ", grouped.replace(",", " ")):
        assert compare_answers(written, str(number)).relation == "same", written
