"""An answer beside the right one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.memory_api.evaluation.evidence import compare


@pytest.mark.parametrize(
    ("answer", "truth", "relation"),
    [
        ("the Eiffel Tower", "Eiffel tower", "same"),
        ("“Beyonce”", "Beyoncé", "same"),
        ("L'Oréal", "Oreal", "same"),
        ("die Mauer", "Mauer", "same"),
        ("Chittenden", "Chittenden (town)", "same"),
        ("ＡＢＣ１", "abc1", "same"),
        ("東京都。", "東京都", "same"),
        ("東京都です", "東京都", "wider"),
        ("ガス", "カス", "different"),
        ("in Paris, France", "Paris", "wider"),
        ("Paris", "Paris, France", "narrower"),
        ("Pariser", "Paris", "different"),
        ("yes, both are", "yes", "wider"),
        ("no", "yes", "different"),
        ("", "Paris", "different"),
        (None, "Paris", "different"),
        ("cat", ["dog", "The Cat"], "same"),
        ("Paris", "", "unknown"),
        ("it failed", "The request failed because the key had been revoked an hour before "
         "and nobody had renewed it", "unknown"),
    ],
)  # fmt: skip
def test_texts(answer: Any, truth: Any, relation: str) -> None:
    found = compare(answer, truth)
    assert (found.kind, found.relation) == ("text", relation)


@pytest.mark.parametrize(
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
        ("The answer is 42.", "42", "wider"),
        ("The answer is 142.", "42", "different"),
        ("nobody knows", "42", "different"),
        ("9" * 500, "1", "different"),
    ],
)
def test_numbers(answer: Any, truth: Any, relation: str) -> None:
    found = compare(answer, truth)
    assert (found.kind, found.relation) == ("number", relation)


def test_how_far_apart_numbers_may_be_can_be_told() -> None:
    assert compare("103", "100").relation == "different"
    assert compare("103", "100", tolerance=0.05).relation == "same"


@pytest.mark.parametrize(
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
def test_code(answer: str, truth: str, relation: str) -> None:
    found = compare(answer, truth)
    assert (found.kind, found.relation) == ("code", relation)


def test_what_wording_cannot_tell_has_no_score() -> None:
    assert compare("x = 2", "x = 1").score is None
    assert [compare(a, "Paris").score for a in ("Paris", "in Paris", "Rome")] == [1.0, 0.5, 0.0]


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
    found = compare(answer, truth)
    assert found.score is None or 0 <= found.score <= 1
    assert (found.score is None) == (found.relation == "unknown")


@given(st.text(min_size=1))
def test_an_answer_is_never_different_from_itself(text: str) -> None:
    assert compare(text, text).relation in ("same", "unknown")


AMOUNTS = st.decimals(-(10**9), 10**9, places=2, allow_nan=False, allow_infinity=False)


@given(AMOUNTS)
def test_a_number_is_the_same_however_it_is_written(number: Any) -> None:
    grouped = f"{number:,}"
    for written in (grouped, f"{number:.2f}", f" {grouped} ", grouped.replace(",", " ")):
        assert compare(written, str(number)).relation == "same", written
