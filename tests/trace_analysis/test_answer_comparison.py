"""An answer beside the right one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memory_api.trace_analysis.answer_comparison import compare_answers
from tests.support.cases import each_case


@each_case(("answer", "truth", "relation"), [
        ("the Eiffel Tower", "Eiffel tower", "same"),
        ("“Beyonce”", "Beyoncé", "same"),
        ("L'Oréal", "Oreal", "same"),
        ("die Mauer", "Mauer", "same"),
        ("Chittenden", "Chittenden (town)", "same"),
        ("ＡＢＣ１", "abc1", "same"),
        ("東京都。", "東京都", "same"),
        ("東京都です", "東京都", "contains_expected"),
        ("ガス", "カス", "different"),
        ("in Paris, France", "Paris", "contains_expected"),
        ("Paris", "Paris, France", "part_of_expected"),
        ("Pariser", "Paris", "different"),
        ("James", "Jame", "different"),
        ("bus", "bu", "different"),
        ("authors", "author", "different"),
        ("C#", "C++", "unknown"),
        ("x > y", "x < y", "unknown"),
        ("Vitamin A", "Vitamin", "contains_expected"),
        ("U.S.", "US", "unknown"),
        ("Paris", [], "unknown"),
        ("yes, both are", "yes", "contains_expected"),
        ("no", "yes", "different"),
        ("", "Paris", "different"),
        (None, "Paris", "different"),
        ("cat", ["dog", "The Cat"], "same"),
        ("Paris", "", "unknown"),
        ("it failed", "The request failed because the key had been revoked an hour before "
         "and nobody had renewed it", "unknown"),
    ])  # fmt: skip
def test_text_comparison(answer: Any, truth: Any, relation: str) -> None:
    found = compare_answers(answer, truth)
    assert (found.compared_as, found.relation) == ("text", relation)


@each_case(
    ("answer", "truth", "relation"),
    [
        ("1,234.5", "1234.5", "same"),
        ("1.234,5 €", "1234.5", "same"),
        ("1 234", 1234, "same"),
        ("12'345", "12345", "same"),
        ("１２３", 123, "same"),
        ("−5", "-5", "same"),
        ("5", "-5", "different"),
        ("2,5", "2.5", "same"),
        ("45%", "0.45", "same"),
        ("45", "45%", "same"),
        ("45%", "54%", "different"),
        ("3.14159", "3.14", "same"),
        ("3.1", "3.14", "different"),
        ("2 km", "2000 m", "same"),
        ("2 km", "2000 kg", "different"),
        ("90 min", "1.5 h", "same"),
        ("$5", "5 USD", "same"),
        ("$5", "5 €", "different"),
        ("3万円", "30000", "same"),
        ("5 million dollars", "$5,000,000", "same"),
        ("5k", "5000", "same"),
        ("12 apples", "12", "same"),
        ("42", "43", "different"),
        ("The answer is 42.", "42", "contains_expected"),
        ("The answer is 142.", "42", "different"),
        ("nobody knows", "42", "different"),
        ("9" * 500, "1", "different"),
    ],
)
def test_number_comparison(answer: Any, truth: Any, relation: str) -> None:
    found = compare_answers(answer, truth)
    assert (found.compared_as, found.relation) == ("number", relation)


def test_number_tolerance_is_configurable() -> None:
    assert compare_answers("103", "100").relation == "different"
    assert compare_answers("103", "100", tolerance=0.05).relation == "same"


@each_case(
    ("answer", "truth", "relation"),
    [
        ("def f(x):\n    return x+1  # one more", "def f(x):\n\n  return x + 1", "same"),
        ("```python\nx=1\n```", "x = 1", "same"),
        ("Here it is:\n```python\nx = 1\n```\nGood luck!", "```\nx = 1\n```", "same"),
        ("int main(){return 0;}", "int main() {\n  return 0;\n}", "same"),
        ("x = 2", "x = 1", "unknown"),
        ("def f(x):\n    return 1 + x", "def f(x):\n    return x + 1", "unknown"),
        ("I could not do it", "def f(x):\n    return x + 1", "unknown"),
    ],
)
def test_code_comparison(answer: str, truth: str, relation: str) -> None:
    found = compare_answers(answer, truth)
    assert (found.compared_as, found.relation) == ("code", relation)


def test_undecidable_wording_has_no_score() -> None:
    assert compare_answers("x = 2", "x = 1").score is None
    assert [compare_answers(a, "Paris").score for a in ("Paris", "in Paris", "Rome")] == [
        1.0,
        None,
        0.0,
    ]


@each_case(
    ("answer", "truth", "relation"),
    [
        ("Paris", "paris.", "same"),
        ("the “Eiffel Tower”", "Eiffel Tower", "same"),
        ("1,234.5", "1234.5", "same"),
        ("2 km", "2000 m", "same"),
        ("Rome", "Paris", "different"),
        ("Rome", ["Paris", "London"], "different"),
        ("43", "42", "different"),
        ("2 km", "2000 kg", "different"),
        ("", "42", "different"),
        ("def f(x):\n    return x+1  # one more", "def f(x):\n\n  return x + 1", "same"),
    ],
)
def test_exact_comparison(answer: Any, truth: Any, relation: str) -> None:
    found = compare_answers(answer, truth)
    assert (found.relation, found.is_exact) == (relation, True)


@each_case(
    ("answer", "truth", "relation"),
    [
        ("Salvador", "El Salvador", "same"),
        ("ano", "año", "same"),
        ("Springfield", "Springfield (Ohio)", "same"),
        ("45", "45%", "same"),
        ("12 apples", "12", "same"),
        ("3.14159", "3.14", "same"),
        ("0.54", "0.5", "same"),
        ("2 km", "2", "different"),
        ("3.1", "3.14", "different"),
        ("1,234", "1.234", "different"),
        ("a dozen", "12", "different"),
        ("a city on the Seine that everybody in the world knows", "Paris", "different"),
        ("Rome", ["Paris", "the city of light on the river Seine in France"], "unknown"),
        ("Never do it like this:\n```python\nx = 1\n```", "x = 1", "same"),
    ],
)
def test_comparison_that_assumes_something_is_not_exact(
    answer: Any, truth: Any, relation: str
) -> None:
    found = compare_answers(answer, truth)
    assert (found.relation, found.is_exact) == (relation, False)


VALUES = st.one_of(
    st.text(),
    st.text(alphabet="0123456789.,%$ kKm-"),
    st.text(alphabet="def()=:\n `x1 "),
    st.integers(),
    st.floats(),
    st.none(),
    st.booleans(),
    st.lists(st.text()),
    st.dictionaries(st.text(), st.integers()),
)


@given(VALUES, VALUES)
def test_any_two_values_can_be_compared(answer: Any, truth: Any) -> None:
    found = compare_answers(answer, truth)
    assert found.score is None or 0 <= found.score <= 1
    assert (found.score is None) == (found.relation not in ("same", "different"))
    assert found.score is not None or not found.is_exact


@given(st.text(min_size=1))
def test_answer_equals_itself(text: str) -> None:
    assert compare_answers(text, text).relation in ("same", "unknown")


AMOUNTS = st.decimals(-(10**9), 10**9, places=2, allow_nan=False, allow_infinity=False)


@given(AMOUNTS)
def test_number_formats_are_equal(number: Any) -> None:
    grouped = f"{number:,}"
    for written in (grouped, f"{number:.2f}", f" {grouped} ", grouped.replace(",", " ")):
        assert compare_answers(written, str(number)).relation == "same", written
