"""The forms that an attacker found stored as sent: names that say secret before a value that looks
generated, other ways to write an assignment, prefixes of providers. All secrets are made up."""

from __future__ import annotations

import json

from memory_api.core.secret_redaction import redact, redact_value
from tests.support.cases import each_case

RANDOM = "q9W8e7R6t5Y4u3I2"
HEX = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"

NAMES = [
    *("GITHUB_TOKEN", "CI_JOB_TOKEN", "MY_TOKEN", "APP_TOKEN", "JWT_SECRET"),
    *("HANSEI_BUDGET_WEBHOOK_SECRET", "ENCRYPTION_KEY", "OPENAI_KEY", "PRIVATE_KEY", "DB_PASS"),
    *("DB_PW", "AZURE_DEVOPS_EXT_PAT", "GITHUB_PAT", "github_token", "webhook-secret", "jwtSecret"),
    *("encryptionKey", "PrivateKey", "client-key-data", "X-Vault-Token", "Private-Token"),
    *("Ocp-Apim-Subscription-Key", "pass", "ansible_ssh_pass"),
]

FORMS = [
    f"https://{RANDOM}@github.com/a/b.git",
    f"mysql -u root -p{RANDOM} shop",
    f"docker login -u me -p {RANDOM} registry.example",
    f"redis-cli -h cache -a {RANDOM} ping",
    f"machine api.example login me password {RANDOM}",
    f"openssl rsa -in key.pem -passin pass:{RANDOM}",
    f"ALTER USER me IDENTIFIED BY '{RANDOM}'",
    f"CREATE USER me WITH LOGIN PASSWORD '{RANDOM}'",
    f'{{"name": "API_KEY", "value": "{RANDOM}"}}',
    f'{{\\"name\\": \\"API_KEY\\", \\"value\\": \\"{RANDOM}\\"}}',
    f"- name: API_KEY\n  value: '{RANDOM}'",
    f"<password>{RANDOM}</password>",
    f'<add key="ApiKey" value="{RANDOM}"/>',
    f"password%3D{RANDOM}",
    f"api_key%3D{RANDOM}",
    f"aws configure set aws_secret_access_key {RANDOM}",
    f"npm config set //registry.example/:_authToken {RANDOM}",
    f"密码: {RANDOM}",
    f"비밀번호: {RANDOM}",
    f"contraseña: {RANDOM}",
    f"Passwort: {RANDOM}",
    f"пароль: {RANDOM}",
    f"パスワードは{RANDOM}です",
    f'{{"password": "first\\"{RANDOM}"}}',
    json.dumps({"log": json.dumps({"password": f'first"{RANDOM}', "n": 1})}),
]

# Written in halves, so that no scanner takes this file for a leak.
TOKENS = [
    "lsv2_" + f"pt_{HEX}_0a1b2c3d4e",
    "xai-" + RANDOM * 5,
    "pplx-" + HEX + RANDOM,
    "r8_" + RANDOM * 2 + "abcde",
    "pa-" + RANDOM * 2 + "abcdefghijk",
    "ya29." + f"a0Af_{RANDOM * 3}",
    "dckr_" + f"pat_{RANDOM}abcdefghijk",
    "HRKU-" + "01234567-89ab-cdef-0123-456789abcdef",
    "tskey-" + f"auth-{RANDOM}-{RANDOM}",
    "sbp_" + HEX + "01234567",
    "shpat_" + HEX,
    "EAAA" + "E" + RANDOM * 4,
    "sntrys_" + "eyJ" + RANDOM * 4,
    "glsa_" + RANDOM * 2 + "_0a1b2c3d",
    "glc_" + "eyJ" + RANDOM * 3,
    "pscale_" + f"tkn_{RANDOM * 2}",
    "ops_" + "eyJ" + RANDOM * 4,
    "lin_api_" + RANDOM * 2 + "abcdefgh",
    "ntn_" + "123456789012" + RANDOM * 2,
    "figd_" + RANDOM * 2 + "_abcdefg",
    "NRAK-" + "A1B2C3D4E5F6G7H8I9J0K1L2M3N",
    "ATATT3" + "xFfGF0" + RANDOM * 10 + "=ABCDEF01",
    "AGE-SECRET-" + "KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" + "QPZRY9X8GF2TVDW0S3JN54KHCE",
    "1234567890:" + "AAF" + RANDOM * 2,
    "pat" + "a1B2c3D4e5F6g7." + HEX * 2,
    "sk." + "eyJ" + RANDOM * 2 + "." + RANDOM + "abcdef",
    "$2y$" + "10$" + "N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy",
    "$6$" + "rounds=5000$saltsalt$" + "aB3./" * 17 + "a",
]

