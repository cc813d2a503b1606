"""The service with a model behind it: the stub provider, through each of the real SDKs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import httpx2
import pytest
from sqlalchemy import select

from apps.memory_api.budget.ledger import DatabaseLedger
from apps.memory_api.budget.tables import LLMCall
from apps.memory_api.jobs.port import Ticket
from apps.memory_api.jobs.queries import list_runs
from apps.memory_api.jobs.tables import Run
from apps.memory_api.llm.pause import Gate, Gated
from apps.memory_api.llm.registry import compose, open_llm
from apps.memory_api.llm.retry import Retry
from apps.memory_api.main import create_app
from apps.memory_api.runtime import Runtime
from apps.memory_api.worker import work
from tests.conftest import TestTenant
from tests.queue import waiting_tickets
from tests.stub_provider import StubProvider

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


@pytest.fixture(scope="session")
def stub_server() -> Iterator[StubProvider]:
    with StubProvider() as stub:
        yield stub


@pytest.fixture
def stub(stub_server: StubProvider) -> Iterator[StubProvider]:
    stub_server.clear()
    yield stub_server
    stub_server.clear()


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

    async def work_once(self) -> list[Any]:
        """Deliver what is due, once; answers how long each ticket is to wait."""
        tickets = await waiting_tickets(self.runtime, self.tenant.id)
        return [await work(self.background, ticket) for ticket in tickets]

    async def work_on(self, run_id: UUID) -> None:
        """What its ticket will bring about when it is due."""
        await work(self.background, Ticket(self.tenant.id, run_id))

    async def calls(self) -> list[LLMCall]:
        async with self.runtime.sessions.tenant(self.tenant.id) as session:
            rows = await session.scalars(
                select(LLMCall)
                .where(LLMCall.tenant_id == self.tenant.id)
                .order_by(LLMCall.created_at, LLMCall.id)
            )
            return list(rows)

    async def runs(self) -> list[Run]:
        """Newest first."""
        async with self.runtime.sessions.tenant(self.tenant.id) as session:
            return list(await list_runs(session))

    async def run(self, run_id: str | UUID) -> Run:
        return next(run for run in await self.runs() if str(run.id) == str(run_id))

    async def memory(self, memory_id: str) -> dict[str, Any]:
        answer = await self.api.get(f"/api/v1/memories/{memory_id}")
        answer.raise_for_status()
        return answer.json()

    def says(self, **changes: Any) -> None:
        """What the model answers from now on."""
        self.stub.behave = lambda call: answer(GOOD | changes)


def answer(value: dict[str, Any]) -> Any:
    from tests.stub_provider import answer as make  # noqa: PLC0415 - the name is taken

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
    runtime: Runtime, stub: StubProvider, sdk: str, gate: Gate, *, attempts: int
) -> Runtime:
    url = stub.openai_url if sdk == "openai" else stub.anthropic_url
    llm = open_llm(sdk, model=MODELS[sdk], api_key="test", base_url=url)
    assert llm is not None
    chain = compose(
        [llm],
        ledger=DatabaseLedger(runtime.sessions),
        attempts=attempts,
        retry=partial(Retry, sleep=_no_wait),
    )
    settings = runtime.settings.model_copy(update={"llm_timeout": 2.0})
    return replace(runtime, settings=settings, llm=Gated(chain, gate), gate=gate)


Serve = Callable[..., Awaitable[Service]]


@pytest.fixture
async def serve(runtime: Runtime, stub: StubProvider, tenant: TestTenant) -> AsyncIterator[Serve]:
    """Open the service with one SDK and changed settings."""
    open_now = AsyncExitStack()
    opened: list[Runtime] = []

    async def open_service(sdk: str = "openai", **settings: Any) -> Service:
        clock = Clock()
        front = with_model(runtime, stub, sdk, Gate(clock), attempts=3)
        back = with_model(runtime, stub, sdk, Gate(clock), attempts=1)
        front, back = (
            replace(one, settings=one.settings.model_copy(update=settings)) for one in (front, back)
        )
        opened.extend((front, back))
        app = create_app(front.settings, runtime=front)
        await open_now.enter_async_context(app.router.lifespan_context(app))
        client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app, raise_app_exceptions=False),
            base_url="http://hansei",
            headers=tenant.auth(),
        )
        await open_now.enter_async_context(client)
        made = Service(front, back, clock, stub, tenant, client)
        made.says()
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
