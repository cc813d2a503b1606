"""Refusals wait while there are many: clients with wrong keys leave time for others (M8)."""

from __future__ import annotations

import asyncio

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient

from memory_api.auth import refusal_delay
from memory_api.auth.identity import generate_key
from memory_api.auth.refusal_delay import (
    BURST,
    MAX_DELAY_SECONDS,
    REFUSALS_PER_SECOND,
    RefusalDelay,
)


def test_refusals_are_spread_over_time() -> None:
    now = 1_000.0
    delays = RefusalDelay(lambda: now)
    assert [delays.next_delay() for _ in range(BURST)] == [0] * BURST
    spread = [delays.next_delay() for _ in range(10)]
    assert spread == pytest.approx([n / REFUSALS_PER_SECOND for n in range(1, 11)])
    longest = [delays.next_delay() for _ in range(1_000)][-1]
    assert longest == pytest.approx(MAX_DELAY_SECONDS)
    now += MAX_DELAY_SECONDS + BURST / REFUSALS_PER_SECOND
    assert [delays.next_delay() for _ in range(BURST)] == [0] * BURST, "after a quiet time"


async def test_only_so_many_requests_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal_delay, "BURST", 0)
    monkeypatch.setattr(refusal_delay, "MAX_DELAYED", 2)
    monkeypatch.setattr(refusal_delay, "REFUSALS_PER_SECOND", 1)
    delays = RefusalDelay()
    waiting = [asyncio.create_task(delays.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    await delays.wait()
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert delays._delayed == 0


async def test_valid_key_does_not_wait_for_refusals(
    app: FastAPI, api: AsyncClient, tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal_delay, "BURST", 1)
    monkeypatch.setattr(refusal_delay, "REFUSALS_PER_SECOND", 0.5)
    monkeypatch.setattr(app.state.api.refusal_delay, "_next_at", 0.0)

    async def guess() -> int:
        wrong = {"Authorization": f"Bearer {generate_key(tenant.id).text}"}
        return (await api.get("/api/v1/traces", headers=wrong)).status_code

    assert await guess() == 401
    delayed = asyncio.create_task(guess())
    assert (await api.get("/api/v1/traces")).status_code == 200
    assert not delayed.done()
    assert await delayed == 401
