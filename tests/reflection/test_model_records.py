"""What a reflection by a model leaves behind: the ledger, the run, what health says; and who sees
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text

from tests.conftest import Database, TestTenant
from tests.support.model_service import MODELS, Serve, Service
from tests.support.stub_provider import rate_limited, server_error, wrong_shape


async def test_every_call_is_recorded_with_cost(service: Service) -> None:
    service.stub.queue(server_error(), wrong_shape())
    body = await service.learn()
    run = await service.run(body["run_id"])
    failed, unusable, good = await service.calls()
    assert (failed.status, failed.error, failed.cost_usd) == ("error", "llm_server_error", None)
    assert failed.input_tokens is None
    for row in (unusable, good):
        assert (row.status, row.error, row.finish_reason) == ("ok", None, "stop")
        assert row.input_tokens > 1000
        assert row.output_tokens > 0
        assert row.model in MODELS.values()
    for row in (failed, unusable, good):
        assert (row.run_id, row.purpose, row.prompt_hash) == (run.id, "reflect", run.prompt_hash)
        assert row.latency_ms >= 0
    assert run.usage["calls"] == 2
    assert run.usage["input_tokens"] == unusable.input_tokens + good.input_tokens
    assert (run.engine, run.usage["provider"]) == ("llm", good.provider)
    if good.provider == "compatible":  # a server of one's own: nobody knows what it costs
        assert (unusable.cost_usd, good.cost_usd, run.usage["usd"]) == (None, None, None)
    else:
        assert 0 < good.cost_usd < 1
        assert Decimal(str(run.usage["usd"])) == pytest.approx(unusable.cost_usd + good.cost_usd)


async def test_run_by_rules_has_no_model(api: Any) -> None:
    answer = await api.post(
        "/api/v1/reflections/generate",
        json={"events": [{"event_type": "error_event", "content": "boom"}], "outcome": "error"},
    )
    run = (await api.get(f"/api/v1/runs/{answer.json()['run_id']}")).json()
    assert (run["engine"], run["degraded"]) == ("rules", False)
    assert run["usage"] is None


async def test_tenants_do_not_see_each_others_calls(
    service: Service, make_tenant: Callable[[], Awaitable[TestTenant]]
) -> None:
    await service.learn()
    other = await make_tenant()
    async with service.runtime.sessions.for_tenant(other.id) as session:
        assert (await session.execute(text("select * from llm_calls"))).all() == []
    async with service.runtime.sessions.without_tenant() as session:
        assert (await session.execute(text("select * from llm_calls"))).all() == []
    assert len(await service.calls()) == 1


async def test_ledger_cannot_be_rewritten(service: Service) -> None:
    await service.learn()
    async with service.runtime.sessions.for_tenant(service.tenant.id) as session:
        with pytest.raises(Exception, match="permission denied"):
            await session.execute(text("update llm_calls set cost_usd = 0"))
        await session.rollback()
    calls = await service.calls()
    async with service.runtime.sessions.for_tenant(service.tenant.id) as session:
        await session.execute(text("delete from llm_calls"))
    assert len(await service.calls()) == len(calls) > 0, "only retention deletes, after a day"


async def test_no_transaction_is_open_during_model_call(
    service: Service, database: Database
) -> None:
    service.stub.delay = 0.4
    request = asyncio.create_task(service.generate())
    seen = 0
    connection = await asyncpg.connect(database.url("postgres"))
    try:
        while not request.done():
            if service.stub.calls:
                rows = await connection.fetch(
                    "select query from pg_stat_activity where datname = current_database()"
                    " and state like 'idle in transaction%' and usename = 'hansei_app'"
                )
                if not request.done() and len(service.stub.calls) == 1 and seen < 3:
                    assert rows == []
                    seen += 1
            await asyncio.sleep(0.02)
    finally:
        await connection.close()
    assert request.result().status_code == 200
    assert seen == 3


async def test_health_shows_model_and_pause(service: Service) -> None:
    ready = (await service.api.get("/health/ready")).json()
    llm = service.runtime.llm
    assert llm is not None
    assert ready["model"] == {"status": "ok", "provider": llm.provider, "model": llm.model}
    service.stub.behave = lambda call: rate_limited(retry_after=20)
    await service.learn()
    answer = await service.api.get("/health/ready")
    assert answer.status_code == 200, "rules still answer"
    told = answer.json()["model"]
    assert (told["status"], told["error"]) == ("paused", "llm_rate_limited")
    assert 0 < told["seconds"] <= 20
    asked = len(service.stub.calls)
    body = await service.learn(task_description="Another one")
    assert (body["degraded"], len(service.stub.calls)) == (True, asked), "nobody is asked meanwhile"
    service.clock.now += 21
    service.set_answer()
    assert (await service.learn(task_description="A third"))["engine"] == "llm"
    assert (await service.api.get("/health/ready")).json()["model"]["status"] == "ok"


async def test_concurrent_requests_make_two_reflections(serve: Serve) -> None:
    service = await serve()
    service.stub.delay = 0.05
    answers = await asyncio.gather(
        *(service.learn(task_description=f"Task {number}") for number in range(8))
    )
    assert {body["engine"] for body in answers} == {"llm"}
    assert len(await service.calls()) == 8
