"""What a secret looks like: a table of named patterns, each for something whose form gives it away.

A provider's prefix, a JWT, a key block, or a name such as `password` before a value. No entropy
guessing: UUIDs, hashes, ids and base64 data stay (docs/decisions/redaction.md).

Linear in the length of the text: a pattern may start only where its run of characters starts, and
every repetition is bounded or possessive (a test reads the patterns and says so).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern`'s group `secret` (else the whole match) is replaced when `wanted` says so. The rule
    is only tried when
    one of `hints` is in the text. Unless `exact`, hints and pattern are in lower case and read the
    text in lower case,
    which is many times faster than a pattern that ignores case."""

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    wanted: Callable[[re.Match[str], str], bool] = lambda match, secret: True
    exact: bool = True


def _token(
    kind: str,
    prefix: str,
    body: str,
    *hints: str,
    wanted: Callable[[re.Match[str], str], bool] = lambda match, secret: True,
) -> Rule:
    """A key known by its prefix, which stands where a run of token characters begins, or after an
    escaped line break
    (`\\n` in JSON). The prefix comes first in the pattern and looks behind itself, so that the
    search is for a literal.
    """
    begins = rf"(?:(?<![A-Za-z0-9_-]{prefix})|(?<=\\[nrt]{prefix}))"
    pattern = f"{prefix}{begins}{body}(?![A-Za-z0-9_-])"
    return Rule(kind, hints or (prefix,), re.compile(pattern), wanted)


def _has_digit(match: re.Match[str], secret: str) -> bool:
    return any(character.isdigit() for character in secret)


_KEY_BLOCK = Rule(
    "private_key",
    ("PRIVATE KEY",),
    re.compile(
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        # Atomic groups, not possessive ones: Python 3.11.2 goes wrong with those around groups.
        r"(?:(?>(?:[^-]|-(?!----)){0,20000})-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        # A block that was cut: whole lines of base64 only, so that prose after it stays.
        r"|(?>(?:(?>(?:\\{1,4}[nrt]|[\s\"'+,]){1,16})[A-Za-z0-9+/=]{16,}+){1,2000}))"
    ),
)

_TOKENS = (
    _token("anthropic_key", "sk-ant-", r"[A-Za-z0-9_-]{16,}+"),
    _token("openai_key", "sk-", r"(?:proj|svcacct|admin|or-v1|lf)-[A-Za-z0-9_-]{16,}+"),
    _token("openai_key", "sk-", r"[A-Za-z0-9]{20,}+", wanted=_has_digit),
    _token("hansei_key", "hsk_", r"[A-Za-z0-9]{8,64}_[A-Za-z0-9_-]{16,}+"),
    _token("aws_key", "A[KS]IA", r"[0-9A-Z]{16}", "AKIA", "ASIA"),
    _token(
        "github_token", "gh[pousr]_", r"[A-Za-z0-9]{30,}+", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"
    ),
    _token("github_token", "github_pat_", r"[A-Za-z0-9_]{30,}+"),
    _token("gitlab_token", "glpat-", r"[A-Za-z0-9_-]{20,}+"),
    _token("slack_token", "xox[abeprs]-", r"[A-Za-z0-9-]{10,}+", "xox"),
    _token("slack_token", "xapp-", r"[A-Za-z0-9-]{20,}+"),
    _token("google_key", "AIza", r"[A-Za-z0-9_-]{35}"),
    _token("google_key", "GOCSPX-", r"[A-Za-z0-9_-]{20,}+"),
    _token("stripe_key", "[sr]k_(?:live|test)_", r"[A-Za-z0-9]{16,}+", "k_live_", "k_test_"),
    _token("huggingface_token", "hf_", r"[A-Za-z0-9]{30,}+"),
    _token("groq_key", "gsk_", r"[A-Za-z0-9]{40,}+"),
    _token("npm_token", "npm_", r"[A-Za-z0-9]{36}"),
    _token("pypi_token", "pypi-", r"[A-Za-z0-9_-]{50,}+"),
    _token("sendgrid_key", r"SG\.", r"[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}+", "SG."),
    _token("jwt", "eyJ", r"[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+"),
)

