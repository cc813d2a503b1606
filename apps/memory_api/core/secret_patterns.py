"""The patterns of secrets: prefixes of providers, JWTs, key blocks, and names such as `password`
before a value. Most are in `secret_patterns.toml`: `tokens` have a fixed `prefix`, `forms` are
marked in another way, `names` write a name and its secret without a sign of assignment. `check` is
a function of this module.

There is no entropy check, so UUIDs, hashes, IDs and base64 data stay (docs/decisions/redaction.md).

Matching takes linear time: a pattern matches only at the start of a run of characters, and every
repetition is bounded or possessive. A test checks this.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Check = Callable[[re.Match[str], str], bool]


@dataclass(frozen=True, slots=True)
class SecretPattern:
    """One kind of secret.

    The group `secret` of `regex`, or the whole match, is replaced if `is_secret` returns true.
    `regex` runs only on texts that contain one of `hints`. If not `is_case_sensitive`, hints and
    regex are lower case and are matched against the text in lower case; this is much faster than a
    case-insensitive regex.
    """

    kind: str
    hints: Sequence[str]
    regex: re.Pattern[str]
    is_secret: Check
    is_case_sensitive: bool = True
    precise_hint: str = ""
    """A regular expression for the first pass over all patterns, if the hints are so short that
    they occur in most texts. It has the syntax that `re` and Rust's engine share, and accepts
    full-width characters in place of punctuation.
    """


def _always(match: re.Match[str], secret: str) -> bool:
    return True


def has_digit(match: re.Match[str], secret: str) -> bool:
    return any(character.isdigit() for character in secret)


def is_value(match: re.Match[str], secret: str) -> bool:
    """Whether `secret` is a value and not a placeholder, variable, template or code expression."""
    if _PLACEHOLDER.fullmatch(secret) or secret[0] in "<$%{(" or _PROSE.search(secret):
        return False
    return not secret.startswith(("os.", "process.", "self.", "env.", "config.", "settings."))


def is_no_variable(match: re.Match[str], secret: str) -> bool:
    return secret[0] not in "<$%{[*"


def is_download_command(match: re.Match[str], secret: str) -> bool:
    """Whether `-u name:value` belongs to a program that downloads, in the same line."""
    line = match.string[max(0, match.start() - 256) : match.start()].rpartition("\n")[2]
    is_download = any(program in line for program in ("curl", "wget", "http"))
    return is_download and is_value(match, secret)


def is_option_value(match: re.Match[str], secret: str) -> bool:
    """Whether the value of an option such as `--token` looks generated and is no path."""
    return has_digit(match, secret) and secret[0] not in "/.~-" and is_value(match, secret)


def has_session_cookie(match: re.Match[str], cookies: str) -> bool:
    """Whether a value in `name=value; name=value` looks generated: 8 or more characters, with a
    digit.
    """
    return any(has_digit(match, value) for value in _COOKIE_VALUE.findall(cookies))


_COOKIE_VALUE = re.compile(r"=\s{0,3}([^;,\s]{8,})")


_PLACEHOLDER = re.compile(
    r"(?i)[*.xX•_-]{1,200}|null|none|nil|true|false|undefined|empty|optional|required|str|string|text|value|"
    r"(?:your|my|the|some|an?)[ _-].{0,200}|\[secret:.{0,200}|"
    r"(?:user|new|old|current|db|database|admin|root|api|access|auth|client|e?mail|login|input|confirm)?"
    r"[ _-]?(?:password|passwd|pwd|passphrase|pass|secret|token|key|credentials?)s?",
    re.DOTALL,
)

_PROSE = re.compile(
    r"(?i)^(?:enter|type|choose|repeat|confirm|please|must|should)\s|\s(?:must|should)\s"
    r"|\s(?:required|invalid|incorrect|wrong|expired|missing|characters|letters)\b|ください|です"
)
"""Text of forms and error messages about passwords."""

_CONNECTION = re.compile(r"(?:host|server|data source|user id|uid|user|dbname|database)=[^\s,;)]")


def _is_password(match: re.Match[str], secret: str) -> bool:
    """Whether a value is a password. A quoted value is. A bare word is only if it has a digit or a
    special character or is part of a connection string (`host=db user=app password=word`);
    otherwise it is prose or code.
    """
    if not is_value(match, secret):
        return False
    plain = all(character.isalpha() or character in "_." for character in secret)
    return match["quote"] is not None or not plain or _in_connection_string(match)


def _in_connection_string(match: re.Match[str]) -> bool:
    text, start, end = match.string, match.start("secret"), match.end("secret")
    is_argument_of_a_call = text[end : end + 1] in {",", ")"}
    around = text[max(0, match.start() - 80) : end + 80]
    return text[start - 1] == "=" and not is_argument_of_a_call and bool(_CONNECTION.search(around))


_CREDENTIAL_NAME = re.compile(
    r"(?:api|access|account|secret|secret[_-]?access|shared[_-]?access)[_-]?key"
    r"|(?:access|auth|refresh|bearer|id|session|bot|api|secret)[_-]?token"
    r"|(?:client|app)[_-]?secret|shared[_-]?access[_-]?signature|(?<![a-z_-])(?:token|secret)"
)
"""Common names of credentials. A value that mixes letters and digits is one."""
_SECRET_NAME = re.compile(
    r"(?:private|encryption|signing|master|license|licence|subscription|client|server|service|auth"
    r"|deploy|shared|storage|host|session)[_-]?key(?:[_-]data)?"
    r"|(?<=[a-z0-9])[_-](?:token|secret)|(?<=[a-z])(?:token|secret)"
)
"""Other names that say secret. A value is one if it also looks generated."""
_PUBLIC_NAME = re.compile(
    r"(?:public|primary|foreign|partition|sort|cache|idempotency|object|row|dedup|lookup|map|hash"
    r"|group|index|item|bullet|issue|project|translation|i18n|message|page|next|prev|continuation"
    r"|cursor|sync|resume|eos|bos|pad|unk|sep|cls|mask|special|stop|start|end|last|first|input"
    r"|output|prompt|completion|max|min|num)s?[_-]?(?:key|token|secret)"
)
"""Names that end like those of credentials and are none."""
_NAME_CHARACTERS = 40


def _is_credential(match: re.Match[str], secret: str) -> bool:
    """Whether the name is that of a credential and the value looks generated. The name alone is not
    enough, because such names are common.
    """
    name_start = max(0, match.start() - _NAME_CHARACTERS)
    name = match.string[name_start : match.end("name")].lower()
    if not is_value(match, secret) or not _is_mixed(secret):
        return False
    if any(found.end() == len(name) for found in _CREDENTIAL_NAME.finditer(name)):
        return True
    if any(found.end() == len(name) for found in _PUBLIC_NAME.finditer(name)):
        return False
    in_capitals = match["name"].isupper()
    says_secret = in_capitals or any(
        found.end() == len(name) for found in _SECRET_NAME.finditer(name)
    )
    return says_secret and _looks_generated(secret)


def _is_mixed(secret: str) -> bool:
    return any(c.isdigit() for c in secret) and any(c.isalpha() for c in secret)


_WORD = re.compile(r"[A-Za-z0-9]{6,}+")
_TIMESTAMP = re.compile(r"\d{8}t\d{4,6}z?", re.IGNORECASE)


def _looks_generated(secret: str) -> bool:
    """Whether one word of the value changes twice or more between letters and digits, or has 16 or
    more of both. Words with a number, versions, dates and paths of names do not.
    """
    return any(
        len(_CHANGE.findall(word)) >= 2 or len(word) >= 16
        for word in _WORD.findall(secret)
        if _is_mixed(word) and not _TIMESTAMP.fullmatch(word)
    )


_CHANGE = re.compile(r"(?<=[A-Za-z])\d|(?<=\d)[A-Za-z]")


def is_generated(match: re.Match[str], secret: str) -> bool:
    return is_value(match, secret) and _looks_generated(secret)


def is_named_secret(match: re.Match[str], secret: str) -> bool:
    """Whether `name=secret` is a secret, for the formats that write it in another way."""
    text = f"{match['name']}='{secret}'"
    return any(
        pattern.is_secret(found, secret)
        for pattern in ASSIGNED
        if (found := pattern.regex.search(text if pattern.is_case_sensitive else text.lower()))
    )


# optional closing quote, = or :, optional opening quote, value
_ASSIGN = r"\\{0,3}[\"']?\s{0,3}(?:=>|:=|=|:|：|%3d)\s{0,3}(?P<quote>\\{0,3}[\"'])?"
_CHARACTERS = r"[^\s\"'\\,;&<>()\[\]{}`|。、]"
_NO_CALL = r"(?![(\[])"
# A quoted value ends at the closing quote and may have spaces and escaped quotes (the opening quote
# may be escaped itself). A bare value ends at a space.
_QUOTED = r"(?:(?!(?P=quote))(?:\\{3}[\"']|\\[^\r\n]|[^\r\n\\])){4,256}"
_PASSWORD = (
    rf"(?P<secret>(?:(?(quote)(?>{_QUOTED})(?=(?P=quote))|(?!))"
    rf"|{_CHARACTERS}{{4,256}}+{_NO_CALL}))"
)
_CREDENTIAL = f"{_ASSIGN}(?P<secret>{_CHARACTERS}{{12,4096}}+){_NO_CALL}"
_FOREIGN = (
    "パスワード",
    "密码",
    "密碼",
    "비밀번호",
    "contraseña",
    "passwort",
    "kennwort",
    "пароль",
)
_LOGIN_PASS = (
    r"(?:ssh|db|database|user|admin|root|smtp|mail|ftp|become|sudo|proxy|http|redis|mysql|pg)"
    r"[_-]?pass"
)

ASSIGNED = (
    SecretPattern(
        "password",
        ("passw", "passphrase", "pwd", "_pass", "-pass", *_FOREIGN),
        re.compile(
            rf"(?:password|passwd|passphrase|pwd|{_LOGIN_PASS}|{'|'.join(_FOREIGN)})"
            + _ASSIGN
            + _PASSWORD
        ),
        is_secret=_is_password,
        is_case_sensitive=False,
    ),
    SecretPattern(
        "password",
        ("--pass", "--pwd"),
        re.compile(r"--(?:password|passwd|passphrase|pass|pwd)\s(?P<quote>[\"'])?" + _PASSWORD),
        is_secret=_is_password,
        is_case_sensitive=False,
    ),
    SecretPattern(
        "credential",
        ("key", "token", "secret", "signature"),
        re.compile(r"(?P<name>key(?:[_-]data)?|token|secret|signature)" + _CREDENTIAL),
        is_secret=_is_credential,
        is_case_sensitive=False,
        precise_hint=r"(?:key|key[_-]data|token|secret|signature)"
        r"[\\\"'＂＇]{0,4}\s{0,3}(?:[=:＝：]|%3d)",
    ),
    SecretPattern(
        "credential",
        ("_KEY", "_TOKEN", "_SECRET", "_PASS", "_PW", "_PAT"),
        re.compile("(?P<name>_(?:KEY|TOKEN|SECRET|PASS|PW|PAT))" + _CREDENTIAL),
        is_secret=_is_credential,
        precise_hint=r"_(?:KEY|TOKEN|SECRET|PASS|PW|PAT)[\\\"'＂＇]{0,4}\s{0,3}[=:＝：]",
    ),
    SecretPattern(
        "password",
        ("pass=", "pass ="),
        re.compile(rf"(?<![a-z_-])pass(?P<quote>)\s?=\s?[\"']?(?P<secret>{_CHARACTERS}{{8,256}}+)"),
        is_secret=is_generated,
        is_case_sensitive=False,
    ),
)
"""After a name, a sign of assignment."""

KEY_BLOCK = SecretPattern(
    "private_key",
    ("PRIVATE KEY",),
    re.compile(
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        # Atomic groups, because Python 3.11.2 has a bug with possessive quantifiers on groups.
        r"(?:(?>(?:[^-]|-(?!----)){0,20000})-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        # A truncated block: only whole lines of base64, so that text after it stays.
        r"|(?>(?:(?>(?:\\{1,4}[nrt]|[\s\"'+,]){1,16})[A-Za-z0-9+/=]{16,}+){1,2000}))"
    ),
    _always,
)


def _token(
    kind: str, prefix: str, body: str, hints: Sequence[str] = (), **options: Any
) -> dict[str, Any]:
    """A token with a fixed prefix at the start of a run of token characters, or after an escaped
    line break (`\\n` in JSON). The regex starts with the prefix and then looks behind it, so that
    the engine can search for a literal.
    """
    start = rf"(?:(?<![A-Za-z0-9_-]{prefix})|(?<=\\[nrt]{prefix}))"
    regex = f"{prefix}{start}{body}(?![A-Za-z0-9_-])"
    return {"kind": kind, "hints": hints or (prefix,), "regex": regex, **options}


def _load(entry: dict[str, Any]) -> SecretPattern:
    """A pattern of the file."""
    regex: str = entry.pop("regex")
    is_secret: Check = globals()[entry.pop("check", "_always")]
    return SecretPattern(regex=re.compile(regex), is_secret=is_secret, **entry)


with Path(__file__).with_suffix(".toml").open("rb") as _file:
    _FILE = tomllib.load(_file)

SECRET_PATTERNS = (
    KEY_BLOCK,
    *(_load(_token(**entry)) for entry in _FILE["tokens"]),
    *map(_load, _FILE["forms"]),
    *ASSIGNED,
    *map(_load, _FILE["names"]),
)
