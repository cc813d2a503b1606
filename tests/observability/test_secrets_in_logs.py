"""No log line contains a secret: a corpus goes through every route, the worker and the commands, at
debug level."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import structlog
from httpx2 import Client

from memory_api.core.telemetry import configure_logging
from tests.core.test_secret_redaction import IN_CONTEXT, SECRETS
from tests.observability.conftest import PROVIDER_KEY, TOKEN, Observed
from tests.rules.test_route_auth import NEEDS
from tests.support.installation import until
from tests.support.server_command import run_command
from tests.support.stub_provider import Behaviour, Call, bad_request, by_schema

PASSWORD = "Zx9-correct-horse-q8"
CORPUS = [secret for _, secret in SECRETS]
PARTS = [
    *(secret.splitlines()[0] for secret in CORPUS if not secret.startswith("-----")),
    *(secret.splitlines()[1] for secret in CORPUS if secret.startswith("-----")),
    *(part for _, _, part in IN_CONTEXT),
]
"""What must be in no log. Of a key block, its first line of data."""
CONTEXTS = [text for text, _, _ in IN_CONTEXT]


def fill(example: Any, text: str) -> Any:
    """An example body with `text` in every free text. Names and enumerations stay."""
    if isinstance(example, dict):
        return {key: fill(value, text) for key, value in example.items()}
    if isinstance(example, list):
        return [fill(item, text) for item in example]
    is_free = isinstance(example, str) and " " in example
    return f"{example} {text}" if is_free else example


def bodies(example: Any) -> Iterator[Any]:
    """Accepted bodies with secrets in them, and bodies that are refused because of them."""
    for text in (" ".join(CORPUS), "\n".join(CONTEXTS)):
        yield fill(example, text)
    if isinstance(example, dict):
        yield example | {"password": PASSWORD, CORPUS[0]: CORPUS[1]}
        yield dict.fromkeys(example, CORPUS[0])


def requests(document: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Method, URL and body of requests to every route, with secrets in path, query and body."""
    number = 0
    for route in NEEDS:
        method, path = route.split()
        shown = path if path.startswith("/api") else f"/api/v1{path}"
        operation = document["paths"].get(shown, {}).get(method.lower(), {})
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        names = [part for part in path.split("/") if part.startswith("{")]
        for content in bodies(body.get("example")):
            secret = CORPUS[number % (len(CORPUS) - 1)]
            number += 1
            plain = path
            for name in names:
                plain = plain.replace(name, quote(secret, safe=""))
            named = path
            for name in names:
                named = named.replace(name, "support")
            yield method, named, content
            yield method, f"{plain}?reason={quote(secret)}&{quote(secret)}=1", content


def traces_with_secrets() -> Iterator[dict[str, Any]]:
    for text in [*CORPUS, *CONTEXTS]:
        yield {
            "outcome": "failure",
            "task_description": f"Log in with {text}",
            "playbook": "support",
            "error": {"error_category": "timeout_error", "error_message": f"refused: {text}"},
            "events": [
                {"event_type": "tool_call", "tool_name": "login", "content": f"login {text}"},
                {"event_type": "error_event", "tool_name": "login", "content": f"bad key {text}"},
            ],
        }


def fail_sometimes() -> Behaviour:
    """A model whose every third answer is an error that quotes secrets."""
    numbers = itertools.count()

    def reply(call: Call) -> Any:
        if next(numbers) % 3 == 0:
            return bad_request(f"invalid request near {' '.join(CORPUS)}")
        return by_schema(call)

    return reply


@pytest.fixture(scope="module")
def attacked(observed: Observed) -> dict[str, str]:
    """All logs after the corpus went through, by process."""
    observed.stub.behave = fail_sometimes()
    tenant = observed.installation.tenant()
    statuses: set[int] = set()
    with observed.client(tenant) as client:
        document = client.get("/openapi.json").json()
        for method, url, body in requests(document):
            statuses.add(client.request(method, url, json=body).status_code)
        for secret in CORPUS:
            key = secret.splitlines()[0]
            headers = {"Authorization": f"Bearer {key}", "User-Agent": secret.splitlines()[0][:40]}
            statuses.add(client.get("/api/v1/traces", headers=headers).status_code)
            headers = {"Idempotency-Key": key, "X-Forwarded-For": secret.splitlines()[0][:40]}
            statuses.add(client.post("/api/v1/search", json={}, headers=headers).status_code)
        _send_traces(client)
    assert {200, 401, 404, 422} <= statuses
    # Runs that the model failed are retried with growing delays: not all of them have to end.
    done = "select from runs where tenant_id = $1 and state = 'done' offset 30 limit 1"
    until(lambda: observed.installation.rows(done, tenant.id), "the end of 30 runs")
    return {
        "api": observed.log_text("api"),
        "worker": observed.log_text("worker"),
        "commands": "\n".join(run_commands(observed)),
    }


