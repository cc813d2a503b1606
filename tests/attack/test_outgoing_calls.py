"""Receivers that a tenant chooses decide neither how long a call takes nor how much is read."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import openai
import psutil
import pytest
from httpx2 import AsyncClient

from memory_api.core.open_telemetry import FLUSH_SECONDS, open_provider, shut_down
from memory_api.core.outgoing import (
    MAX_PROVIDER_BYTES,
    PROVIDER_CLIENT,
    CallFailed,
    OutgoingAnswer,
    OutgoingCall,
    send_call,
)
from memory_api.embeddings.port import EmbedderUnavailable
from memory_api.embeddings.providers.openai import OpenAIEmbedder
from memory_api.llm.errors import LLMError
from memory_api.llm.port import LLMRequest, Message
from memory_api.llm.providers.anthropic import open_anthropic
from memory_api.llm.providers.openai import open_openai
from memory_api.runs.tables import RunRow
from tests.conftest import TestTenant
from tests.support import hostile_receiver as hostile
from tests.support.cases import each_case
from tests.support.hostile_receiver import Behavior, HostileReceiver
from tests.support.worker_processes import WorkerProcess
from tests.support.worker_processes import queue_run as queue_run
from tests.support.worker_processes import read_run as read_run
from tests.support.worker_processes import start_worker as start_worker
from tests.support.worker_processes import wait_for_run as wait_for_run

SECONDS = 1.0
MAX_SENT_BYTES = 12_000_000
"""What the buffers of a connection hold on this machine, though nobody reads it."""
MAX_GROWTH = 30_000_000
MAX_PROVIDER_GROWTH = 100_000_000
MAX_WAIT_SECONDS = 10.0
"""On a machine that is busy with other tests. The attack took 50 seconds or had no end."""
SHORT_CALLS = "from memory_api.webhooks import delivery; delivery.TIMEOUT_SECONDS = 1.0"
WITHOUT_END: dict[Behavior, str] = {
    hostile.stay_silent: "No answer within",
    hostile.drip: "No answer within",
    hostile.send_headers_endlessly: "more than 65,536 bytes",
    hostile.inform_endlessly: "more than 65,536 bytes",
    hostile.send_no_http: "RemoteProtocolError",
}
"""Answers without a complete head."""
WITH_BODY: dict[Behavior, str] = {
    hostile.drip_body: "No answer within",
    hostile.send_endlessly: "more than 100,000 bytes",
    hostile.send_300_mb: "more than 100,000 bytes",
    hostile.send_gzip_bomb: "more than 100,000 bytes",
}


async def ask(url: str, *, max_bytes: int) -> OutgoingAnswer:
    return await send_call(OutgoingCall("GET", url, True, SECONDS, max_bytes=max_bytes))


async def check(behavior: Behavior, problem: str | None, max_bytes: int) -> HostileReceiver:
    process, since = psutil.Process(), time.monotonic()
    before = process.memory_info().rss
    async with hostile.hostile_receiver(behavior) as receiver:
        if problem is None:
            assert await ask(receiver.url, max_bytes=max_bytes) == OutgoingAnswer(200, b"")
        else:
            with pytest.raises(CallFailed, match=problem):
                await ask(receiver.url, max_bytes=max_bytes)
        assert time.monotonic() - since < SECONDS + MAX_WAIT_SECONDS
        assert process.memory_info().rss - before < MAX_GROWTH
        assert receiver.sent_bytes < MAX_SENT_BYTES
        while receiver.connected:  # the client hung up
            await asyncio.sleep(0.01)
    assert b"accept-encoding: identity" in receiver.requests[0].lower()
    return receiver


@each_case("behavior, problem", WITHOUT_END.items())
async def test_head_without_end(behavior: Behavior, problem: str) -> None:
    await check(behavior, problem, 0)


@each_case("behavior", WITH_BODY)
async def test_body_that_is_not_wanted_is_not_read(behavior: Behavior) -> None:
    await check(behavior, None, 0)


@each_case("behavior, problem", WITH_BODY.items())
async def test_body_has_a_limit_while_it_is_read(behavior: Behavior, problem: str) -> None:
    await check(behavior, problem, 100_000)


async def test_redirect_is_not_followed() -> None:
    async with hostile.hostile_receiver(hostile.redirect) as receiver:
        assert await ask(receiver.url, max_bytes=100) == OutgoingAnswer(307, b"")
    assert len(receiver.requests) == 1


PROVIDERS = {"openai": open_openai, "anthropic": open_anthropic}
WITHOUT_ANSWER = (*WITHOUT_END, *WITH_BODY, hostile.send_large_answer)


@pytest.mark.parametrize("provider", [*PROVIDERS, "embeddings"])
async def test_model_provider_that_answers_badly(provider: str) -> None:
    """The operator chose it, and it can be taken over."""
    for behavior in WITHOUT_ANSWER:
        process, since = psutil.Process(), time.monotonic()
        before = process.memory_info().rss
        async with hostile.hostile_receiver(behavior) as receiver:
            with pytest.raises(EmbedderUnavailable if provider == "embeddings" else LLMError):
                await ask_provider(provider, receiver.url)
            assert time.monotonic() - since < SECONDS + MAX_WAIT_SECONDS
            assert process.memory_info().rss - before < MAX_PROVIDER_GROWTH
            assert receiver.sent_bytes < MAX_PROVIDER_BYTES + MAX_SENT_BYTES
            assert b"accept-encoding: identity" in receiver.requests[0].lower()


async def ask_provider(provider: str, url: str) -> None:
    if provider == "embeddings":
        client = openai.AsyncOpenAI(
            api_key="k",
            base_url=url,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(**PROVIDER_CLIENT),
        )
        embedder = OpenAIEmbedder(client, model="m", dimensions=8, attempts=1, timeout=SECONDS)
        await embedder.embed_documents(["private"])
        return
    llm = PROVIDERS[provider](model="m", api_key="k", base_url=url)
    try:
        await llm.complete(LLMRequest((Message("user", "private"),), timeout=SECONDS))
    finally:
        await llm.aclose()


COLLECTORS = (*WITHOUT_END, *WITH_BODY, hostile.redirect)


@each_case("behavior", COLLECTORS)
async def test_collector_of_spans_that_answers_badly(
    behavior: Behavior, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export ends after its deadline with all its attempts."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", str(SECONDS))
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    async with hostile.hostile_receiver(behavior) as receiver:
        provider = open_provider(receiver.url, "test")
        provider.get_tracer("test").start_span("one").end()
        async with asyncio.timeout(MAX_WAIT_SECONDS):
            while not receiver.requests or receiver.connected:
                await asyncio.sleep(0.01)
        assert receiver.sent_bytes < MAX_SENT_BYTES
        head = receiver.requests[0].lower()
        assert head.startswith(b"post /hook/v1/traces ")
        assert b"accept-encoding: identity" in head
        await asyncio.to_thread(shut_down, provider)
    if behavior is hostile.redirect:
        assert len(receiver.requests) == 1


@each_case("behavior", COLLECTORS)
async def test_collector_of_spans_delays_the_end_of_a_process(behavior: Behavior) -> None:
    async with hostile.hostile_receiver(behavior) as receiver:
        provider = open_provider(receiver.url, "test")
        for _ in range(1_500):  # three batches
            provider.get_tracer("test").start_span("one").end()
        since = time.monotonic()
        await asyncio.to_thread(shut_down, provider)
        assert time.monotonic() - since < FLUSH_SECONDS + 2.0


async def test_host_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that answers with another address later gains nothing."""
    real, asked = socket.getaddrinfo, list[str]()

    def answer(host: Any, *more: Any, **options: Any) -> Any:
        if host != "receiver.example":
            return real(host, *more, **options)
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else "127.0.0.2", *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    async with hostile.hostile_receiver(hostile.redirect) as receiver:
        url = receiver.url.replace("127.0.0.1", "receiver.example")
        assert (await ask(url + "/ä b?c=d e%20f", max_bytes=0)).status == 307
        head = receiver.requests[0]
    assert asked == ["receiver.example"]
    assert head.startswith(b"GET /hook/%C3%A4%20b?c=d%20e%20f HTTP/1.1\r\n")
    assert b"host: receiver.example:" in head.lower()


