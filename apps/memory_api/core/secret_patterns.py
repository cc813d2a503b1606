"""The patterns of secrets: prefixes of providers, JWTs, key blocks, and names such as `password`
before a value.

There is no entropy check, so UUIDs, hashes, IDs and base64 data stay (docs/decisions/redaction.md).

Matching takes linear time: a pattern matches only at the start of a run of characters, and every
repetition is bounded or possessive. A test checks this.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecretPattern:
    """One kind of secret.

    The group `secret` of `regex`, or the whole match, is replaced if `is_secret` returns true.
    `regex` runs only on texts that contain one of `hints`. If not `is_case_sensitive`, hints and
    regex are lower case and are matched against the text in lower case; this is much faster than a
    case-insensitive regex.
    """

    kind: str
    hints: tuple[str, ...]
    regex: re.Pattern[str]
    is_secret: Callable[[re.Match[str], str], bool] = lambda match, secret: True
    is_case_sensitive: bool = True
    precise_hint: str = ""
    """A regular expression for the first pass over all patterns, if the hints are so short that
    they occur in most texts. It has the syntax that `re` and Rust's engine share, and accepts
    full-width characters in place of punctuation.
    """


def _token(
    kind: str,
    prefix: str,
    body: str,
    *hints: str,
    is_secret: Callable[[re.Match[str], str], bool] = lambda match, secret: True,
    precise_hint: str = "",
) -> SecretPattern:
    """A token with a fixed prefix at the start of a run of token characters, or after an escaped
    line break (`\\n` in JSON). The regex starts with the prefix and then looks behind it, so that
    the engine can search for a literal.
    """
    start = rf"(?:(?<![A-Za-z0-9_-]{prefix})|(?<=\\[nrt]{prefix}))"
    regex = f"{prefix}{start}{body}(?![A-Za-z0-9_-])"
    return SecretPattern(
        kind, hints or (prefix,), re.compile(regex), is_secret, precise_hint=precise_hint
    )


def _has_digit(match: re.Match[str], secret: str) -> bool:
    return any(character.isdigit() for character in secret)


_KEY_BLOCK = SecretPattern(
    "private_key",
    ("PRIVATE KEY",),
    re.compile(
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        # Atomic groups, because Python 3.11.2 has a bug with possessive quantifiers on groups.
        r"(?:(?>(?:[^-]|-(?!----)){0,20000})-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        # A truncated block: only whole lines of base64, so that text after it stays.
        r"|(?>(?:(?>(?:\\{1,4}[nrt]|[\s\"'+,]){1,16})[A-Za-z0-9+/=]{16,}+){1,2000}))"
    ),
)

_TOKENS = (
    _token("anthropic_key", "sk-ant-", r"[A-Za-z0-9_-]{16,}+"),
    _token("openai_key", "sk-", r"(?:proj|svcacct|admin|or-v1|lf)-[A-Za-z0-9_-]{16,}+"),
    _token("openai_key", "sk-", r"[A-Za-z0-9]{20,}+", is_secret=_has_digit),
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
    _token("webhook_secret", "whsec_", r"[A-Za-z0-9+/=_-]{20,}+"),
    _token("digitalocean_token", "do[opr]_v1_", r"[a-f0-9]{40,}+", "dop_v1_", "doo_v1_", "dor_v1_"),
    _token("vault_token", r"hv[sb]\.", r"[A-Za-z0-9_-]{20,}+", "hvs.", "hvb."),
    _token("doppler_token", r"dp\.(?:pt|st|ct|sa)\.", r"[A-Za-z0-9_.-]{30,}+", "dp."),
    _token("twilio_key", "SK", r"[a-f0-9]{32}", precise_hint="SK[a-f0-9]{32}"),
    _token(
        "discord_token",
        "[MNO][DTjwz]",
        r"[A-Za-z0-9_-]{20,28}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,45}+",
        *(f"{first}{second}" for first in "MNO" for second in "DTjwz"),
        precise_hint=r"[MNO][DTjwz][A-Za-z0-9_-]{20,28}\.[A-Za-z0-9_-]{6}\.",
    ),
    _token("jwt", "eyJ", r"[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+"),
)

_ADDRESSES = (
    SecretPattern(
        "telegram_token",
        (":AA",),
        re.compile(r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    ),
    SecretPattern(
        "webhook_url",
        ("hooks.slack.com/",),
        re.compile(
            r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_-]{20,}+)"
        ),
    ),
    SecretPattern(
        "webhook_url",
        ("/api/webhooks/",),
        re.compile(r"/api/webhooks/\d{15,21}/(?P<secret>[A-Za-z0-9_-]{40,}+)"),
    ),
    SecretPattern(
        "url_signature", ("sig=",), re.compile(r"[?&;]sig=(?P<secret>[A-Za-z0-9%+/=_-]{20,}+)")
    ),
    SecretPattern(
        "google_key",
        ("private_key_id",),
        re.compile(
            r"private_key_id\\{0,3}[\"']?\s{0,3}[:=]\s{0,3}\\{0,3}[\"']?(?P<secret>[a-f0-9]{40})"
        ),
    ),
)


def _is_download_command(match: re.Match[str], secret: str) -> bool:
    """Whether `-u name:value` belongs to a program that downloads, in the same line."""
    line = match.string[max(0, match.start() - 256) : match.start()].rpartition("\n")[2]
    return any(program in line for program in ("curl", "wget", "http")) and _is_value(secret)


def _is_option_value(match: re.Match[str], secret: str) -> bool:
    """Whether the value of an option such as `--token` looks generated and is no path."""
    has_digit = any(character.isdigit() for character in secret)
    return has_digit and secret[0] not in "/.~-" and _is_value(secret)


_SECRET_OPTION = r"--(?:[a-z0-9]{1,20}-){0,3}(?:token|secret|api-?key|access-?key|secret-?key)"
_OPTION_VALUE = r"(?:\s{1,4}|=)[\"']?(?P<secret>[^\s\"'\\,;]{8,256}+)"
_OPTIONS = (
    SecretPattern(
        "password",
        (" -u", "--user"),
        re.compile(
            r"\s(?:-u\s{0,3}|--user[\s=])[\"']?[^\s:\"'/]{1,64}:(?P<secret>[^\s\"'\\]{3,128})"
        ),
        is_secret=_is_download_command,
        is_case_sensitive=False,
    ),
    SecretPattern(
        "password",
        ("sshpass",),
        re.compile(r"sshpass\s{1,4}-p\s{0,3}[\"']?(?P<secret>[^\s\"'\\]{3,128})"),
        is_secret=lambda match, secret: _is_value(secret),
        is_case_sensitive=False,
    ),
    SecretPattern(
        "credential",
        ("--",),
        re.compile(_SECRET_OPTION + _OPTION_VALUE),
        is_secret=_is_option_value,
        is_case_sensitive=False,
        precise_hint=_SECRET_OPTION.replace("-", "[-－]", 2),
    ),
)

_HEADERS = (
    SecretPattern(
        "bearer_token",
        ("bearer",),
        re.compile(r"bearer\s{1,4}(?P<secret>[a-z0-9._~+/=-]{16,}+)"),
        is_secret=_has_digit,
        is_case_sensitive=False,
    ),
    SecretPattern(
        "basic_auth",
        ("authorization",),
        re.compile(
            r"authorization\\{0,3}[\"']?\s{0,3}[:=]\s{0,3}\\{0,3}[\"']?(?:basic|token|apikey|bot)\s{1,4}"
            r"(?P<secret>[a-z0-9+/=]{8,}+)"
        ),
        is_case_sensitive=False,
    ),
)


def _has_session_cookie(cookies: str) -> bool:
    """Whether a value in `name=value; name=value` looks generated: 8 or more characters, with a
    digit.
    """
    values = _COOKIE_VALUE.findall(cookies)
    return any(any(character.isdigit() for character in value) for value in values)


_COOKIES = SecretPattern(
    "cookie",
    ("cookie",),
    re.compile(
        r"cookie\\{0,3}[\"']?\s{0,3}[:=]\s{0,3}\\{0,3}[\"']?"
        r"(?P<secret>[a-z0-9_.\[\]-]{1,128}=[^\r\n\"'\\]{1,8000}+)"
    ),
    lambda match, secret: _has_session_cookie(secret),
    is_case_sensitive=False,
)
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


def _is_value(secret: str) -> bool:
    """Whether `secret` is a value and not a placeholder, variable, template or code expression."""
    if _PLACEHOLDER.fullmatch(secret) or secret[0] in "<$%{(" or _PROSE.search(secret):
        return False
    return not secret.startswith(("os.", "process.", "self.", "env.", "config.", "settings."))


_CONNECTION = re.compile(r"(?:host|server|data source|user id|uid|user|dbname|database)=[^\s,;)]")


def _is_password(match: re.Match[str], secret: str) -> bool:
    """Whether a value is a password. A quoted value is. A bare word is only if it has a digit or a
    special character or is part of a connection string (`host=db user=app password=word`);
    otherwise it is prose or code.
    """
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
    """Whether the name is that of a credential and the value looks generated. The name alone is not
    enough, because such names are common.
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
# A quoted value ends at the closing quote and may have spaces. A bare value ends at a space.
_PASSWORD = (
    r"(?P<secret>(?:(?(quote)(?>(?:(?!(?P=quote))[^\r\n\\]){4,256})(?=(?P=quote))|(?!))"
    rf"|{_CHARACTERS}{{4,256}}+{_NO_CALL}))"
)

