"""Personal data in text: e-mail addresses, phone numbers, numbers of cards and accounts, IP
addresses.

Off unless HANSEI_PII_REDACTION is set. A regular expression finds candidates in linear time. A
library decides: `phonenumbers` (a port of Google's libphonenumber) for phone numbers,
`python-stdnum` for numbers with check digits, the standard library for IP addresses. Both libraries
are in the extra `pii` and use no network. Names and postal addresses are not found
(docs/decisions/personal-data.md).
"""

from __future__ import annotations

import importlib
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

from memory_api.core.errors import ConfigurationError

KINDS = ("email", "phone", "credit_card", "iban", "us_ssn", "ip_address")
MAX_CHECKED = 20_000
"""Phone and account numbers in one trace or body that are checked, which bounds the time. Further
ones are replaced without a check."""
_CHECKED: ContextVar[Counter[_Check] | None] = ContextVar("checked", default=None)
"""How many numbers were checked in the current trace or body."""

_START, _END = r"(?<![\w.+-])", r"(?![\w-])"
_EMAIL = re.compile(
    r"(?<![\w.%+-])[\w.%+-]{1,64}@(?:[a-zA-Z0-9-]{1,63}\.){1,8}[a-zA-Z]{2,24}(?![\w-])", re.ASCII
)
_INTERNATIONAL_PHONE = re.compile(
    r"(?<![\w+])\+\d(?:(?:[ ()/-]{0,3}\d){6,14}|(?:\.?\d){6,14})(?![\w-]|\.\d)", re.ASCII
)
_NATIONAL_PHONE = re.compile(
    r"(?<![\w.+(-])\(?\d{2,5}\)?(?:[ .-]{1,2}\d{2,8}){1,4}(?![\w-]|[.:]\d)", re.ASCII
)
_CARD = re.compile(
    _START + r"(?:[25]\d{3}|3[04-9]\d{2}|4\d{3}|6\d{3})(?:[ -]?\d){9,15}" + _END, re.ASCII
)
_CARD_LENGTHS = {
    ("34", "37"): {15},  # American Express
    ("2", "5"): {16},  # Mastercard
    ("4",): {13, 16, 19},  # Visa
    ("3", "6"): {14, 16, 17, 18, 19},  # Diners Club, JCB, Discover, Maestro, UnionPay
}
"""Number of digits by first digits."""
_IBAN = re.compile(
    _START + r"[A-Z]{2}\d{2}(?:[A-Z0-9]{11,30}|(?: [A-Z0-9]{4}){2,7}(?: [A-Z0-9]{1,3})?)" + _END,
    re.ASCII,
)
_SSN = re.compile(_START + r"\d{3}-\d{2}-\d{4}" + _END, re.ASCII)
_IPV4 = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)", re.ASCII)
_IPV6 = re.compile(r"(?<![\w.:-])[0-9a-fA-F:]{3,39}(?![\w:-])", re.ASCII)
_DIGITS = re.compile(r"\d{1,32}")


