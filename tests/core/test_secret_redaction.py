"""Both kinds of mistakes: a secret that stays, and an innocent text that goes. All secrets here are
made up."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_api.core.secret_patterns import SECRET_PATTERNS
from memory_api.core.secret_redaction import (
    _lower,  # pyright: ignore[reportPrivateUsage]
    may_contain_secrets,
    redact,
    redact_value,
)
from tests.support.cases import each_case
from tests.support.paths import SHARED

TRACES = SHARED / "data" / "traces.jsonl"

# Written in halves, so that no scanner takes this file for a leak.
KEY_BODY = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" + "x" * 12] * 3)
PEM = "-----BEGIN RSA " + f"PRIVATE KEY-----\n{KEY_BODY}\n-----END RSA " + "PRIVATE KEY-----"
JWT = (
    "eyJ"
    + "hbGciOiJIUzI1NiJ9."
    + "eyJ"
    + "zdWIiOiIxMjM0NTY3ODkwIn0"
    + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
)

SECRETS = [
    ("anthropic_key", "sk-" + "ant-api03-" + "aB3_x-" * 15),
    ("openai_key", "sk-" + "proj-" + "a1B2_c3-" * 8),
    ("openai_key", "sk-" + "a1B2c3D4" * 6),
    ("openai_key", "sk-" + "or-v1-" + "0a1b2c3d" * 8),
    ("hansei_key", "hsk_" + "mfrggzdfmztwq2lknnwg23tpo4_" + "Zm9vYmFyYmF6cXV4MTIz"),
    ("aws_key", "AKIA" + "IOSFODNN7EXAMPLE"),
    ("github_token", "ghp_" + "a1B2c3D4e5" * 4),
    ("github_token", "github_pat_" + "11ABCDEFG0" * 5),
    ("gitlab_token", "glpat-" + "a1B2c3D4e5-_f6G7h8I9"),
    ("slack_token", "xoxb-" + "123456789012-1234567890123-AbCdEfGhIjKl"),
    ("google_key", "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q"),
    ("stripe_key", "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"),
    ("huggingface_token", "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345"),
    ("npm_token", "npm_" + "a1B2c3D4e5" * 3 + "f6G7h8"),
    ("sendgrid_key", "SG." + "a1B2c3D4e5f6G7h8I9j0.k1L2m3N4o5p6Q7r8S9t0"),
    ("webhook_secret", "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("digitalocean_token", "dop_v1_" + "0a1b2c3d" * 8),
    ("vault_token", "hvs." + "CAESIJ3kq7-a1B2c3D4e5F6g7H8"),
    ("doppler_token", "dp.pt." + "a1B2c3D4e5" * 4),
    ("twilio_key", "SK" + "0a1b2c3d" * 4),
    ("telegram_token", "110201543:" + "AA" + "HdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0"[:33]),
    ("discord_token", "MTk4NjIyNDgzNDcxOTI1MjQ4" + ".Cl2FMQ." + "ZnCjm1XVW7vRze4b7Cq4se7kKWs"),
    ("jwt", JWT),
    ("private_key", PEM),
]

PLACES = [
    "{}",
    "the key is {} and nothing else",
    '{{"value": "{}"}}',
    "line one\\n{}\\nline three",
    "KEY={}",
    "（鍵は{}です）",
    "https://example.org/?k={}&x=1",
]

# text, kind, what must not be left
IN_CONTEXT = [
    ("Authorization: Bearer abcdef0123456789abcdef", "bearer_token", "abcdef0123456789"),
    ("-H 'authorization: bearer Zx9.abc-def_ghijklmn'", "bearer_token", "Zx9.abc"),
    ('{"Authorization": "Basic dXNlcjpwYXNzd29yZA=="}', "basic_auth", "dXNlcjpw"),
    ("Authorization: Token 9944b09199c62bcf9418ad846dd0e4bb", "basic_auth", "9944b091"),
    ("curl -u alice:Tr0ub4dor https://example.com", "password", "Tr0ub4dor"),
    ("curl https://example.com --user 'alice:correcthorse'", "password", "correcthorse"),
    ("sshpass -p swordfish ssh root@host", "password", "swordfish"),
    ("sshpass -p'sword-fish' scp a host:", "password", "sword-fish"),
    ("vercel deploy --token Zx9abcDEF123", "credential", "Zx9abc"),
    ("tool --auth-token=Zx9abcDEF123", "credential", "Zx9abc"),
    (
        "https://x.blob.core.windows.net/c?sv=2022&sig=a1B2c3D4e5F6g7H8i9J0k1%3D",
        "url_signature",
        "a1B2c3",
    ),
    (
        "https://hooks.slack.com/services/" + "T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
        "webhook_url",
        "XXXXXXXX",
    ),
    (
        "https://discord.com/api/webhooks/123456789012345678/" + "a1B2c3D4e5" * 6,
        "webhook_url",
        "a1B2c3D4",
    ),
    (
        "https://api.telegram.org/bot110201543:" + "AA" + "a1B2c3D4e5F" * 3 + "/getMe",
        "telegram_token",
        "a1B2",
    ),
    ('"private_key_id": "' + "0a1b2c3d" * 5 + '"', "google_key", "0a1b2c3d"),
    ("ｐａｓｓｗｏｒｄ＝hunter22", "password", "hunter22"),
    ("postgresql://app:s3cr3t!x@db.internal:5432/prod", "password", "s3cr3t"),
    ("redis://:hunter2@cache:6379/0", "password", "hunter2"),
    ("mongodb+srv://u:p%40ss@cluster0.example.net", "password", "p%40ss"),
    ("https://oauth2:tok-123@git.example.com/x.git", "password", "tok-123"),
    ("Server=db;User Id=sa;Password=Pa55w0rd!;Encrypt=yes", "password", "Pa55w0rd"),
    ("host=db user=app password=swordfish dbname=x", "password", "swordfish"),
    ("Server=db;Password=swordfish;Database=x", "password", "swordfish"),
    ("DB_PASSWORD=hunter22", "password", "hunter22"),
    ('db_password: "swordfish"', "password", "swordfish"),
    ("password = 'letmein'", "password", "letmein"),
    ('{"user": "a", "password": "correcthorse"}', "password", "correcthorse"),
    ('{\\"password\\": \\"correcthorse\\"}', "password", "correcthorse"),
    ('{"user": "a", "password": "correct horse"}', "password", "horse"),
    ('{\\"password\\": \\"correct horse battery\\", \\"n\\": 1}', "password", "battery"),
    ("passphrase = 'it was a dark night' # ours", "password", "dark night"),
    ("""password: "don't tell them" """, "password", "tell them"),
    ('mysqldump --password "Tr0ub4dor and 3"', "password", "and 3"),
    ('password="unfinished business', "password", "unfinished"),
    ("Cookie: theme=dark; session=8f14e45fceea167a; lang=en", "cookie", "8f14e45f"),
    ("Set-Cookie: sid=s%3A9f8e7d6c5b4a; Path=/; HttpOnly", "cookie", "9f8e7d6c"),
    ("-H 'cookie: JSESSIONID=0A1B2C3D4E5F6789'", "cookie", "0A1B2C3D"),
    ('{\\"Set-Cookie\\": \\"id=a3fWa9d83f0; Secure\\"}', "cookie", "a3fWa9d83f0"),
    ("mysqldump --password Tr0ub4dor", "password", "Tr0ub4dor"),
    ("mysqldump --password=Tr0ub4dor", "password", "Tr0ub4dor"),
    ("パスワード：hunter2x", "password", "hunter2x"),
    ('dbPassword: "s3same-open"', "password", "s3same"),
    ("pwd=A1b2C3d4", "password", "A1b2C3d4"),
    ("api_key=9f8e7d6c5b4a39281706", "credential", "9f8e7d6c"),
    ("X-Api-Key: 9f8e7d6c5b4a39281706", "credential", "9f8e7d6c"),
    ('"clientSecret": "aB3~dE6fG9hJ2kL5"', "credential", "aB3~dE6"),
    ("client_secret: 123e4567-e89b-12d3-a456-426614174000", "credential", "123e4567"),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCY", "credential", "wJalr"),
    ("AccountName=x;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlC==;E=1", "credential", "Eby8"),
    ("refresh_token => 1//0gFfN9k3sLmQpR", "credential", "0gFfN9"),
    ('token = "q9w8e7r6t5y4u3i2"', "credential", "q9w8e7"),
]

LOOK_ALIKES = [
    "123e4567-e89b-12d3-a456-426614174000",
    "commit 6ea57973c7a6bd4c7b2a1f0e9d8c7b6a5f4e3d2c1",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "order id: #W2378156, item 8895454203, tracking 1Z999AA10123456784",
    "IATA SK-1234, task-0123456789abcdefghij, disk-0123456789abcdef0123",
    "sk-learn-contrib and sk-SK locale",
    "the password is required and must have 8 characters",
    "password: required",
    "password: string",
    "Password: ",
    "def login(user: str, password: str) -> None:",
    "password = getpass.getpass()",
    'password = os.environ["DB_PASSWORD"]',
    "password=$DB_PASSWORD",
    "connect(host=h, user=name, password=chosen)",
    "connect(host=h, password=chosen, database=d)",
    "password: ${DB_PASSWORD}",
    '"password": "<your password>"',
    '"password": "********"',
    '"password": "This field is required"',
    '{"password": "must have at least 8 characters"}',
    '"password": "Enter a new password"',
    '"password": "the one you chose"',
    "パスワード：'8文字以上で入力してください'",
    "Cookie: a small thing of flour and sugar",
    "Cookie: theme=dark; lang=en",
    "cookie=true, cookies: 12, cookie: consent=accepted",
    '"password": "your_password_here"',
    '{"password": {"type": "string", "minLength": 8}}',
    "<input type=password name=password>",
    "パスワード：必須",
    "パスワードを忘れた場合は、再設定してください。",
    "max_tokens=100000000000, total_tokens: 1234567890123",
    "next_page_token=CAUQAA1234567890abcd",
    "primary_key: user_id_2024_0001, key: 2024-11-05T12:00:00",
    "token: IDENTIFIER_EXPECTED",
    "api_key = config.api_key_v2_production",
    "api_key=get_key_v2_production()",
    "docker run -u 1000:1000 image and mysql -u root -h db:3306",
    "git push --token-file /run/secrets/t0ken --key ./id_rsa2",
    "python -m tool --token-limit 8192 --max-token 4096",
    "TASK-0123, DISK1, a SKU of 12345678, Moscow 12:30 AA1234",
    "ｐａｓｓｗｏｒｄ　ｉｓ　ｒｅｑｕｉｒｅｄ",
    "the bearer of this letter, bearer authentication-required",
    "http://localhost:8080/a@b and ssh://git@github.com/x/y.git",
    "see http://example.com:80/path?mail=x@example.com",
    "user@example.com, 12:30@station",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "a file that says PRIVATE KEY somewhere",
    "eyJhbGciOiJIUzI1NiJ9 is only a header",
    "東京都千代田区一番地。予約番号は１２３４５６７８９０です。",
    "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 40).decode(),
    "AKIA" + "IOSFODNN7EXAMPLE" * 2 + " AIza" + "Sy" * 40,
    "AKIAshort ghp_short xoxb-1 hf_short npm_run_build AIza",
    "https://user:[secret:password]@host and password=[secret:password]",
]


@each_case("place", PLACES)
@each_case(("kind", "secret"), SECRETS)
def test_key_is_redacted_anywhere(kind: str, secret: str, place: str) -> None:
    text, kinds = redact(place.format(secret))
    assert text == place.format(f"[secret:{kind}]")
    assert kinds == {kind: 1}


@each_case(("text", "kind", "gone"), IN_CONTEXT)
def test_secret_is_redacted_by_context(text: str, kind: str, gone: str) -> None:
    clean, kinds = redact(text)
    assert gone not in clean
    assert f"[secret:{kind}]" in clean
    assert kinds == {kind: 1}


@each_case("text", LOOK_ALIKES)
def test_lookalike_is_kept(text: str) -> None:
    assert redact(text) == (text, {})


def test_text_around_secret_is_kept() -> None:
    text, _ = redact("postgresql://app:s3cr3t@db:5432/prod?x=1 then GET /orders/42")
    assert text == "postgresql://app:[secret:password]@db:5432/prod?x=1 then GET /orders/42"


def test_json_stays_json() -> None:
    event = {"password": "hunter2", "env": {"API_KEY": "a1b2c3d4e5f6a7b8"}, "n": 1}
    inner = json.dumps({"log": json.dumps(event)})
    text, kinds = redact(inner)
    assert json.loads(json.loads(text)["log"])["n"] == 1
    assert sum(kinds.values()) == 2
    assert "hunter2" not in text


def test_values_under_secret_names_are_redacted_and_shape_is_kept() -> None:
    secret = SECRETS[0][1]
    value = {"user": "ann", "password": "hunter2", "n": [1, None, {"note": f"use {secret}"}]}
    clean, kinds = redact_value(value)
    assert clean == {
        "user": "ann",
        "password": "[secret:password]",
        "n": [1, None, {"note": "use [secret:anthropic_key]"}],
    }
    assert kinds == {"password": 1, "anthropic_key": 1}


def test_secret_as_json_key_is_redacted() -> None:
    first, second = (SECRETS[0][1] + end for end in ("a1", "b2"))
    clean, kinds = redact_value({"seen": {first: 1, second: {"password": "correct horse"}}})
    assert clean == {
        "seen": {
            "[secret:anthropic_key]": 1,
            "[secret:anthropic_key]+": {"password": "[secret:password]"},
        }
    }
    assert kinds == {"anthropic_key": 2, "password": 1}


def test_quoted_value_is_redacted_whole() -> None:
    text, _ = redact('{"password": "correct horse", "user": "ann"}')
    assert text == '{"password": "[secret:password]", "user": "ann"}'


def test_harmless_values_are_kept() -> None:
    value = {
        "token_count": 12,
        "key": "order-2024-0001",
        "password": "",
        "id": "W2378156",
        "x": 1.5,
    }
    assert redact_value(value) == (value, {})


def test_truncated_key_block_is_redacted_and_prose_kept() -> None:
    block = "-----BEGIN " + f"PRIVATE KEY-----\n{KEY_BODY}"
    text, kinds = redact(f"{block}\nThen the agent gave up and asked.")
    assert text == "[secret:private_key]\nThen the agent gave up and asked."
    assert kinds == {"private_key": 1}


def test_case_folding_that_changes_length_does_not_shift_redaction() -> None:
    text, _ = redact("İİİ password='Geheimnis' İ")
    assert text == "İİİ password='[secret:password]' İ"


PIECES = [secret for _, secret in SECRETS] + [text for text, _, _ in IN_CONTEXT] + LOOK_ALIKES


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=20)), max_size=6))
def test_property_redacting_twice_changes_nothing_more(pieces: list[str]) -> None:
    once = redact(" ".join(pieces)).text
    assert redact(once) == (once, {})


@given(st.text(alphabet=st.characters(exclude_characters=":=：")))
def test_property_text_without_assignment_or_prefix_is_kept_byte_for_byte(text: str) -> None:
    assert redact(text).text == text


def repeats(node: Any) -> Iterator[tuple[bool, int]]:
    """(possessive, upper bound) of every repetition in a parsed pattern, nested ones multiplied."""
    for operation, argument in node:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            _, most, body = argument
            yield name == "POSSESSIVE_REPEAT", int(most)
            yield from repeats(body)
        elif name == "SUBPATTERN":
            yield from repeats(argument[-1])
        elif name == "BRANCH":
            for branch in argument[1]:
                yield from repeats(branch)


@each_case("rule", SECRET_PATTERNS)
def test_work_grows_linearly(rule: Any) -> None:
    """No repetition without a bound may give back what it took, so no position is read more than a
    fixed number of times. (Reads the pattern, because a clock on a busy machine proves nothing.)"""
    parser = re._parser  # type: ignore[attr-defined]
    found = list(repeats(parser.parse(rule.regex.pattern, rule.regex.flags)))
    assert all(possessive or most <= 256 for possessive, most in found)


@each_case(
    "unit",
    [
        "eyJ-",
        "sk-",
        "://a:",
        "-----BEGIN PRIVATE KEY-----",
        "password=",
        "token:",
        "bearer a1",
        "A",
    ],
)
def test_five_megabytes_of_near_secrets_are_processed(unit: str) -> None:
    text = unit * (5_000_000 // len(unit))
    assert len(redact(text).text) > 0


@pytest.mark.skipif(not TRACES.exists(), reason="shared/data is not here")
def test_real_traces_hold_no_false_positive() -> None:
    """551 public runs, read by eye: there is no secret in them."""
    assert redact(TRACES.read_text(encoding="utf-8")).counts == {}


@each_case(
    "text",
    [
        "TOKEN = 'a1b2c3d4e5f6'",
        "to\N{KELVIN SIGN}en = 'a1b2c3d4e5f6'",
        "\ud800 token = 'a1b2c3d4e5f6'",
        "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE} Token = 'a1b2c3d4e5f6'",
    ],
)
def test_unicode_letters_hide_no_secret_name(text: str) -> None:
    assert redact(text).counts == {"credential": 1}


@each_case(("text", "kind", "gone"), IN_CONTEXT)
def test_full_width_punctuation_hides_no_secret(text: str, kind: str, gone: str) -> None:
    """The first pass over a text finds whatever the patterns find in it."""
    wide = text.translate({ord(c): ord(c) + 0xFEE0 for c in ":=/@-\"'" if c not in gone})
    lowered = _lower(wide)
    texts = ((p.regex, wide if p.is_case_sensitive else lowered) for p in SECRET_PATTERNS)
    assert may_contain_secrets(wide) or not any(regex.search(part) for regex, part in texts), kind
