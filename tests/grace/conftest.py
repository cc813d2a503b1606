"""A project with a handbook, and an agent that a test configures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from httpx2 import AsyncClient

from memory_api.grace.config import GraceConfig
from memory_api.grace.interventions import AGENT
from memory_api.grace.step import AgentRunStep
from memory_api.runtime import Runtime
from memory_api.worker import RUN_STEPS, process_ticket
from tests.conftest import TestTenant
from tests.support.tickets import waiting_tickets

URL = "/api/v1/agents/runs"
HANDBOOK = """# Refunds

A pending order cannot be refunded. Cancel it instead.

## Delivered orders

A delivered order is refunded within thirty days. The customer needs the receipt.

## Shipping abroad

Parcels to Norway take nine working days and need a customs form.

# 返品

未使用の商品は購入から十四日以内に返品できます。送料はお客様の負担です。
"""


def config(**sections: dict[str, Any]) -> GraceConfig:
    """The default settings with these changes, and no cool-down."""
    values = {"executor": {"cooldown_seconds": 0}}
    for name, section in sections.items():
        values[name] = values.get(name, {}) | section
    return GraceConfig.model_validate(values)


@dataclass
class Agent:
    """The agent of one tenant: over HTTP, and a worker that the test drives."""

    api: AsyncClient
    runtime: Runtime
    tenant: TestTenant
    config: GraceConfig = field(default_factory=config)

    async def start(self, query: str, **more: Any) -> str:
        answer = await self.api.post(URL, json={"query": query} | more)
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    async def work(self) -> int:
        """Do what is due, as a worker would. Returns the number of runs."""
        done = 0
        while tickets := await waiting_tickets(self.runtime, self.tenant.id):
            for ticket in tickets:
                steps = {**RUN_STEPS, AGENT: AgentRunStep(self.config)}
                await process_ticket(self.runtime, ticket, steps)
                done += 1
        return done

    async def get(self, run_id: str) -> dict[str, Any]:
        answer = await self.api.get(f"{URL}/{run_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def ask(self, query: str, **more: Any) -> dict[str, Any]:
        run_id = await self.start(query, **more)
        await self.work()
        return await self.get(run_id)

    async def answer(self, run: dict[str, Any], action: str, given: str | None = None) -> Any:
        url = f"{URL}/{run['id']}/interventions/{run['intervention']['id']}/answer"
        return await self.api.post(url, json={"action": action, "input": given})

    async def go_on(
        self, run: dict[str, Any], action: str, given: str | None = None
    ) -> dict[str, Any]:
        answer = await self.answer(run, action, given)
        assert answer.status_code == 202, answer.text
        await self.work()
        return await self.get(run["id"])

    async def events(self, run_id: str, after: int | None = None) -> list[tuple[int, str]]:
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        answer = await self.api.get(f"{URL}/{run_id}/events", headers=headers)
        assert answer.headers["content-type"].startswith("text/event-stream")
        found: list[tuple[int, str]] = []
        for block in answer.text.strip().split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.splitlines() if line)
            if lines:
                found.append((int(lines["id"]), lines["event"]))
        return found


async def add_handbook(api: AsyncClient, work: Callable[[], Awaitable[int]]) -> None:
    body = {"name": "handbook", "description": "Refunds and shipping", "chunk_tokens": 64}
    (await api.post("/api/v1/collections", json=body)).raise_for_status()
    added = await api.post(
        "/api/v1/collections/handbook/documents",
        params={"source": "handbook.md"},
        content=HANDBOOK.encode(),
    )
    added.raise_for_status()
    await work()


@pytest.fixture
async def agent(api: AsyncClient, runtime: Runtime, tenant: TestTenant) -> Agent:
    made = Agent(api, runtime, tenant)
    await add_handbook(api, made.work)
    return made