class PersonalDataSpan(NamedTuple):
    """A place in a text, and what is there."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class PersonalDataOptions:
    """What is found. Picklable, for processes that redact large traces."""

    kinds: tuple[str, ...] = ()
    phone_region: str | None = None
    """Country (ISO 3166, two letters) of phone numbers without a country code. None: they stay."""

    @classmethod
    def parse(cls, kinds: str, phone_region: str | None) -> PersonalDataOptions:
        """From the settings. Raises `ValueError`."""
        return cls(parse_kinds(kinds), phone_region)


@dataclass(frozen=True, slots=True)
class _Check:
    """Candidates of one kind and what decides about them. `is_limited`: up to `MAX_CHECKED`."""

    kind: str
    pattern: re.Pattern[str]
    is_valid: Callable[[str], bool]
    is_limited: bool = False

    def find(self, text: str, checked: Counter[_Check]) -> Iterator[PersonalDataSpan]:
        for match in self.pattern.finditer(text):
            if self.is_limited:
                checked[self] += 1
            if checked[self] > MAX_CHECKED or self.is_valid(match[0]):
                yield PersonalDataSpan(match.start(), match.end(), self.kind)


class PersonalDataDetector:
    """Finds the kinds of `options`. Raises `ConfigurationError` without the extra `pii`."""

    def __init__(self, options: PersonalDataOptions) -> None:
        self.options = options
        self._phonenumbers = _load("phonenumbers")
        self._luhn, self._iban = _load("stdnum.luhn"), _load("stdnum.iban")
        self._ssn = _load("stdnum.us.ssn")
        checks = [
            _Check("email", _EMAIL, _is_always),
            _Check("iban", _IBAN, self._is_iban, is_limited=True),
            _Check("credit_card", _CARD, self._is_card),
            _Check("us_ssn", _SSN, self._is_ssn),
            *self._phone_checks(),
            _Check("ip_address", _IPV4, _is_public_address),
            _Check("ip_address", _IPV6, _is_public_address),
        ]
        self._checks = [check for check in checks if check.kind in options.kinds]

    def find(self, text: str) -> list[PersonalDataSpan]:
        """The places of personal data, in order, without overlap. An earlier kind wins."""
        spans: list[PersonalDataSpan] = []
        shared = _CHECKED.get()
        checked = Counter[_Check]() if shared is None else shared
        for check in self._checks:
            if found := list(check.find(text, checked)):
                spans += found
                text = _blank(text, found)
        return sorted(spans)

    def _phone_checks(self) -> list[_Check]:
        region = self.options.phone_region
        international = _Check("phone", _INTERNATIONAL_PHONE, self._is_phone, is_limited=True)
        if region is None:
            return [international]
        if region not in self._phonenumbers.SUPPORTED_REGIONS:
            raise ConfigurationError(
                f"HANSEI_PII_PHONE_REGION={region} is not a country with phone numbers."
                " Set two letters, such as DE, JP or US."
            )
        national = _Check("phone", _NATIONAL_PHONE, self._is_national_phone, is_limited=True)
        return [international, national]

    def _is_phone(self, text: str) -> bool:
        try:
            return self._phonenumbers.is_valid_number(self._phonenumbers.parse(text))
        except self._phonenumbers.NumberParseException:
            return False

    def _is_national_phone(self, text: str) -> bool:
        """Whether the text has the groups of digits in which its country writes the number. Dates
        and version numbers have others.
        """
        library = self._phonenumbers
        try:
            number = library.parse(text, self.options.phone_region)
        except library.NumberParseException:
            return False
        if not library.is_valid_number(number):
            return False
        written = library.format_number(number, library.PhoneNumberFormat.NATIONAL)
        return _DIGITS.findall(written) == _DIGITS.findall(text)

    def _is_card(self, text: str) -> bool:
        digits = text.replace(" ", "").replace("-", "")
        lengths = next(
            lengths for starts, lengths in _CARD_LENGTHS.items() if digits.startswith(starts)
        )
        return len(digits) in lengths and self._luhn.is_valid(digits)

    def _is_iban(self, text: str) -> bool:
        return self._iban.is_valid(text)

    def _is_ssn(self, text: str) -> bool:
        return self._ssn.is_valid(text)


class PersonalDataSetting:
    """What this process redacts besides secrets. Set once at startup: redaction of text happens in
    many places, which do not know the settings.
    """

    def __init__(self) -> None:
        self.detector: PersonalDataDetector | None = None

    def configure(self, options: PersonalDataOptions) -> None:
        """Raises `ConfigurationError` without the extra `pii`."""
        if not options.kinds:
            self.detector = None
        elif self.detector is None or self.detector.options != options:
            self.detector = PersonalDataDetector(options)


PERSONAL_DATA = PersonalDataSetting()


@contextmanager
def one_limit() -> Generator[None]:
    """All texts inside share `MAX_CHECKED`. Without it, each text has its own limit."""
    token = _CHECKED.set(Counter()) if _CHECKED.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _CHECKED.reset(token)


def parse_kinds(value: str) -> tuple[str, ...]:
    """The kinds in a setting: `off`, `all`, or names separated by commas. Raises `ValueError`."""
    names = [name.strip() for name in value.split(",") if name.strip()]
    if names == ["off"]:
        return ()
    if names == ["all"]:
        return KINDS
    if not names or not set(names) <= set(KINDS):
        raise ValueError(f"must be off, all, or some of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in names)


def _blank(text: str, spans: Sequence[PersonalDataSpan]) -> str:
    """The text with spaces at these places, so that no later check finds a part of them."""
    parts: list[str] = []
    previous_end = 0
    for start, end, _ in spans:
        parts += (text[previous_end:start], " " * (end - start))
        previous_end = end
    return "".join((*parts, text[previous_end:]))


def _is_always(text: str) -> bool:
    return True


def _is_public_address(text: str) -> bool:
    """Addresses of private networks and of the machine itself belong to no person."""
    try:
        return ipaddress.ip_address(text).is_global
    except ValueError:
        return False


def _load(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "HANSEI_PII_REDACTION is set, but its libraries are not installed."
            " Install hansei-server[pii], or set it to off."
        ) from error
