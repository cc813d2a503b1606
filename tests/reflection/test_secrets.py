"""A secret in a trace reaches neither a provider nor the database."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
from structlog.testing import capture_logs

from memory_api.library.reflection_engine import ReflectionEngineV2
from memory_api.llm.registry import open_llm
from memory_api.trace_analysis.analyze import ReflectionContext
from tests.conftest import Database
from tests.support.model_service import GOOD, Serve, Service, answer, trace
from tests.support.stub_provider import StubProvider, bad_request

KEY = "sk-proj-Zx81mQw02LkVn3Tb7Yc5Rd9EfGh4JkL6"
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
PASSWORD = "Tr0ub4dor-and-3"
SECRETS = (KEY, TOKEN, PASSWORD)


def leaky() -> dict[str, Any]:
    return trace(
        events=[
            {
                "event_type": "tool_call",
                "tool_name": "login",
                "content": f"curl -H 'Authorization: Bearer {KEY}' https://x.example",
                "metadata": {"environment": {"password": PASSWORD}},
            },
            {
                "event_type": "error_event",
                "content": f"git clone https://user:{PASSWORD}@host.example failed: {TOKEN}",
                "error": {"message": f"denied for {TOKEN}", "tries": 3},
            },
        ],
        error={"error_message": f"token {TOKEN} was refused", "context": {"api_key": KEY}},
        task_description=f"Deploy with {KEY}",
        task_goal=f"Deployed, password: {PASSWORD}",
    )


async def everything(database: Database, tenant_id: Any) -> str:
    """Every row of every table that a tenant has, as text, read as superuser."""
    connection = await asyncpg.connect(database.url("postgres"))
    try:
        tables = await connection.fetch(
            "select table_name from information_schema.columns"
            " where table_schema = 'public' and column_name = 'tenant_id'"
        )
        rows: list[str] = []
        for (table,) in tables:
            found = await connection.fetch(
                f"select to_jsonb(t)::text from {table} t where tenant_id = $1", tenant_id
            )
            rows += [row[0] for row in found]
        return "\n".join(rows)
    finally:
        await connection.close()


async def test_no_secret_is_stored_or_shown(service: Service, database: Database) -> None:
    service.stub.queue(
        lambda call: answer(GOOD | {"reflection": f"The agent used {TOKEN} in the clear."})
    )
    body = await service.learn(**leaky())
    assert body["engine"] == "llm"
    assert body["reflection_text"] == "The agent used [secret:github_token] in the clear."
    stored = await everything(database, service.tenant.id)
    assert "Fetch" in stored or "Deploy with" in stored
    shown = json.dumps([call.body for call in service.stub.calls])
    for secret in SECRETS:
        assert secret not in stored
        assert secret not in shown
    kept = (await service.api.get(f"/api/v1/traces/{body['trace_id']}")).json()
    assert kept["metadata"]["redacted"]["openai_key"] >= 2
    assert kept["events"][1]["error"] == {"message": "denied for [secret:github_token]", "tries": 3}
    assert kept["events"][0]["tool_name"] == "login"


async def test_secret_echoed_by_provider_is_not_stored(serve: Serve, database: Database) -> None:
    service = await serve()
    service.stub.behave = lambda call: bad_request(f"Incorrect API key provided: {KEY}")
    await service.learn()
    stored = await everything(database, service.tenant.id)
    assert "Incorrect API key provided" in stored
    assert KEY not in stored


async def test_later_events_of_open_trace_are_redacted(serve: Serve, database: Database) -> None:
    service = await serve()
    body = leaky()
    opened = await service.api.post("/api/v1/traces", json={"state": "open"})
    url = f"/api/v1/traces/{opened.json()['trace_id']}"
    for path, told in (
        ("/events", {"events": body["events"]}),
        ("/outcome", {"outcome": "failure", "ground_truth": {"key": KEY}, "test_report": TOKEN}),
        ("/close", {"outcome": "failure", "error": body["error"]}),
    ):
        (await service.api.post(url + path, json=told)).raise_for_status()
    stored = await everything(database, service.tenant.id)
    assert not [secret for secret in SECRETS if secret in stored]
    kept = (await service.api.get(url)).json()
    assert kept["metadata"]["redacted"]["github_token"] >= 4
    again = await service.api.post(
        url + "/outcome",
        json={"outcome": "failure", "ground_truth": {"key": KEY}, "test_report": TOKEN},
    )
    again.raise_for_status()
    assert (await service.api.get(url)).json()["metadata"] == kept["metadata"], "nothing is new"


async def test_duplicate_is_detected_before_redaction(serve: Serve) -> None:
    service = await serve()
    first = await service.learn(**leaky(), external_id="one")
    second = await service.learn(**leaky(), external_id="one")
    assert second["duplicate"] is True
    assert second["trace_id"] == first["trace_id"]


async def test_trace_without_secrets_is_unchanged(serve: Serve) -> None:
    service = await serve()
    odd = {"a": [1, 2.5, None, True, {"b": "ü 漢字 {x}"}], "redacted": "mine"}
    sent = trace(metadata=odd)
    stored = await service.api.post("/api/v1/traces", json=sent)
    kept = (await service.api.get(f"/api/v1/traces/{stored.json()['trace_id']}")).json()
    assert kept["metadata"] == odd
    assert [one["content"] for one in kept["events"]] == [e["content"] for e in sent["events"]]


async def test_library_sends_no_secret_to_model(stub: StubProvider) -> None:
    llm = open_llm("openai", model="m", api_key="k", base_url=stub.openai_url)
    assert llm is not None
    stub.behave = lambda call: answer(GOOD)
    body = leaky()
    engine = ReflectionEngineV2(
        memory_repository=object(),  # type: ignore[arg-type] # nothing is stored here
        llm=llm,
        prompts={"reflection/failure": "My own prompt. {schema}"},
    )
    with capture_logs():
        result = await engine.generate_reflection(ReflectionContext(tenant_id="t", **body))
    await llm.aclose()
    assert result.reflection_text == GOOD["reflection"]
    assert stub.calls[0].system.startswith("My own prompt.")
    shown = json.dumps(stub.calls[0].body) + result.model_dump_json()
    assert not [secret for secret in SECRETS if secret in shown]
