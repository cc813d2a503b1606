"""GET /metrics: who may read it, and what it counts."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import httpx2
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from memory_api.api.exposition import render_metrics
from memory_api.bootstrap import build_runtime
from memory_api.budgets.reservations import CostEstimate, reserve
from memory_api.budgets.tables import BudgetRow
from memory_api.core.after_commit import call_after_commit
from memory_api.core.metrics import REGISTRY
from memory_api.core.settings import Settings
from memory_api.core.statements import fetch_rows
from memory_api.llm.errors import LLMOverBudget
from memory_api.llm.port import TokenUsage
from memory_api.main import create_app
from memory_api.run_queue import figures as figures_module
from memory_api.run_queue.figures import QueueGauge
from memory_api.runtime import Runtime
from tests.api.test_problems import unused_port
from tests.conftest import TestTenant
from tests.support.live_service import with_runtime
from tests.support.model_service import Service
from tests.support.problems import assert_problem
from tests.support.stub_provider import rate_limited

TOKEN = "a-token-of-the-metrics"
STRANGER = ("203.0.113.9", 4711)


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def client(app: FastAPI, address: tuple[str, int] = ("127.0.0.1", 1)) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=app, client=address, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://hansei")


def with_settings(app: FastAPI, runtime: Runtime, **changes: Any) -> FastAPI:
    settings = runtime.settings.model_copy(update=changes)
    return with_runtime(
        app, build_runtime(settings, runtime.sessions, runtime.default_embedder, runtime.queue)
    )


async def test_loopback_may_read_and_strangers_may_not(app: FastAPI, runtime: Runtime) -> None:
    app = with_settings(app, runtime)
    for address in (("127.0.0.1", 1), ("::1", 1), ("127.8.8.8", 1)):
        async with client(app, address) as http:
            answer = await http.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
    for address in (STRANGER, ("10.0.0.1", 1), ("unix", 1)):
        async with client(app, address) as http:
            assert_problem(await http.get("/metrics"), 403, "forbidden")


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
async def test_client_of_proxy_is_no_loopback_client(
    app: FastAPI, runtime: Runtime, header: str
) -> None:
    async with client(with_settings(app, runtime)) as http:
        answer = await http.get("/metrics", headers={header: "127.0.0.1"})
    assert_problem(answer, 403, "forbidden")


async def test_token_is_required_of_everybody(
    app: FastAPI, runtime: Runtime, tenant: TestTenant
) -> None:
    app = with_settings(app, runtime, metrics_token=SecretStr(TOKEN))
    for address in (STRANGER, ("127.0.0.1", 1)):
        async with client(app, address) as http:
            for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {TOKEN}"}):
                assert_problem(await http.get("/metrics", headers=wrong), 401, "unauthorized")
            answer = await http.get("/metrics", headers=tenant.auth("admin"))
            assert_problem(answer, 401, "unauthorized")
            right = await http.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
            assert right.status_code == 200


async def test_requests_are_counted_by_route_template(api: httpx2.AsyncClient) -> None:
    labels = {"method": "GET", "route": "/api/v1/traces/{trace_id}", "status": "404"}
    before = value("hansei_http_requests_total", **labels)
    for number in range(3):
        await api.get(f"/api/v1/traces/{UUID(int=number)}")
    assert value("hansei_http_requests_total", **labels) == before + 3
    method, route = labels["method"], labels["route"]
    name = "hansei_http_request_duration_seconds_count"
    assert value(name, method=method, route=route) >= 3


async def test_unknown_paths_and_methods_share_labels(api: httpx2.AsyncClient) -> None:
    labels = {"method": "other", "route": "unmatched", "status": "404"}
    before = value("hansei_http_requests_total", **labels)
    for number in range(5):
        await api.request(f"METHOD{number}", f"/nowhere/{number}")
    assert value("hansei_http_requests_total", **labels) == before + 5


async def test_no_series_names_tenant_path_or_id(
    api: httpx2.AsyncClient, runtime: Runtime, tenant: TestTenant, drain: Any
) -> None:
    body = {
        "outcome": "failure",
        "playbook": "the-name-of-a-playbook",
        "events": [{"event_type": "error_event", "content": "connection refused"}],
    }
    stored = await api.post("/api/v1/traces", json=body)
    await drain(tenant.id)
    await api.post("/api/v1/playbooks/the-name-of-a-playbook/render", json={"query_text": "x"})
    text = (await render_metrics(runtime)).decode()
    assert "the-name-of-a-playbook" not in text
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}", text)
    assert stored.json()["trace_id"] not in text
    assert 'hansei_runs_total{kind="reflect",result="done"}' in text


async def test_failing_runs_are_counted_by_result(
    runtime: Runtime, tenant: TestTenant, api: httpx2.AsyncClient, drain: Any
) -> None:
    class Broken:
        kind = "evaluate"

        async def execute(self, *_: object) -> None:
            raise RuntimeError("broken")

    before = value("hansei_runs_total", kind="evaluate", result="retried")
    body = {"outcome": "failure", "events": [{"event_type": "error_event", "content": "x"}]}
    stored = await api.post("/api/v1/traces", json=body)
    assert stored.status_code == 201
    await drain(tenant.id, {"evaluate": Broken()})
    assert value("hansei_runs_total", kind="evaluate", result="retried") == before + 1


async def test_rolled_back_work_is_not_counted(runtime: Runtime, tenant: TestTenant) -> None:
    called: list[str] = []

    async def fail() -> None:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            call_after_commit(session, lambda: called.append("rolled back"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        call_after_commit(session, lambda: called.append("committed"))
        assert called == []
    assert called == ["committed"]


async def test_queue_is_read_at_most_every_five_seconds(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, statements = [100.0], 0
    gauge = QueueGauge(runtime.sessions, lambda: now[0])

    async def fetch(*arguments: Any) -> Any:
        nonlocal statements
        statements += 1
        return await fetch_rows(*arguments)

    monkeypatch.setattr(figures_module, "fetch_rows", fetch)
    for _ in range(3):
        figures = await gauge.read()
    assert statements == 1
    now[0] += 5
    await gauge.read()
    assert statements == 2
    assert [item.state for item in figures] == ["due", "delayed", "running"]


async def test_queue_figures_show_due_and_delayed_runs(
    runtime: Runtime, database: Any, queue_run: Any
) -> None:
    await database.server.run("truncate tickets", database.name)
    for _ in range(3):
        await queue_run()
    await database.server.run(
        "update tickets set due_at = now() - interval '90 s' where id in"
        " (select min(id) from tickets)",
        database.name,
    )
    await database.server.run(
        "update tickets set due_at = now() + interval '1 h' where id in"
        " (select max(id) from tickets)",
        database.name,
    )
    due, delayed, running = await QueueGauge(runtime.sessions).read()
    assert (due.count, delayed.count, running.count) == (2, 1, 0)
    assert 90 <= due.oldest_seconds < 150
    assert running.oldest_seconds == 0


async def test_metrics_answer_without_database(settings: Settings) -> None:
    port = await unused_port()
    app = create_app(settings, f"postgresql://hansei_app:secret@127.0.0.1:{port}/hansei")
    async with app.router.lifespan_context(app), client(app) as http:
        answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert "hansei_database_up 0.0" in answer.text
    assert "hansei_queue_tickets{" not in answer.text
    assert "process_resident_memory_bytes" in answer.text


async def test_model_calls_are_counted(service: Service) -> None:
    llm = service.runtime.llm
    assert llm is not None
    labels = {"provider": llm.provider, "model": llm.model, "purpose": "reflect"}
    tokens = {**labels, "direction": "output"}
    before = (
        value("hansei_llm_calls_total", **labels, result="ok"),
        value("hansei_llm_tokens_total", **tokens),
    )
    await service.learn()
    assert value("hansei_llm_calls_total", **labels, result="ok") == before[0] + 1
    calls = await service.calls()
    grown = value("hansei_llm_tokens_total", **tokens) - before[1]
    assert grown == sum(call.output_tokens or 0 for call in calls) > 0
    text = (await render_metrics(service.runtime)).decode()
    names = f'model="{llm.model}",provider="{llm.provider}"'
    assert f"hansei_circuit_breaker_open{{{names}}} 0.0" in text.replace(
        f'provider="{llm.provider}",model="{llm.model}"', names
    )
    service.stub.behave = lambda call: rate_limited(retry_after=20)
    await service.learn(task_description="Another one")
    text = (await render_metrics(service.runtime)).decode()
    assert re.search(r"hansei_circuit_breaker_open\{[^}]*\} 1\.0", text)
    failed = value("hansei_llm_calls_total", **labels, result="llm_rate_limited")
    assert failed >= 1


async def test_lowest_budget_is_shown(runtime: Runtime, tenant: TestTenant) -> None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        session.add(
            BudgetRow(tenant_id=tenant.id, period="day", limit_usd=1, allow_unknown_price=False)
        )
    refused = value("hansei_budget_refusals_total", code=LLMOverBudget.code)

    async def reserve_usd(usd: str) -> None:
        estimate = CostEstimate(
            "openai", "gpt-4o-mini", "reflect", tenant.id, None, TokenUsage(), Decimal(usd)
        )
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await reserve(session, estimate, datetime.now(UTC))

    await reserve_usd("0.75")
    with pytest.raises(LLMOverBudget):
        await reserve_usd("0.5")
    assert value("hansei_budget_left_ratio", period="day") <= 0.25
    assert value("hansei_budget_refusals_total", code=LLMOverBudget.code) == refused + 1