async def test_receivers_delay_no_other_tenant_and_take_no_memory(
    api: AsyncClient,
    start_worker: Callable[..., Awaitable[WorkerProcess]],
    make_tenant: Callable[[], Awaitable[TestTenant]],
    queue_run: Callable[[], Awaitable[RunRow]],
    wait_for_run: Callable[[UUID], Awaitable[RunRow]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two tenants choose bad receivers; a third one sends a trace meanwhile."""
    monkeypatch.setenv("HANSEI_WEBHOOK_ALLOW_PRIVATE", "true")
    worker = await start_worker(patch=SHORT_CALLS)
    process = psutil.Process(worker.process.pid)
    await wait_for_run((await queue_run()).id)  # the worker has loaded what it needs
    before = process.memory_info().rss
    async with AsyncExitStack() as stack:
        receivers = [
            await stack.enter_async_context(hostile.hostile_receiver(behavior))
            for behavior in (*WITHOUT_END, *WITH_BODY)
        ]
        for tenant in (await make_tenant(), await make_tenant()):
            for receiver in receivers:
                await request_test_event(api, tenant, receiver.url)
        async with asyncio.timeout(60):
            while not any(receiver.requests for receiver in receivers):
                await asyncio.sleep(0.01)
        since, most = time.monotonic(), 0
        await wait_for_run((await queue_run()).id)
        assert time.monotonic() - since < MAX_WAIT_SECONDS
        end = since + 60
        while time.monotonic() < end:
            most = max(most, process.memory_info().rss)
            await asyncio.sleep(0.01)
            if end == since + 60 and all(receiver.requests for receiver in receivers):
                end = time.monotonic() + 1  # the last call ends
        assert all(receiver.requests for receiver in receivers)
        assert most - before < MAX_GROWTH


async def request_test_event(api: AsyncClient, tenant: TestTenant, url: str) -> None:
    made = await api.post("/api/v1/webhooks", json={"url": url}, headers=tenant.auth())
    test = f"/api/v1/webhooks/{made.json()['id']}/test"
    answer = await api.post(test, headers=tenant.auth())
    assert answer.status_code == 202, answer.text