def _send_traces(client: Client) -> None:
    traces = list(traces_with_secrets())
    for trace in traces[::4]:
        assert client.post("/api/v1/traces?reflect=always", json=trace).status_code == 201
    lines = "\n".join(json.dumps(trace) for trace in traces[1::4])
    headers = {"Content-Type": "application/x-ndjson"}
    broken = f'{lines}\n{{"events": "{CORPUS[0]}"\n'
    assert client.post("/api/v1/traces", content=broken, headers=headers).status_code == 200


def run_commands(observed: Observed) -> Iterator[str]:
    """What commands print that fail or succeed with secrets in their settings and options."""
    wrong = f"postgresql://hansei_app:{PASSWORD}@127.0.0.1:1/hansei"
    key = CORPUS[4]
    url = f"https://user:{PASSWORD}@127.0.0.1:1/v1"
    pg = observed.installation.pg
    good = {"DATABASE_URL": pg.url("hansei_app"), "HANSEI_OWNER_URL": pg.url("hansei_owner")}
    used_port = str(observed.worker_port)
    model = {"OPENAI_API_KEY": PROVIDER_KEY, "HANSEI_LLM_PROVIDER": "openai"}
    model["OPENAI_BASE_URL"] = observed.stub.openai_url
    commands: list[tuple[list[str], dict[str, str]]] = [
        (["doctor"], {"DATABASE_URL": wrong}),
        (["doctor"], good | model),
        (["migrate"], {"HANSEI_OWNER_URL": wrong}),
        (["serve", "--processes", "1", "--port", used_port], {"DATABASE_URL": wrong}),
        (["key", "revoke", key], good),
        (["reembed", "--all", "--provider", "openai", "--base-url", url], good),
        (["top", "--once", "--token", TOKEN, "--url", url], {}),
    ]
    for arguments, env in commands:
        run = run_command(tuple(arguments), {"HANSEI_LOG_LEVEL": "debug", **env})
        _, output, errors = asyncio.run(run)
        yield errors
        if arguments[0] == "doctor":
            yield output


@pytest.mark.parametrize("process", ["api", "worker", "commands"])
def test_no_secret_is_logged(attacked: dict[str, str], process: str) -> None:
    text = attacked[process]
    assert len(text) > 100
    leaked = {part[:12] for part in PARTS if part in text or json.dumps(part)[1:-1] in text}
    assert leaked == set()


@pytest.mark.parametrize("process", ["api", "worker", "commands"])
def test_no_password_or_token_is_logged(attacked: dict[str, str], process: str) -> None:
    for secret in (TOKEN, PROVIDER_KEY, PASSWORD):
        assert secret not in attacked[process]


def test_every_line_of_a_request_has_its_ids(observed: Observed, attacked: dict[str, str]) -> None:
    for line in observed.log("api"):
        if line["event"] != "request_finished":
            continue
        assert line["request_id"]
        assert "?" not in line["route"]
        if line["status"] not in (401, 404, 405) and line["route"].startswith("/api/v1"):
            assert line["tenant_id"], line
            assert line["key_id"], line


@pytest.fixture
def log_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Configures JSON logs, and answers the lines that were written since."""
    structured = structlog.get_config()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logging("json", "debug")
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    structlog.configure(**structured)
    root.handlers[:], root.level = handlers, level


@pytest.mark.parametrize("secret", CORPUS)
def test_field_message_and_stack_trace_are_redacted(log_lines: Any, secret: str) -> None:
    log = structlog.get_logger()
    log.info(
        "event_logged", text=f"a {secret} b", nested={"list": [secret]}, error=ValueError(secret)
    )
    try:
        raise RuntimeError(f"refused {secret}")
    except RuntimeError:
        log.error("run_failed", exc_info=True)
        logging.getLogger("another.library").exception("failed with %s", secret)
    lines = log_lines()
    assert [line.get("event", "")[:12] for line in lines] == [
        *("event_logged", "run_failed", "failed with "),
    ]
    text = json.dumps(lines, ensure_ascii=False)
    part = secret.splitlines()[1] if "\n" in secret else secret
    assert part not in text
    assert text.count("[secret:") >= 5
    assert "RuntimeError" in lines[1]["exception"]


def test_ids_are_not_taken_for_secrets(log_lines: Any) -> None:
    ids = {"run_id": "0199aa4e-7c1d-7bb2-a1f3-4f4d2b1a0c9e", "reflection_id": "0199aa4e-7c1d"}
    structlog.get_logger().info("reflection_stored", **ids, importance=0.7)
    (line,) = log_lines()
    assert ids.items() <= line.items()
    assert line["importance"] == 0.7
