"""The form of a pattern of secrets, and the tokens that providers mark: fixed prefixes, JWTs, key
blocks and hashes of passwords.
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


def has_digit(match: re.Match[str], secret: str) -> bool:
    return any(character.isdigit() for character in secret)


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
)

TOKENS = (
    _token("anthropic_key", "sk-ant-", r"[A-Za-z0-9_-]{16,}+"),
    _token("openai_key", "sk-", r"(?:proj|svcacct|admin|or-v1|lf)-[A-Za-z0-9_-]{16,}+"),
    _token("openai_key", "sk-", r"[A-Za-z0-9]{20,}+", is_secret=has_digit),
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
    _token("langsmith_key", "lsv2_", r"(?:pt|sk)_[A-Za-z0-9_]{20,}+"),
    _token("xai_key", "xai-", r"[A-Za-z0-9]{40,}+"),
    _token("perplexity_key", "pplx-", r"[A-Za-z0-9]{32,}+"),
    _token("replicate_token", "r8_", r"[A-Za-z0-9]{30,}+", is_secret=has_digit),
    _token(
        "voyage_key",
        "pa-",
        r"[A-Za-z0-9_-]{40,}+",
        is_secret=has_digit,
        precise_hint="pa[-－][A-Za-z0-9_-]{16}",
    ),
    _token("google_token", r"ya29\.", r"[A-Za-z0-9_.-]{20,}+", "ya29."),
    _token("docker_token", "dckr_", r"(?:pat|oat)_[A-Za-z0-9_-]{20,}+"),
    _token("heroku_key", "HRKU-", r"[A-Za-z0-9_-]{30,}+"),
    _token("tailscale_key", "tskey-", r"[a-z]{3,8}-[A-Za-z0-9-]{16,}+"),
    _token("supabase_token", "sbp_", r"[a-f0-9]{40}"),
    _token(
        "shopify_token",
        "shp(?:at|ca|pa|ss)_",
        r"[A-Fa-f0-9]{32}",
        "shpat_",
        "shpca_",
        "shppa_",
        "shpss_",
    ),
    _token("square_token", "EAAA", r"[A-Za-z0-9_-]{56,}+", is_secret=has_digit),
    _token("sentry_token", "sntry[su]_", r"[A-Za-z0-9+/=_-]{40,}+", "sntrys_", "sntryu_"),
    _token("grafana_token", "glsa_", r"[A-Za-z0-9_]{32,}+"),
    _token("grafana_token", "glc_", r"[A-Za-z0-9+/=_]{32,}+"),
    _token("planetscale_token", "pscale_", r"[a-z]{2,5}_[A-Za-z0-9_.-]{20,}+"),
    _token("onepassword_token", "ops_", r"eyJ[A-Za-z0-9_-]{40,}+"),
    _token("linear_key", "lin_api_", r"[A-Za-z0-9]{30,}+"),
    _token("notion_token", "ntn_", r"[A-Za-z0-9]{40,}+"),
    _token("figma_token", "figd_", r"[A-Za-z0-9_-]{30,}+"),
    _token("newrelic_key", "NRAK-", r"[A-Z0-9]{20,}+"),
    _token("atlassian_token", "ATATT3", r"[A-Za-z0-9=_-]{50,}+"),
    _token("age_key", "AGE-SECRET-KEY-1", r"[0-9A-Z]{50,}+"),
    _token(
        "airtable_token",
        "pat",
        r"[A-Za-z0-9]{14}\.[a-f0-9]{64}",
        precise_hint=r"pat[A-Za-z0-9]{14}\.",
    ),
    _token("mapbox_token", r"sk\.", r"eyJ[A-Za-z0-9_-]{20,}+\.[A-Za-z0-9_-]{16,}+", "sk.eyJ"),
    SecretPattern(
        "password_hash",
        ("$2", "$6$", "$5$", "$y$", "$argon2"),
        re.compile(
            r"\$(?:2[abxy]\$\d\d\$[./A-Za-z0-9]{53}"
            r"|[56]\$(?:rounds=\d{1,9}\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{43,86}"
            r"|y\$[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{1,86}\$[./A-Za-z0-9]{43}"
            r"|argon2(?:id|i|d)\$[A-Za-z0-9=,$+/]{40,200}+)"
        ),
        precise_hint=r"\$(?:2[abxy]\$\d\d\$|[56y]\$|argon2)",
    ),
    _token("jwt", "eyJ", r"[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+"),
)