INNOCENTS = [
    "NEXT_PAGE_TOKEN=q9W8e7R6t5Y4u3I2, cache_key: q9W8e7R6t5Y4u3I2",
    "PUBLIC_KEY=0a1b2c3d4e5f60718293 and PRIMARY_KEY: a1b2c3d4e5f6",
    "MAX_TOKENS=100000000000 EOS_TOKEN=a1b2c3d4e5f6",
    "--- PASS: TestRetry123456 (0.00s)",
    "tests pass: 12/15, pass=12 fail=3, first_pass = layer2norm3",
    "BUILD_KEY=release-2024-11-05 GROUP_KEY=user_id_2024_0001",
    "STORAGE_KEY=20241105T120000Z SORT_KEY=2024-11-05T12:00:00",
    "the private key: see chapter 12, section4b",
    "TEST_TOKEN=${{ secrets.TOKEN_V2_2024A }} MY_SECRET=$(cat /run/s3cret1a)",
    "API_TOKEN=os.environ['X1Y2Z3']",
    "SECRET_KEY=config.secret_key_v2_production",
    "git config set user.name q9W8e7R6t5Y4u3I2",
    '{"name": "color", "value": "q9W8e7R6t5Y4u3I2"}',
    '<span>q9W8e7R6t5Y4u3I2</span> <input name="token" value="">',
    "mkdir -p a1b2c3d4/e5f6 && docker run -p 8080:80 mysql",
    "mysql -h db -P 3306 -u root -p",
    "https://docs.example.com/@user and git@github.com:a/b.git",
    "ssh://deployment-user@host.example",
    "The machine has a login page and a password field.",
    "SELECT password FROM users WHERE name = 'identified by nobody'",
    "パスワードは必須です。パスワードは8文字以上です",
    "spa-0123, pa-12 and ops_per_second, ntn_x, r8_uint, sk.fit(x)",
    "costs $2 to $6 per call, $6$ and $2y",
    "at 12:30:45 AM, ratio 16:9, 123456:ABC",
]


@each_case("name", NAMES)
@each_case("form", ["{}={}", "export {}='{}'", '"{}": "{}"', '{{\\"{}\\": \\"{}\\"}}'])
def test_value_of_a_name_that_says_secret_is_redacted(name: str, form: str) -> None:
    if name == "pass" and ":" in form:
        return  # "tests pass: 12": a name only before "="
    text = redact(form.format(name, RANDOM)).text
    assert RANDOM not in text
    assert name in text


@each_case("text", FORMS)
def test_other_form_of_an_assignment_is_redacted(text: str) -> None:
    clean = redact(text).text
    assert RANDOM not in clean
    assert "[secret:" in clean
    if text.startswith("{") and "\\" not in text[:3]:
        json.loads(clean)


@each_case("token", TOKENS)
@each_case("place", ["{}", 'the key is "{}".', "line\\n{}\\n"])
def test_token_of_a_provider_is_redacted(token: str, place: str) -> None:
    text, counts = redact(place.format(token))
    assert sum(counts.values()) == 1
    assert token[-8:] not in text


def test_long_value_is_redacted_whole() -> None:
    assert redact("client-key-data: " + "LS0tLS1CRUdJTiBSU0Eg1a2B3" * 80).text.endswith("]")


def test_value_beside_its_name_is_redacted() -> None:
    environment = {"env": [{"name": "API_KEY", "value": RANDOM}, {"name": "color", "value": "red"}]}
    clean, counts = redact_value(environment)
    assert counts == {"credential": 1}
    assert clean["env"][0] == {"name": "API_KEY", "value": "[secret:credential]"}
    assert clean["env"][1] == environment["env"][1]


@each_case("text", INNOCENTS)
def test_lookalike_is_kept(text: str) -> None:
    assert redact(text) == (text, {})


@each_case("text", [*FORMS, *TOKENS])
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(text).text
    assert redact(once) == (once, {})
