"""Numbers with units in texts."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from memory_api.text.numbers import (
    compare_numbers,
    find_numbers,
    is_equal,
    parse_number,
)
from tests.support.cases import each_case


@each_case(
    ("text", "value", "unit"),
    [
        ("1.250,50", "1250.50", ""),
        ("1,250.50", "1250.50", ""),
        ("1'250.50", "1250.50", ""),
        ("1 234 567", "1234567", ""),
        ("1\u202f234,5", "1234.5", ""),
        ("12,34,567", "1234567", ""),
        ("18.50", "18.5", ""),
        ("2,5", "2.5", ""),
        ("−5", "-5", ""),
        ("１２３", "123", ""),
        ("٣٫٥", "3.5", ""),
        ("1e3", "1000", ""),
        ("5k", "5000", ""),
        ("45 %", "45", "%"),
        ("2 km", "2000", "m"),
        ("90 min", "5400", "s"),
        ("$5m", "5000000", "$"),
        ("US$ 5", "5", "usd"),
        ("3万円", "30000", "jpy"),
        ("7 Mio. €", "7000000", "eur"),
        ("12 apples", "12", "apples"),
    ],
)
def test_number_is_parsed(text: str, value: str, unit: str) -> None:
    number = parse_number(text)
    assert number is not None
    assert (number.value, number.unit) == (Decimal(value), unit)


@each_case(
    "text",
    ["", "12 May 2024", "15:00", "2024-05-12", "1.2.3", "192.168.1.1", "007", "5-6", "1/2", "two",
     "about 5", "+49 30 1234567", "9" * 500],
)  # fmt: skip
def test_other_forms_are_no_numbers(text: str) -> None:
    assert parse_number(text) is None


@each_case(
    ("one", "other", "relation"),
    [
        ("1.250,50 €", "1250.5 EUR", "same"),
        ("1,250", "1250", "same"),
        ("1.250", "1250", "same"),
        ("1,250", "1.25", "same"),
        ("5 million dollars", "$5,000,000", "same"),
        ("1 Billion €", "1000 Milliarden €", "same"),
        ("1 GB", "1024 MB", "same"),
        ("$5", "5 USD", "same"),
        ("$5", "6 CAD", "undecided"),
        ("$5", "5 €", "undecided"),
        ("3.14", "3.14159", "undecided"),
        ("1.2 million", "1,234,567", "undecided"),
        ("12 dozen", "12", "undecided"),
        ("1 year", "12 months", "undecided"),
        ("42", "43", "different"),
        ("2.50 €", "2.75 €", "different"),
        ("5 apples", "6 apples", "different"),
        ("5", "-5", "different"),
    ],
)
def test_comparison(one: str, other: str, relation: str) -> None:
    left, right = parse_number(one), parse_number(other)
    assert left is not None
    assert right is not None
    assert compare_numbers(left, right) == compare_numbers(right, left) == relation


@each_case(
    ("given_text", "expected_text", "equal"),
    [
        ("3.14159", "3.14", True),
        ("3.14", "3.14159", False),
        ("42.4", "42", False),
        ("0.30000000000000004", "0.3", True),
        ("45%", "0.45", True),
        ("0.45", "45 %", True),
        ("45", "45%", True),
        ("12 apples", "12", True),
        ("2 km", "2000 m", True),
        ("2 km", "2000 kg", False),
        ("$5", "5 €", False),
    ],
)
def test_rules_of_match_number(given_text: str, expected_text: str, equal: bool) -> None:
    number, expected = parse_number(given_text), parse_number(expected_text)
    assert number is not None
    assert expected is not None
    assert is_equal(number, expected) is equal


def readings_in(text: str) -> set[Decimal]:
    return {value for number in find_numbers(text) for value in number.readings}


@each_case(
    ("value", "text"),
    [
        ("18.50", '{"price": 18.5}'),
        ("18.5", "The total is $18.50."),
        ("1250.5", "Summe: 1.250,50 €"),
        ("1234567", "population 1 234 567 (2023)"),
        ("234", "rows 1 234 567"),
        ("30000", "料金は3万円です"),
        ("2024", "due 2024-05-12"),
    ],
)
def test_number_occurs_in_another_notation(value: str, text: str) -> None:
    number = parse_number(value)
    assert number is not None
    assert set(number.readings) & readings_in(text)


def test_number_that_does_not_occur() -> None:
    number = parse_number("18.50")
    assert number is not None
    assert not set(number.readings) & readings_in("v18.50.1, 185, x18.50 and 18.05")


@given(st.text(max_size=300))
def test_any_text_is_searched(text: str) -> None:
    for number in find_numbers(text):
        assert number.readings
        assert compare_numbers(number, number) == "same"


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=2, min_value=-(10**9), max_value=10**9
    )
)
def test_every_notation_of_a_number_is_the_same(value: Decimal) -> None:
    english = f"{value:,.2f}"
    german = english.replace(",", " ").replace(".", ",").replace(" ", ".")
    numbers = [parse_number(text) for text in (english, german, f"{value:.2f}")]
    assert [number and number.value for number in numbers] == [value] * 3
