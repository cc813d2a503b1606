"""The notation of rate limits in the settings."""

from __future__ import annotations

import pytest

from apps.memory_api.core.request_rate import RequestRate


@pytest.mark.parametrize(
    ("text", "amount", "seconds"),
    [
        ("100/second", 100, 1),
        ("30000/minute", 30_000, 60),
        (" 7 per hour ", 7, 3_600),
        ("5/10 Minutes", 5, 600),
        ("1 per 2days", 1, 172_800),
    ],
)
def test_notation(text: str, amount: int, seconds: int) -> None:
    assert RequestRate.parse(text) == RequestRate(amount, seconds)


def test_off_is_no_limit() -> None:
    assert RequestRate.parse("off") is None


@pytest.mark.parametrize("text", ["", "100", "100/", "/second", "-1/second", "1/week", "1/0 hours"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number per unit"):
        RequestRate.parse(text)


def test_no_request_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="must allow at least 1 request"):
        RequestRate.parse("0/minute")


def test_text() -> None:
    assert str(RequestRate(1, 1)) == "1 per 1 second"
    assert str(RequestRate(5, 600)) == "5 per 600 seconds"
