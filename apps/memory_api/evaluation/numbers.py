"""Quantities in text: separators of any country, percent, magnitudes, units."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_THIN = "\u00a0\u2009\u202f"
_NUMBER = (
    rf"[-+−]?(?:\d{{1,3}}(?:[, '’{_THIN}]\d{{3}})+(?:\.\d+)?"
    r"|\d{1,3}(?:\.\d{3})+(?:,\d+)?(?![\d.])|\d+(?:[.,]\d+)?)(?:[eE][-+]?\d{1,3})?"
)
_QUANTITY = re.compile(
    rf"(?<![\w.,])(?P<before>[$€£¥]?\s?)(?P<number>{_NUMBER})"
    r"\s?(?P<many>thousand|million|billion|[千万億]|[kK](?![^\W\d_]))?"
    r"\s?(?P<unit>%|[$€£¥円]|[^\W\d_]{1,12})?",
)
_LONGEST = 4_000

# To the unit all of a kind are counted in.
_UNITS: dict[str, tuple[str, float]] = {
    "%": ("%", 1),
    "percent": ("%", 1),
    "パーセント": ("%", 1),
    "mm": ("m", 0.001),
    "cm": ("m", 0.01),
    "m": ("m", 1),
    "meters": ("m", 1),
    "metres": ("m", 1),
    "km": ("m", 1000),
    "mg": ("g", 0.001),
    "g": ("g", 1),
    "kg": ("g", 1000),
    "ms": ("s", 0.001),
    "s": ("s", 1),
    "sec": ("s", 1),
    "seconds": ("s", 1),
    "秒": ("s", 1),
    "min": ("s", 60),
    "minutes": ("s", 60),
    "分": ("s", 60),
    "h": ("s", 3600),
    "hours": ("s", 3600),
    "時間": ("s", 3600),
    "b": ("byte", 1),
    "kb": ("byte", 1e3),
    "mb": ("byte", 1e6),
    "gb": ("byte", 1e9),
    "$": ("usd", 1),
    "usd": ("usd", 1),
    "dollars": ("usd", 1),
    "€": ("eur", 1),
    "eur": ("eur", 1),
    "euros": ("eur", 1),
    "£": ("gbp", 1),
    "gbp": ("gbp", 1),
    "¥": ("jpy", 1),
    "円": ("jpy", 1),
    "jpy": ("jpy", 1),
    "yen": ("jpy", 1),
}
_MAGNITUDES: dict[str, float] = {
    "k": 1e3,
    "thousand": 1e3,
    "million": 1e6,
    "billion": 1e9,
    "千": 1e3,
    "万": 1e4,
    "億": 1e8,
}


@dataclass(frozen=True, slots=True)
class Quantity:
    """`value` in the unit that all of its kind are counted in (m, g, s, byte); `unit` is "" for a
    bare number, else that unit or the word as written. `step` is the last decimal place stated.
    """

    value: float
    unit: str
    step: float


def quantities(text: str) -> list[Quantity]:
    """Every quantity in a text, in order."""
    folded = unicodedata.normalize("NFKC", text[:_LONGEST])
    return [_read(match) for match in _QUANTITY.finditer(folded)]


def whole(text: str) -> Quantity | None:
    """The quantity that a text is, if it is nothing else."""
    folded = unicodedata.normalize("NFKC", text[:_LONGEST]).strip().rstrip(".。")
    match = _QUANTITY.fullmatch(folded)
    return _read(match) if match else None


def equal(one: Quantity, other: Quantity, tolerance: float) -> bool:
    """The same quantity, as exactly as `other` states it. A unit left out contradicts nothing; a
    percentage may be written as a share of 1.
    """
    value = one.value
    if one.unit != other.unit:
        if one.unit and other.unit:
            return False
        if "%" in (one.unit, other.unit) and _near(
            value * (0.01 if one.unit else 100), other, tolerance
        ):
            return True
    return _near(value, other, tolerance)


def _near(value: float, other: Quantity, tolerance: float) -> bool:
    room = max(tolerance * abs(other.value), other.step / 2 if other.step < 1 else 0.0)
    return abs(value - other.value) <= room * (1 + 1e-9)


def _read(match: re.Match[str]) -> Quantity:
    text = re.sub(f"[ '’{_THIN}]", "", match["number"]).replace("−", "-")
    text = _decimal_point(text)
    word = (match["unit"] or match["before"].strip()).casefold()
    factor = _MAGNITUDES.get((match["many"] or "").casefold(), 1.0)
    unit, scale = _UNITS.get(word, (word, 1.0))
    mantissa = text.lower().partition("e")[0]
    decimals = len(mantissa.partition(".")[2])
    return Quantity(float(text) * factor * scale, unit, 10.0**-decimals * factor * scale)


def _decimal_point(text: str) -> str:
    """1,234.5 and 1.234,5 and 1,5 with a point and nothing else."""
    if "," in text and "." in text:
        if text.rindex(",") > text.rindex("."):
            return text.replace(".", "").replace(",", ".")
        return text.replace(",", "")
    if text.count(",") == 1 and len(text.partition(",")[2]) != 3:
        return text.replace(",", ".")
    if text.count(".") > 1:
        return text.replace(".", "")
    return text.replace(",", "")