_ASSIGNED = (
    SecretPattern(
        "password",
        ("passw", "passphrase", "pwd", "パスワード"),
        re.compile(r"(?:password|passwd|passphrase|pwd|パスワード)" + _ASSIGN + _PASSWORD),
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
        re.compile(
            r"(?P<name>key|token|secret|signature)"
            + f"{_ASSIGN}(?P<secret>{_CHARACTERS}{{12,256}}+){_NO_CALL}"
        ),
        is_secret=_is_credential,
        is_case_sensitive=False,
        precise_hint=r"(?:key|token|secret|signature)[\\\"'＂＇]{0,4}\s{0,3}[=:＝：]",
    ),
)

_URL = SecretPattern(
    "password",
    ("://",),
    re.compile(r"://[^\s:/@\"'<>\\]{0,128}:(?P<secret>[^\s/@\"'<>\\]{1,256})@(?=[A-Za-z0-9\[_-])"),
    is_secret=lambda match, secret: secret[0] not in "<$%{[*",
    precise_hint=r"[:：][/／]{2}[^\s:/@]{0,128}[:：][^\s/@]{1,256}[@＠]",
)

SECRET_PATTERNS = (
    *(_KEY_BLOCK, *_TOKENS, *_ADDRESSES),
    *(*_HEADERS, _COOKIES, _URL, *_OPTIONS, *_ASSIGNED),
)