_HEADERS = (
    Rule(
        "bearer_token",
        ("bearer",),
        re.compile(r"bearer\s{1,4}(?P<secret>[a-z0-9._~+/=-]{16,}+)"),
        wanted=_has_digit,
        exact=False,
    ),
    Rule(
        "basic_auth",
        ("authorization",),
        re.compile(
            r"authorization\\{0,3}[\"']?\s{0,3}[:=]\s{0,3}\\{0,3}[\"']?basic\s{1,4}"
            r"(?P<secret>[a-z0-9+/=]{8,}+)"
        ),
        exact=False,
    ),
)

_COOKIES = Rule(
    "cookie",
    ("cookie",),
    re.compile(
        r"cookie\\{0,3}[\"']?\s{0,3}[:=]\s{0,3}\\{0,3}[\"']?"
        r"(?P<secret>[a-z0-9_.\[\]-]{1,128}=[^\r\n\"'\\]{1,8000}+)"
    ),
    lambda match, secret: _names_a_session(secret),
    exact=False,
)
_COOKIE_VALUE = re.compile(r"=\s{0,3}([^;,\s]{8,})")


def _names_a_session(cookies: str) -> bool:
    """Whether any of `name=value; name=value` looks made by a machine: long, with a digit."""
    values = _COOKIE_VALUE.findall(cookies)
    return any(any(character.isdigit() for character in value) for value in values)


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
"""What forms and errors say about a password, in several words."""


def _is_value(secret: str) -> bool:
    """Not a placeholder, a variable, a template or an expression of code."""
    if _PLACEHOLDER.fullmatch(secret) or secret[0] in "<$%{(" or _PROSE.search(secret):
        return False
    return not secret.startswith(("os.", "process.", "self.", "env.", "config.", "settings."))


_CONNECTION = re.compile(r"(?:host|server|data source|user id|uid|user|dbname|database)=[^\s,;)]")


def _is_password(match: re.Match[str], secret: str) -> bool:
    """A quoted value counts as it is; a bare word is prose or code unless it has a digit or a
    sign, or stands in a connection string (`host=db user=app password=word`)."""
    if not _is_value(secret):
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


def _is_credential(match: re.Match[str], secret: str) -> bool:
    """The name is one of a credential; and since such names are common, the value looks made by a
    machine.
    """
    name_start = max(0, match.start() - 20)
    name = match.string[name_start : match.end("name")]
    if not any(found.end() == len(name) for found in _CREDENTIAL_NAME.finditer(name)):
        return False
    mixed = any(c.isdigit() for c in secret) and any(c.isalpha() for c in secret)
    return mixed and _is_value(secret)


# optional closing quote, = or :, optional opening quote, value
_ASSIGN = r"\\{0,3}[\"']?\s{0,3}(?:=>|:=|=|:|：)\s{0,3}(?P<quote>\\{0,3}[\"'])?"
_CHARACTERS = r"[^\s\"'\\,;&<>()\[\]{}`|。、]"
_NO_CALL = r"(?![(\[])"
# In quotation marks up to the next of them, spaces and all; else up to the next space.
_PASSWORD = (
    r"(?P<secret>(?:(?(quote)(?>(?:(?!(?P=quote))[^\r\n\\]){4,256})(?=(?P=quote))|(?!))"
    rf"|{_CHARACTERS}{{4,256}}+{_NO_CALL}))"
)

_ASSIGNED = (
    Rule(
        "password",
        ("passw", "passphrase", "pwd", "パスワード"),
        re.compile(r"(?:password|passwd|passphrase|pwd|パスワード)" + _ASSIGN + _PASSWORD),
        wanted=_is_password,
        exact=False,
    ),
    Rule(
        "password",
        ("--pass", "--pwd"),
        re.compile(r"--(?:password|passwd|passphrase|pass|pwd)\s(?P<quote>[\"'])?" + _PASSWORD),
        wanted=_is_password,
        exact=False,
    ),
    Rule(
        "credential",
        ("key", "token", "secret", "signature"),
        re.compile(
            r"(?P<name>key|token|secret|signature)"
            + f"{_ASSIGN}(?P<secret>{_CHARACTERS}{{12,256}}+){_NO_CALL}"
        ),
        wanted=_is_credential,
        exact=False,
    ),
)

_URL = Rule(
    "password",
    ("://",),
    re.compile(r"://[^\s:/@\"'<>\\]{0,128}:(?P<secret>[^\s/@\"'<>\\]{1,256})@(?=[A-Za-z0-9\[_-])"),
    wanted=lambda match, secret: secret[0] not in "<$%{[*",
)

RULES = (_KEY_BLOCK, *_TOKENS, *_HEADERS, _COOKIES, _URL, *_ASSIGNED)
