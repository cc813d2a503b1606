"""Numbers with units in a text, and whether two of them are equal. The only parser of numbers.

`1.250,50`, `1,250.50` and `1 250.5` are one number. A notation with two meanings has two
`readings`: `1,250` may be 1250 or 1.25, a billion 10^9 or 10^12, a kB 1000 or 1024 bytes. Two
numbers differ only if no reading of one is a reading of the other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

NumberRelation = Literal["same", "different", "undecided"]

MAX_SEARCHED_CHARACTERS = 20_000
_MAX_DIGITS = 60
"""A longer numeral is an identifier and is compared as text."""
_WIDE_SPACES = "\u00a0\u2009\u202f"
_CURRENCY = "[$€£¥₹₩₽₺]"
_NUMERAL = (
    rf"[-+]?(?:\d{{1,3}}(?P<separator>[, .'’{_WIDE_SPACES}])\d{{3}}"
    r"(?:(?P=separator)\d{3})*(?:[.,]\d+)?"
    r"|\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?|\d+(?:[.,]\d+)?)(?:[eE][-+]?\d{1,2})?"
)
_NUMBER = re.compile(
    rf"(?<![A-Za-zÀ-ӿ_\d.,])(?:(?P<before>{_CURRENCY}|[A-Z]{{2,3}}[$]?)\s?)?(?P<numeral>{_NUMERAL})"
    r"(?:\s?(?P<magnitude>(?i:million(?:en)?|thousand|milliarden|billion|trillion|k"
    r"|(?:mio|mrd|tsd)\.?)(?![^\W\d_])|[千万億]))?"
    rf"(?:\s?(?P<unit>%|{_CURRENCY}|円|秒|分|時間|パーセント|[^\W\d_]{{1,16}}(?!\w)))?(?![.,]?\d)"
)
_LEADING_ZERO = re.compile(r"[-+]?0\d")
_CHARACTERS = str.maketrans({"−": "-", "٫": ".", "٬": ",", "％": "%"})

# Unit as written -> its kind, and the factors that it may have in the base unit of the kind.
_UNITS: dict[str, tuple[str, tuple[str, ...]]] = {
    name: (kind, tuple(factors.split("|")))
    for kind, units in {
        "%": "% 1 percent 1 prozent 1 パーセント 1",
        "m": "mm .001 cm .01 m 1 meter 1 meters 1 metre 1 metres 1 km 1000 kilometers 1000"
        " kilometres 1000 kilometer 1000",
        "g": "mg .001 g 1 gram 1 grams 1 kg 1000 kilogram 1000 kilograms 1000",
        "s": "ms .001 s 1 sec 1 second 1 seconds 1 sekunden 1 秒 1 min 60 minute 60 minutes 60"
        " minuten 60 分 60 h 3600 hr 3600 hrs 3600 hour 3600 hours 3600 stunden 3600 時間 3600",
        "byte": "b 1 byte 1 bytes 1 kb 1000|1024 mb 1000000|1048576 gb 1000000000|1073741824"
        " tb 1000000000000|1099511627776",
        "$": "$ 1 dollar 1 dollars 1",
        "usd": "usd 1 us$ 1",
        "eur": "€ 1 eur 1 euro 1 euros 1",
        "£": "£ 1 pound 1 pounds 1",
        "gbp": "gbp 1",
        "¥": "¥ 1",
        "jpy": "円 1 jpy 1 yen 1",
        "chf": "chf 1",
        "inr": "₹ 1 inr 1",
    }.items()
    for name, factors in zip(units.split()[::2], units.split()[1::2], strict=True)
}
_KINDS = {kind for kind, _ in _UNITS.values()}
_CURRENCIES_OF_SYMBOL = {
    "$": frozenset({"usd", "cad", "aud", "nzd", "sgd", "hkd", "mxn"}),
    "£": frozenset({"gbp"}),
    "¥": frozenset({"jpy", "cny"}),
}
_MONEY = frozenset({"$", "usd", "eur", "£", "gbp", "¥", "jpy", "chf", "inr"})
_THOUSAND, _MILLION, _MILLIARD, _BILLION, _TRILLION = (
    ("1000",),
    ("1000000",),
    ("1000000000",),
    ("1000000000", "1000000000000"),
    ("1000000000000", "1000000000000000000"),
)
_MAGNITUDES = {
    "k": _THOUSAND,
    "thousand": _THOUSAND,
    "tsd": _THOUSAND,
    "million": _MILLION,
    "millionen": _MILLION,
    "mio": _MILLION,
    "billion": _BILLION,
    "milliarden": _MILLIARD,
    "mrd": _MILLIARD,
    "trillion": _TRILLION,
    "千": _THOUSAND,
    "万": ("10000",),
    "億": ("100000000",),
}
_MAGNITUDES_OF_MONEY = {"m": _MILLION, "mn": _MILLION, "bn": _MILLIARD, "b": _MILLIARD}
_ONE = ("1",)


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a text.

    `text`: as it is written. `readings`: its possible values in the base unit of its kind (m, g,
    s, byte), most likely first. `unit`: '' without a unit, the base unit, or the unknown word.
    `last_place`: the value of its last decimal place.
    """

    text: str
    readings: tuple[Decimal, ...]
    unit: str
    last_place: Decimal

    @property
    def value(self) -> Decimal:
        return self.readings[0]


