"""The service with a model behind it: the stub provider, through each of the real SDKs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import httpx2
import pytest
from fastapi import FastAPI
from sqlalchemy import select

from memory_api.bootstrap import wrap_models
from memory_api.budgets.accounting import ModelAccounting
from memory_api.budgets.tables import LLMCallRow
from memory_api.llm.circuit_breaker import CircuitBreakers
from memory_api.llm.deadline import DeadlineLLM
from memory_api.llm.registry import open_llm
from memory_api.llm.stored_replies import StoredReplyLLM
from memory_api.llm.wrappers import RetryingLLM
from memory_api.run_queue.port import Ticket
from memory_api.runs.queries import list_runs, select_runs
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.worker import process_ticket
from tests.conftest import TestTenant
from tests.support.live_service import with_runtime
from tests.support.stub_provider import StubProvider
from tests.support.tickets import waiting_tickets

MODELS = {"openai": "gpt-4o-mini", "anthropic": "claude-haiku-5-5"}
GOOD: dict[str, Any] = {
    "reflection": "The fetch was sent twice without a change and met the same limit.",
    "strategy": "Ask for the report in pages when fetch times out.",
    "importance": 0.8,
    "confidence": 0.9,
    "tags": ["fetch", "paging"],
    "source_event_ids": ["e0001"],
}


async def _no_wait(_seconds: float) -> None:
    return None


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Service:
    """The API and the worker, both with the model."""

    runtime: Runtime
    background: Runtime
    clock: Clock
    stub: StubProvider
    tenant: TestTenant
    api: httpx2.AsyncClient

    async def generate(self, **changes: Any) -> httpx2.Response:
        return await self.api.post("/api/v1/reflections/generate", json=trace(**changes))

    async def learn(self, **changes: Any) -> dict[str, Any]:
        answer = await self.generate(**changes)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def deliver_due_tickets(self) -> list[Any]:
        """Deliver what is due, once; answers how long each ticket is to wait."""
        tickets = await waiting_tickets(self.runtime, self.tenant.id)
        return [await process_ticket(self.background, ticket) for ticket in tickets]

    async def deliver_ticket(self, run_id: UUID) -> None:
        """What its ticket will bring about when it is due."""
        await process_ticket(self.background, Ticket(self.tenant.id, run_id))

    def set_llm_timeout(self, seconds: float) -> None:
        """How long API and worker wait for the model."""
        for runtime in (self.runtime, self.background):
            settings = runtime.settings.model_copy(update={"llm_timeout": seconds})
            object.__setattr__(runtime, "settings", settings)

    async def calls(self) -> list[LLMCallRow]:
        async with self.runtime.sessions.for_tenant(self.tenant.id) as session:
            rows = await session.scalars(
                select(LLMCallRow)
                .where(LLMCallRow.tenant_id == self.tenant.id)
                .order_by(LLMCallRow.created_at, LLMCallRow.id)
            )
            return list(rows)

    async def runs(self) -> list[RunRow]:
        """Newest first."""
        async with self.runtime.sessions.for_tenant(self.tenant.id) as session:
            return list(await list_runs(session, select_runs(session)))

    async def run(self, run_id: str | UUID) -> RunRow:
        return next(run for run in await self.runs() if str(run.id) == str(run_id))

    async def memory(self, memory_id: str) -> dict[str, Any]:
        answer = await self.api.get(f"/api/v1/memories/{memory_id}")
        answer.raise_for_status()
        return answer.json()

    def set_answer(self, **changes: Any) -> None:
        """What the model answers from now on."""
        self.stub.behave = lambda call: answer(GOOD | changes)


def answer(value: dict[str, Any]) -> Any:
    from tests.support.stub_provider import answer as make  # noqa: PLC0415 - the name is taken

    return make(json.dumps(value, ensure_ascii=False))


def trace(**changes: Any) -> dict[str, Any]:
    """A failed run in the form of spec 5."""
    return {
        "events": [
            {"event_type": "user_message", "content": "Fetch the report of March"},
            {"event_type": "tool_call", "tool_name": "fetch", "content": "fetch(report, march)"},
            {
                "event_type": "error_event",
                "tool_name": "fetch",
                "content": "connection timed out after 30 s",
                "error": {"message": "timed out", "code": "E_TIME"},
            },
        ],
        "outcome": "failure",
        "error": {
            "error_category": "timeout_error",
            "error_message": "fetch gave up after 30 s",
            "context": {"attempt": "second"},
        },
        "task_description": "Bring the monthly report",
        "task_goal": "The report of March is on the desk",
    } | changes


def with_model(
    runtime: Runtime, stub: StubProvider, sdk: str, breakers: CircuitBreakers, *, attempts: int
) -> Runtime:
    url = stub.openai_url if sdk == "openai" else stub.anthropic_url
    llm = open_llm(sdk, model=MODELS[sdk], api_key="test", base_url=url)
    assert llm is not None
    chain = wrap_models(
        [llm],
        accounting=ModelAccounting(runtime.sessions),
        circuit_breakers=breakers,
        attempts=attempts,
        retry=partial(RetryingLLM, sleep=_no_wait),
    )
    settings = runtime.settings.model_copy(update={"llm_timeout": 2.0})
    stored = StoredReplyLLM(DeadlineLLM(chain), runtime.sessions)
    return replace(runtime, settings=settings, llm=stored, circuit_breakers=breakers)


Serve = Callable[..., Awaitable[Service]]


@pytest.fixture
async def serve(
    app: FastAPI, runtime: Runtime, stub: StubProvider, tenant: TestTenant
) -> AsyncIterator[Serve]:
    """Open the service with one SDK and changed settings."""
    open_now = AsyncExitStack()
    opened: list[Runtime] = []

    async def open_service(sdk: str = "openai", **settings: Any) -> Service:
        clock = Clock()
        front = with_model(runtime, stub, sdk, CircuitBreakers(clock), attempts=3)
        back = with_model(runtime, stub, sdk, CircuitBreakers(clock), attempts=1)
        front, back = (
            replace(one, settings=one.settings.model_copy(update=settings)) for one in (front, back)
        )
        opened.extend((front, back))
        transport = httpx2.ASGITransport(with_runtime(app, front), raise_app_exceptions=False)
        client = httpx2.AsyncClient(
            transport=transport,
            base_url="http://hansei",
            headers=tenant.auth(),
        )
        await open_now.enter_async_context(client)
        made = Service(front, back, clock, stub, tenant, client)
        made.set_answer()
        return made

    yield open_service
    await open_now.aclose()
    for one in opened:
        assert one.llm is not None
        await one.llm.aclose()


@pytest.fixture(params=["openai", "anthropic"])
async def service(request: pytest.FixtureRequest, serve: Serve) -> Service:
    """Each test runs once per SDK."""
    return await serve(request.param)
