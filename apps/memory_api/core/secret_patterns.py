"""The patterns of secrets: prefixes of providers, JWTs, key blocks, and names such as `password`
before a value.

There is no entropy check, so UUIDs, hashes, IDs and base64 data stay (docs/decisions/redaction.md).

Matching takes linear time: a pattern matches only at the start of a run of characters, and every
repetition is bounded or possessive. A test checks this.
"""

from __future__ import annotations

import re

from memory_api.core.secret_assignments import (
    ASSIGNED,
    is_generated,
    is_named_secret,
    is_value,
)
from memory_api.core.secret_tokens import KEY_BLOCK, TOKENS, SecretPattern, has_digit

_ADDRESSES = (
    SecretPattern(
        "telegram_token",
        (":A",),
        re.compile(r"(?<!\d)\d{6,10}:A[A-Za-z0-9_-]{33,34}(?![A-Za-z0-9_-])"),
        is_secret=has_digit,
        precise_hint=r"[0-9][:：]A[A-Za-z0-9_-]{8}",
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
    return any(program in line for program in ("curl", "wget", "http")) and is_value(secret)


def _is_option_value(match: re.Match[str], secret: str) -> bool:
    """Whether the value of an option such as `--token` looks generated and is no path."""
    has_digit = any(character.isdigit() for character in secret)
    return has_digit and secret[0] not in "/.~-" and is_value(secret)


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
        is_secret=lambda match, secret: is_value(secret),
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
        is_secret=has_digit,
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

_URL = SecretPattern(
    "password",
    ("://",),
    re.compile(
        r"://[^\s:/@\"'<>\\\[]{0,128}:(?P<secret>[^\s/@\"'<>\\]{1,256})@(?=[A-Za-z0-9\[_-])"
    ),
    is_secret=lambda match, secret: secret[0] not in "<$%{[*",
    precise_hint=r"[:：][/／]{2}[^\s:/@]{0,128}[:：][^\s/@]{1,256}[@＠]",
)

_USER = SecretPattern(
    "credential",
    ("://",),
    re.compile(r"://(?P<secret>[^\s:/@\"'<>\\.]{16,256})@(?=[A-Za-z0-9\[_-])"),
    is_secret=is_generated,
    precise_hint=r"[:：][/／]{2}[^\s:/@.]+[@＠]",
)

_NAMED = (
    SecretPattern(
        "credential",  # {"name": "API_KEY", "value": "…"} and <add key="ApiKey" value="…"/>
        ("value",),
        re.compile(
            r"(?:name|key)\\{0,3}[\"']?\s{0,3}[:=]\s{0,3}\\{0,3}[\"']?(?P<name>[\w.-]{2,64})\\{0,3}"
            r"[\"']?,?\s{0,20}\\{0,3}[\"']?value\\{0,3}[\"']?\s{0,3}[:=]\s{0,3}\\{0,3}[\"']?"
            r"(?P<secret>[^\s\"'\\]{4,4096}+)"
        ),
        is_secret=is_named_secret,
        is_case_sensitive=False,
        precise_hint=r"value[\\\"'＂＇]{0,4}\s{0,3}[=:＝：]",
    ),
    SecretPattern(
        "credential",  # <password>…</password>
        ("</",),
        re.compile(r"<(?P<name>[\w.:-]{3,64})>\s{0,3}(?P<secret>[^\s<>]{4,4096}+)\s{0,3}</"),
        is_secret=is_named_secret,
        is_case_sensitive=False,
        precise_hint=r"[＜<][/／][^\s>]*(?:pass|pwd|token|secret|key)",
    ),
    SecretPattern(
        "credential",  # aws configure set aws_secret_access_key …
        (" set ",),
        re.compile(
            r"set(?<=\sset)\s{1,4}(?P<name>[\w./:-]{3,128})\s{1,4}[\"']?"
            r"(?P<secret>[^\s\"'\\]{8,4096}+)"
        ),
        is_secret=is_named_secret,
        is_case_sensitive=False,
        precise_hint=r"\sset\s{1,4}[^\s]*(?:key|token|secret|passw)",
    ),
    SecretPattern(
        "password",  # .netrc
        ("machine",),
        re.compile(
            r"machine\s{1,4}[^\s]{1,128}\s{1,8}login\s{1,4}[^\s]{1,128}\s{1,8}password\s{1,4}"
            r"(?P<secret>[^\s\"'\\]{3,256}+)"
        ),
        is_secret=lambda match, secret: is_value(secret),
        is_case_sensitive=False,
        precise_hint=r"\slogin\s{1,4}[^\s]+\s{1,8}password\s",
    ),
    SecretPattern(
        "password",  # SQL
        ("create", "alter", "grant"),
        re.compile(
            r"(?:create|alter|grant)\s[^\n;]{0,200}?(?:password|identified\s{1,4}"
            r"(?:with\s{1,4}[\w\"']{1,40}\s{1,4})?by)"
            r"[\s=]{1,4}'(?P<secret>[^'\n]{3,256}+)'"
        ),
        is_secret=lambda match, secret: is_value(secret),
        is_case_sensitive=False,
        precise_hint=r"(?:identified\s|password[\s=＝]{1,4}['＇])",
    ),
    SecretPattern(
        "password",  # openssl -passin pass:…
        ("pass:",),
        re.compile(
            r"-(?:passin|passout|pass|password)[\s=]{1,4}pass:(?P<secret>[^\s\"'\\]{3,256}+)"
        ),
        is_secret=lambda match, secret: is_value(secret),
        is_case_sensitive=False,
    ),
    SecretPattern(
        "password",
        ("mysql", "mariadb", "redis-cli", "docker login", "podman login", "helm registry login"),
        re.compile(
            r"(?:(?:mysql|mariadb)[a-z-]{0,10}\s(?:[^\n|;&]{0,200}?\s)?-p"
            r"|redis-cli\s(?:[^\n|;&]{0,200}?\s)?-a\s{1,4}"
            r"|(?:docker|podman|registry) login\s(?:[^\n|;&]{0,200}?\s)?-p[\s=]{1,4})"
            r"[\"']?(?P<secret>[^\s\"'\\]{4,256}+)"
        ),
        is_secret=lambda match, secret: is_value(secret),
    ),
    SecretPattern(
        "password",
        ("パスワードは",),
        re.compile(
            r"パスワードは\s?[「『\"']?(?P<secret>[!-&(-~]{4,128}+)[」』\"']?(?:です|だ|。)"
        ),
        is_secret=has_digit,
    ),
)
"""Other ways to write a name and its secret."""

SECRET_PATTERNS = (
    *(KEY_BLOCK, *TOKENS, *_ADDRESSES),
    *(*_HEADERS, _COOKIES, _URL, _USER, *_OPTIONS, *ASSIGNED, *_NAMED),
)