def find_numbers(text: str) -> list[Number]:
    """The numbers in a text, in order. Only the first 20,000 characters are searched. A word after
    a number is its unit only if the unit is known. Digits with spaces between them are one number
    and also several.
    """
    return list(_find(_normalize(text[:MAX_SEARCHED_CHARACTERS])))


def _find(text: str) -> Iterator[Number]:
    for match in _NUMBER.finditer(text):
        if len(match["numeral"]) > _MAX_DIGITS:
            continue
        yield _to_number(match, only_known_units=True)
        if match["separator"] == " ":
            for part in match["numeral"].split(" "):
                yield from _find(part)


def parse_number(text: str) -> Number | None:
    """The number, if the text is nothing but one. An integer with a leading zero is an identifier
    and no number.
    """
    text = _normalize(text[: _MAX_DIGITS * 2]).strip().rstrip(".。!")
    match = _NUMBER.fullmatch(text)
    if match is None or len(match["numeral"]) > _MAX_DIGITS:
        return None
    if _LEADING_ZERO.match(match["numeral"]):
        return None
    return _to_number(match)


def has_known_unit(number: Number) -> bool:
    """Whether a number has no unit or one that can be converted."""
    return not number.unit or number.unit in _KINDS


def compare_numbers(one: Number, other: Number) -> NumberRelation:
    """`different` only for numbers of the same form and unit of which no reading is equal and
    neither is the other one rounded. A number without a unit and one with a unit are not compared,
    nor are unknown units with others, nor +34 612 345 678 with 612 345 678.
    """
    if not _is_same_currency(one.unit, other.unit):
        return "undecided"
    if not set(one.readings).isdisjoint(other.readings):
        return "same"
    if one.text.startswith("+") != other.text.startswith("+"):
        return "undecided"
    if one.unit != other.unit or _may_be_rounded(one, other) or _may_be_rounded(other, one):
        return "undecided"
    return "different"


def is_equal(given: Number, expected: Number) -> bool:
    """Whether a number equals an expected one by the rules of `match: number`: rounded to the
    decimals of the expected number, a percentage is a share of 1, and a unit that only one of them
    has is ignored.
    """
    if _is_same_currency(given.unit, expected.unit) or not (given.unit and expected.unit):
        if _meets(given.readings, expected):
            return True
        units = {given.unit, expected.unit}
        factor = Decimal("0.01") if given.unit else Decimal(100)
        shares = tuple(value * factor for value in given.readings)
        return units == {"%", ""} and _meets(shares, expected)
    return False


def _meets(readings: tuple[Decimal, ...], expected: Number) -> bool:
    distance = expected.last_place / 2 if expected.last_place < 1 else Decimal(0)
    return any(
        abs(value - wanted) <= distance for value in readings for wanted in expected.readings
    )


def _may_be_rounded(precise: Number, rounded: Number) -> bool:
    """Whether `rounded` may be `precise` with fewer decimals."""
    if rounded.last_place <= precise.last_place:
        return False
    return any(
        abs(value - other) <= rounded.last_place
        for value in precise.readings
        for other in rounded.readings
    )


def _is_same_currency(one: str, other: str) -> bool:
    return (
        one == other
        or other in _CURRENCIES_OF_SYMBOL.get(one, ())
        or one in _CURRENCIES_OF_SYMBOL.get(other, ())
    )


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", text).translate(_CHARACTERS)


def _to_number(match: re.Match[str], *, only_known_units: bool = False) -> Number:
    words = [(match[name] or "").casefold() for name in ("unit", "before")]
    kinds = [_UNITS.get(word) for word in words]
    magnitudes = _MAGNITUDES.get((match["magnitude"] or "").casefold().rstrip("."), _ONE)
    if kinds[1] and kinds[1][0] in _MONEY and words[0] in _MAGNITUDES_OF_MONEY:
        magnitudes, words, kinds = _MAGNITUDES_OF_MONEY[words[0]], words[1:], kinds[1:]
    known = next((kind for kind in kinds if kind), None)
    unknown = "" if only_known_units else next((word for word in words if word), "")
    unit, factors = known or (unknown, _ONE)
    scales = [Decimal(m) * Decimal(f) for m in magnitudes for f in factors]
    values, decimals = _read(match["numeral"])
    readings = dict.fromkeys((value * scale).normalize() for scale in scales for value in values)
    end = match.end() if known or not only_known_units else match.end("magnitude")
    text = match.string[match.start() : max(end, match.end("numeral"))].strip()
    return Number(text, tuple(readings), unit, Decimal(10) ** -decimals * scales[0])


def _read(numeral: str) -> tuple[list[Decimal], int]:
    """The possible values of a numeral, and the number of decimals of the first."""
    mantissa, mark, exponent = re.sub(f"[ '’{_WIDE_SPACES}]", "", numeral).lower().partition("e")
    separators = [character for character in mantissa if character in ",."]
    if len(set(separators)) == 2:
        texts = [mantissa.replace(separators[0], "").replace(separators[-1], ".")]
    elif len(separators) > 1:
        texts = [mantissa.replace(separators[0], "")]
    elif separators:
        integer, _, fraction = mantissa.partition(separators[0])
        digits = integer.lstrip("+-")
        texts = [f"{integer}.{fraction}"]
        if len(fraction) == 3 and len(digits) <= 3 and not digits.startswith("0") and not mark:
            texts.insert(1 if separators[0] == "." else 0, integer + fraction)
    else:
        texts = [mantissa]
    power = int(exponent) if mark else 0
    values = [Decimal(text).scaleb(power) for text in texts]
    return values, len(texts[0].partition(".")[2]) - power
