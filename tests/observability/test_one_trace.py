"""From the HTTP request to the applied bullet: one trace, with statements and model calls, and
lines and metrics that belong to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hansei.credentials import Credentials, save_credentials
from tests.observability.conftest import TOKEN, Observed
from tests.support.otlp_receiver import ReceivedSpan
from tests.support.paths import ROOT
from tests.support.server_command import run_command_here
from tests.support.stub_provider import Call, answer, by_schema

SERVER, CLIENT, CONSUMER = 2, 3, 5
REFLECTION = {
    "reflection": "The fetch was sent twice without a change and met the same limit.",
    "strategy": "When `fetch` times out, ask for the report in pages.",
    "importance": 0.8,
    "confidence": 0.9,
    "tags": ["fetch"],
    "source_event_ids": ["e0001"],
}
TRACE: dict[str, Any] = {
    "playbook": "support",
    "task_description": "Bring the monthly report",
    "outcome": "failure",
    "events": [
        {"event_type": "user_message", "content": "Fetch the report of March"},
        {"event_type": "tool_call", "tool_name": "fetch", "content": "fetch(report, march)"},
        {"event_type": "error_event", "tool_name": "fetch", "content": "timed out after 30 s"},
    ],
}


PLAN = {
    "reasoning": "No bullet says this.",
    "operations": [
        {
            "type": "ADD",
            "lessons": [1],
            "bullet_id": None,
            "source_ids": [],
            "section": "OTHERS",
            "title": None,
            "when_to_use": None,
            "contradicts": [],
            "content": REFLECTION["strategy"],
            "reasoning": "It is new.",
        }
    ],
}


def reply(call: Call) -> Any:
    """The reflection and the plan of the curator; else the smallest answer that fits."""
    asked = str(call.body)
    if "source_event_ids" in asked:
        return answer(REFLECTION)
    return answer(PLAN) if "operations" in asked else by_schema(call)


@pytest.fixture(scope="module")
def learned(observed: Observed) -> dict[str, Any]:
    """A trace that was sent with a `traceparent` of its own and learned from."""
    observed.stub.behave = reply
    tenant = observed.installation.tenant()
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    with observed.client(tenant) as client:
        headers = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
        stored = client.post("/api/v1/traces?reflect=always", json=TRACE, headers=headers)
        stored.raise_for_status()
        observed.installation.await_drained(tenant)
        bullets = client.get("/api/v1/playbooks/support/bullets").json()["items"]
        client.post("/api/v1/playbooks/support/render", json={"query_text": "report"})
        key = bullets[0]["id"]
        client.post(f"/api/v1/playbooks/support/bullets/{key}/verdicts", json={"tag": "helpful"})
    apply = observed.spans.wait_for(
        lambda span: span.trace_id == trace_id and span.name == "run apply"
    )
    return {
        "otel": trace_id,
        "tenant": tenant,
        "request_id": stored.headers["x-request-id"],
        "trace": stored.json()["trace_id"],
        "run": stored.json()["run_id"],
        "bullets": bullets,
        "apply": apply,
    }


def spans_by_name(observed: Observed, trace_id: str) -> dict[str, list[ReceivedSpan]]:
    found: dict[str, list[ReceivedSpan]] = {}
    for span in observed.spans.of_trace(trace_id):
        found.setdefault(span.name, []).append(span)
    return found


def test_request_and_all_steps_are_one_trace(observed: Observed, learned: dict[str, Any]) -> None:
    assert learned["bullets"], "nothing was learned"
    spans = spans_by_name(observed, learned["otel"])
    steps = [f"run {kind}" for kind in ("evaluate", "reflect", "curate", "apply")]
    assert set(steps) <= spans.keys()
    (request,) = spans["POST /api/v1/traces"]
    assert (request.kind, request.parent_id) == (SERVER, "b7ad6b7169203331")
    assert request.attributes["http.route"] == "/api/v1/traces"
    assert request.attributes["http.response.status_code"] == 201
    assert request.service == "hansei-api"
    parent = request
    for step in steps:
        (span,) = spans[step]
        assert (span.kind, span.parent_id) == (CONSUMER, parent.span_id)
        assert span.service == "hansei-worker"
        assert span.attributes["hansei.trace_id"] == learned["trace"]
        assert span.attributes["hansei.run_result"] == "done"
        parent = span


def test_model_call_follows_genai_conventions(observed: Observed, learned: dict[str, Any]) -> None:
    spans = spans_by_name(observed, learned["otel"])
    (reflect,) = spans["run reflect"]
    call = next(span for span in spans["chat gpt-4o-mini"] if span.parent_id == reflect.span_id)
    assert call.kind == CLIENT
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.output.type": "json",
        "server.address": "127.0.0.1",
    }
    assert expected.items() <= call.attributes.items()
    assert call.attributes["gen_ai.usage.input_tokens"] > 0
    assert call.attributes["gen_ai.usage.output_tokens"] > 0


def test_statements_have_spans_without_values(observed: Observed, learned: dict[str, Any]) -> None:
    spans = observed.spans.of_trace(learned["otel"])
    ids = {span.span_id: span for span in spans}
    statements = [span for span in spans if span.attributes.get("db.system.name") == "postgresql"]
    assert {"BEGIN", "COMMIT", "INSERT", "SELECT"} <= {span.name for span in statements}
    parents = {ids[span.parent_id].name for span in statements}
    assert {"POST /api/v1/traces", "run reflect", "run apply"} <= parents
    text = str([span.attributes for span in statements])
    assert str(learned["tenant"].id) not in text
    assert "report of March" not in text
    inserts = [s for s in statements if "trace_events" in s.attributes.get("db.query.text", "")]
    assert inserts


def test_no_span_has_content(observed: Observed, learned: dict[str, Any]) -> None:
    text = str([(span.name, span.attributes) for span in observed.spans.spans])
    for content in ("report of March", "met the same limit", "in pages", "query_text="):
        assert content not in text


def test_lines_of_run_carry_all_ids(observed: Observed, learned: dict[str, Any]) -> None:
    of_run = [line for line in observed.log("worker") if line.get("trace_id") == learned["trace"]]
    kinds = {line["kind"] for line in of_run}
    assert "reflect" in kinds
    for line in of_run:
        assert line["tenant_id"] == str(learned["tenant"].id)
        assert line["run_id"]
        assert line["otel_trace_id"] == learned["otel"]
        assert line["otel_span_id"]
    names = {line["event"] for line in of_run}
    assert {"reflection_generation_started", "reflection_generated", "reflection_stored"} <= names


def test_access_line_has_ids_and_route_only(observed: Observed, learned: dict[str, Any]) -> None:
    lines = [line for line in observed.log("api") if line["event"] == "request_finished"]
    (line,) = [line for line in lines if line["request_id"] == learned["request_id"]]
    assert line["level"] == "info"
    assert (line["method"], line["route"], line["status"]) == ("POST", "/api/v1/traces", 201)
    assert line["tenant_id"] == str(learned["tenant"].id)
    assert (line["trace_id"], line["run_id"]) == (learned["trace"], learned["run"])
    assert line["otel_trace_id"] == learned["otel"]
    assert line["milliseconds"] > 0
    assert line["key_id"]
    assert "reflect=always" not in observed.log_text("api")
    routes = {line["route"] for line in lines}
    assert "/api/v1/playbooks/{playbook}/render" in routes
    assert not any("support" in route for route in routes)


def test_worker_serves_its_metrics(observed: Observed, learned: dict[str, Any]) -> None:
    text = observed.metrics(worker=True)
    for kind in ("evaluate", "reflect", "curate", "apply"):
        assert f'hansei_runs_total{{kind="{kind}",result="done"}}' in text
    assert 'hansei_reflections_total{engine="llm",kind="reflect",result="stored"}' in text
    assert 'hansei_llm_calls_total{model="gpt-4o-mini",provider="compatible"' in text
    assert 'hansei_queue_tickets{state="due"} 0.0' in text
    assert "process_resident_memory_bytes" in text
    api = observed.metrics()
    assert 'hansei_verdicts_total{counted="true",judge="human",tag="helpful"}' in api
    assert "hansei_render_duration_seconds_count" in api


def test_top_shows_all_processes(observed: Observed, learned: dict[str, Any]) -> None:
    urls = (observed.installation.url, f"127.0.0.1:{observed.worker_port}")
    options = [option for url in urls for option in ("--url", url)]
    env = {"HANSEI_METRICS_TOKEN": TOKEN, "COLUMNS": "160"}
    status, shown, error = run_command_here(("top", "--once", *options), env)
    assert status == 0, error
    assert shown.startswith("Do agents get better?")
    for words in ("Queue", "due", "reflect", "gpt-4o-mini", "POST /api/v1/traces", "US dollars"):
        assert words in shown


def test_top_without_any_process_says_what_to_do(observed: Observed) -> None:
    options = ("--token", "wrong", "--url", observed.installation.url)
    status, _, error = run_command_here(("top", "--once", *options), {})
    assert status == 1
    assert "status 401" in error
    assert "--token" in error


def test_top_reads_the_data_directory(tmp_path: Path) -> None:
    save_credentials(tmp_path, Credentials("http://127.0.0.1:1", "hsk_x", "default"))
    status, _, error = run_command_here(("top", "--once", "--data-dir", str(tmp_path)), {})
    assert (status, "http://127.0.0.1:1/metrics" in error) == (1, True)


def test_top_reads_the_service_of_the_environment(
    observed: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same one that every other command uses, also beside a folder of another service."""
    save_credentials(tmp_path / ".hansei", Credentials("http://127.0.0.1:1", "hsk_x"))
    monkeypatch.chdir(tmp_path)
    env = {"HANSEI_URL": observed.installation.url, "HANSEI_METRICS_TOKEN": TOKEN}
    status, shown, error = run_command_here(("top", "--once"), env | {"COLUMNS": "200"})
    assert status == 0, error
    assert f"Metrics: {observed.installation.url}/metrics" in shown
    assert f"Unknown: no API key for {observed.installation.url}" in shown


def test_top_without_a_service_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, error = run_command_here(("top", "--once"), {"HOME": str(tmp_path)})
    assert (status, "No credentials found" in error) == (1, True)


def test_opentelemetry_is_not_imported_without_endpoint() -> None:
    program = (
        "import sys; import memory_api.main, memory_api.commands.processes;"
        "from memory_api.core.tracing import configure_tracing, is_tracing;"
        "configure_tracing(None, 'x'); assert not is_tracing();"
        "found = [m for m in sys.modules if m.startswith(('opentelemetry.sdk',"
        " 'opentelemetry.exporter'))]; assert not found, found"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
