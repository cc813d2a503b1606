"""Numbers with units in a text, and whether two of them are equal."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

RELATIVE_TOLERANCE = 1e-6
"""Allowed distance as a share of the expected number, in addition to rounding."""
_THIN_SPACES = "\u00a0\u2009\u202f"
_NUMBER = (
    rf"[-+−]?(?:\d{{1,3}}(?:[, '’{_THIN_SPACES}]\d{{3}})+(?:\.\d+)?"
    r"|\d{1,3}(?:\.\d{3})+(?:,\d+)?(?![\d.])|\d+(?:[.,]\d+)?)(?:[eE][-+]?\d{1,3})?"
)
_QUANTITY = re.compile(
    rf"(?<![\w.,])(?P<before>[$€£¥]?\s?)(?P<number>{_NUMBER})"
    r"\s?(?P<magnitude>thousand|million|billion|[千万億]|[kK](?![^\W\d_]))?"
    r"\s?(?P<unit>%|[$€£¥円]|[^\W\d_]{1,12})?",
)
_AMBIGUOUS_SEPARATOR = re.compile(r"[-+−]?[1-9]\d{0,2}[.,]\d{3}")
_MAX_QUANTITY_TEXT = 4_000

# Unit -> (base unit of its kind, factor).
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
_BASE_UNITS = {unit for unit, _ in _UNITS.values()}
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
    """A number with its unit. `value` is in the base unit of its kind (m, g, s, byte).

    `unit` is '' without a unit, the base unit, or the unknown word. `last_decimal` is the value of
    the last stated decimal place. `is_ambiguous`: its one separator may mark thousands or decimals.
    """

    value: float
    unit: str
    last_decimal: float
    is_ambiguous: bool = False


def find_quantities(text: str) -> list[Quantity]:
    """All quantities in a text, in order."""
    folded = unicodedata.normalize("NFKC", text[:_MAX_QUANTITY_TEXT])
    return [_to_quantity(match) for match in _QUANTITY.finditer(folded)]


def parse_quantity(text: str) -> Quantity | None:
    """The quantity, if the text is nothing but one."""
    folded = unicodedata.normalize("NFKC", text[:_MAX_QUANTITY_TEXT]).strip().rstrip(".。")
    match = _QUANTITY.fullmatch(folded)
    return _to_quantity(match) if match else None


def is_same_quantity(one: Quantity, other: Quantity, tolerance: float) -> bool:
    """Whether both are equal at the precision of `other`. A missing unit matches any unit; a
    percentage matches the same share of 1.
    """
    value = one.value
    if one.unit != other.unit:
        if one.unit and other.unit:
            return False
        if "%" in (one.unit, other.unit) and _is_close(
            value * (0.01 if one.unit else 100), other, tolerance
        ):
            return True
    return _is_close(value, other, tolerance)


def _is_close(value: float, other: Quantity, tolerance: float) -> bool:
    max_distance = max(
        tolerance * abs(other.value), other.last_decimal / 2 if other.last_decimal < 1 else 0.0
    )
    return abs(value - other.value) <= max_distance * (1 + 1e-9)


def _to_quantity(match: re.Match[str]) -> Quantity:
    text = re.sub(f"[ '’{_THIN_SPACES}]", "", match["number"]).replace("−", "-")
    text = _normalize_separators(text)
    word = (match["unit"] or match["before"].strip()).casefold()
    factor = _MAGNITUDES.get((match["magnitude"] or "").casefold(), 1.0)
    unit, scale = _UNITS.get(word, (word, 1.0))
    mantissa = text.lower().partition("e")[0]
    decimals = len(mantissa.partition(".")[2])
    is_ambiguous = _AMBIGUOUS_SEPARATOR.fullmatch(match["number"]) is not None
    last_decimal = 10.0**-decimals * factor * scale
    return Quantity(float(text) * factor * scale, unit, last_decimal, is_ambiguous)


def _normalize_separators(text: str) -> str:
    """Turns 1,234.5 and 1.234,5 and 1,5 into a number with a decimal point only."""
    if "," in text and "." in text:
        if text.rindex(",") > text.rindex("."):
            return text.replace(".", "").replace(",", ".")
        return text.replace(",", "")
    if text.count(",") == 1 and len(text.partition(",")[2]) != 3:
        return text.replace(",", ".")
    if text.count(".") > 1:
        return text.replace(".", "")
    return text.replace(",", "")


def has_unknown_conversion(one: Quantity, other: Quantity) -> bool:
    """Whether both have a unit and the units are different words of which one is not known: 1 year
    may be 12 months.
    """
    is_known = {one.unit, other.unit} <= _BASE_UNITS
    return bool(one.unit and other.unit) and one.unit != other.unit and not is_known


def is_exact_comparison(given: Quantity, expected: Quantity, *, same: bool) -> bool:
    """Whether the comparison needs no assumption about a missing unit, rounding or separators."""
    if given.unit != expected.unit:
        return bool(given.unit and expected.unit)
    if same:
        return abs(given.value - expected.value) <= RELATIVE_TOLERANCE * abs(expected.value)
    is_rounded = _is_close(expected.value, given, RELATIVE_TOLERANCE)
    return not (is_rounded or given.is_ambiguous or expected.is_ambiguous)
