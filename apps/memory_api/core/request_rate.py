"""How many requests are allowed, in the notation of the settings: `100/second`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_NOTATION = re.compile(
    r"(?P<amount>[0-9]{1,12})\s*(?:/|per)\s*(?:(?P<count>[1-9][0-9]{0,5})\s*)?"
    rf"(?P<unit>{'|'.join(_SECONDS)})s?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class RequestRate:
    """At most `amount` requests in `seconds`."""

    amount: int
    seconds: int

    def __str__(self) -> str:
        return f"{self.amount} per {self.seconds} second{'s' if self.seconds > 1 else ''}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read `100/second` or `50 per 10 minutes`; None for `off`. Raises `ValueError`."""
        if text == "off":
            return None
        match = _NOTATION.fullmatch(text.strip())
        if match is None:
            raise ValueError("must be a number per unit, such as 100/second, or off")
        amount = int(match["amount"])
        if amount < 1:
            raise ValueError("must allow at least 1 request, or be off")
        return cls(amount, int(match["count"] or 1) * _SECONDS[match["unit"].lower()])
