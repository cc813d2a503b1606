"""From settings to an answer: the chain that every process opens for itself."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from httpx2 import AsyncClient

from memory_api import worker
from memory_api.bootstrap import open_runtime
from memory_api.core.settings import Settings
from memory_api.llm.errors import LLMServerError
from memory_api.llm.port import LLMRequest, Message
from memory_api.maintenance import upkeep
from memory_api.runtime import Runtime
from tests.conftest import Database, TestTenant
from tests.support.model_service import trace
from tests.support.stub_provider import StubProvider, by_schema, server_error


def settings(**changes: Any) -> Settings:
    return Settings(_env_file=None, **changes)  # type: ignore[call-arg]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_next_model_answers_when_the_first_cannot(
    database: Database, stub: StubProvider, tenant: TestTenant, provider: str
) -> None:
    chosen = settings(
        llm_provider=provider,
        llm_model="stub-400, second",
        openai_api_key="k",
        openai_base_url=stub.openai_url,
        anthropic_api_key="k",
        anthropic_base_url=stub.anthropic_url,
    )
    async with open_runtime(chosen, database.url("hansei_app")) as runtime:
        assert runtime.llm is not None
        request = LLMRequest((Message("user", "hello"),), tenant_id=tenant.id)
        assert (await runtime.llm.complete(request)).text == "ok"
    assert [call.model for call in stub.calls] == ["stub-400", "second"]


async def test_worker_calls_model_once(
    database: Database, stub: StubProvider, tenant: TestTenant
) -> None:
    chosen = settings(llm_provider="openai", llm_model="stub-500", openai_base_url=stub.openai_url)
    url = database.url("hansei_worker")
    async with open_runtime(chosen, url, background=True) as runtime:
        assert runtime.llm is not None
        with pytest.raises(LLMServerError):
            await runtime.llm.complete(LLMRequest((Message("user", "hello"),), tenant_id=tenant.id))
        ((key, _),) = runtime.circuit_breakers.items()
        assert (key.provider, key.model) == ("compatible", "stub-500")
    assert len(stub.calls) == 1


async def test_rules_engine_runs_without_api_key(database: Database) -> None:
    async with open_runtime(settings(), database.url("hansei_app")) as runtime:
        assert runtime.llm is None


async def forget_others(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests left would be this worker's work too: tickets, and at each fifth minute the
    runs that upkeep finds without one. A model that answers for them excuses nobody any more.
    """

    async def nothing(_runtime: Runtime) -> None: ...

    monkeypatch.setattr(upkeep, "enqueue_upkeep", nothing)
    connection = await asyncpg.connect(database.url("hansei_app"))
    try:
        await connection.execute("delete from tickets")
    finally:
        await connection.close()


async def test_worker_process_leaves_retries_to_queue(
    database: Database,
    stub: StubProvider,
    api: AsyncClient,
    tenant: TestTenant,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await forget_others(database, monkeypatch)
    stub.behave = lambda call: server_error() if "A poor start" in call.user else by_schema(call)
    sent = await api.post("/api/v1/traces", json=trace(task_description="A poor start"))
    sent.raise_for_status()
    chosen = settings(llm_provider="openai", llm_model="m", openai_base_url=stub.openai_url)
    stop = asyncio.Event()
    url = database.url("hansei_worker")
    async with open_runtime(chosen, url, background=True) as runtime, asyncio.timeout(30):
        working = asyncio.create_task(worker.run_worker(runtime, stop))
        while not (run := (await api.get("/api/v1/runs")).json()["items"][0])["error"]:
            await asyncio.sleep(0.05)
        stop.set()
        await working
    assert (run["state"], run["attempt_count"], run["error"]["code"]) == (
        "queued",
        0,
        "llm_server_error",
    )
    assert sum("A poor start" in call.user for call in stub.calls) == 1
