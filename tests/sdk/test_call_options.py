"""Options of a call, your own HTTP client, raw responses, and what a person reads."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import httpx2
import pytest

import hansei as package
from hansei import AsyncHansei, Hansei
from hansei.errors import APIStatusError, APITimeoutError, NotFoundError, RateLimitError
from hansei.models import Bullet
from hansei.resources import PlaybooksResource
from tests.sdk.stub_service import KEY, RECORDED, Fault, StubService


def test_options_of_a_call(hansei: Hansei, service: StubService) -> None:
    hansei.memories.update(
        "m1", importance=0.5, idempotency_key="once", extra_headers={"X-Team": "red"}, timeout=9
    )
    (call,) = service.calls
    assert call.headers["idempotency-key"] == "once"
    assert call.headers["x-team"] == "red"
    assert call.headers["prefer"] == "wait=9"


def test_retries_of_a_call(hansei: Hansei, service: StubService) -> None:
    service.faults.append(Fault(429, b"{}", kind="application/json"))
    with pytest.raises(RateLimitError):
        hansei.memories.search("x", max_retries=0)
    assert len(service.calls) == 1


def test_log_of_requests(
    service: StubService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`HANSEI_LOG` prints attempts and retries; never keys, queries or bodies."""
    logger = logging.getLogger("hansei")
    service.faults.append(Fault(503, b"{}", kind="application/json"))
    monkeypatch.setenv("HANSEI_LOG", "debug")
    try:
        with Hansei(service.url, KEY) as client, Hansei(service.url, KEY):
            client.memories.search("a private question")
    finally:
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
        logger.propagate = True
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ", 1)[1].split(",")[0] for line in lines if "status" in line] == [
        "POST /api/v1/search: status 503",
        "POST /api/v1/search: status 200",
    ]
    (retry,) = [line for line in lines if "retry in" in line]
    assert "hansei INFO" in retry
    assert not [line for line in lines if KEY in line or "private" in line]


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("langchain", "langchain_core.callbacks", "langchain"),
        ("langgraph", "langgraph.graph", "langgraph"),
        ("openai_agents", "agents.tracing", "openai-agents"),
    ],
)
def test_missing_extra_is_named(
    module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"hansei.integrations.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'hansei\[{extra}\]'"):
        import_module(f"hansei.integrations.{module}")


def test_timeout_of_a_call(hansei: Hansei, service: StubService) -> None:
    service.faults.append(Fault(delay=0.5))
    with pytest.raises(APITimeoutError):
        hansei.memories.search("x", timeout=0.1)


def test_with_options_changes_a_copy(hansei: Hansei, service: StubService) -> None:
    patient = hansei.with_options(timeout=7, extra_headers={"X-Team": "red"})
    assert patient.memories is not hansei.memories
    patient.memories.get("m1")
    hansei.memories.get("m1")
    first, second = service.calls
    assert (first.headers["prefer"], first.headers["x-team"]) == ("wait=7", "red")
    assert second.headers["prefer"] == "wait=5"
    assert "x-team" not in second.headers


async def test_own_http_client_stays_open(service: StubService) -> None:
    with httpx2.Client() as http:
        with Hansei(service.url, KEY, http_client=http) as client:
            client.memories.get("m1")
        assert not http.is_closed
    async with httpx2.AsyncClient() as http:
        async with AsyncHansei(service.url, KEY, http_client=http) as client:
            await client.memories.get("m1")
        assert not http.is_closed


async def test_raw_response(hansei: Hansei, async_hansei: AsyncHansei) -> None:
    raw = hansei.memories.with_raw_response.get("m1")
    assert (raw.status_code, raw.parse().model_dump()) == (200, RECORDED["memory"])
    assert raw.headers["content-type"].startswith("application/json")
    other = await async_hansei.memories.with_raw_response.list()
    assert other.parse().items[0].model_dump() == RECORDED["memory"]
    assert hansei.memories.get("m1").model_dump() == RECORDED["memory"]


async def test_async_pages(async_hansei: AsyncHansei, service: StubService) -> None:
    service.event_count = 450
    page = await async_hansei.traces.events.list("t1")
    assert [len(page.items), page.has_next_page()] == [200, True]
    following = await page.next_page()
    assert following.items[0].event_id == "e0200"
    assert len([event async for event in async_hansei.traces.events.list("t1", limit=201)]) == 201
    last = await following.next_page()
    with pytest.raises(StopAsyncIteration):
        await last.next_page()


def test_missing_resource_is_named(hansei: Hansei) -> None:
    with pytest.raises(NotFoundError, match="runs/no-such-run") as caught:
        hansei.runs.get("no-such-run")
    assert isinstance(caught.value, APIStatusError)


def test_what_a_person_reads(hansei: Hansei, service: StubService) -> None:
    assert repr(hansei) == f"Hansei('{service.url}')"
    bullet = Bullet(id="mis-00001", section="OTHERS", content="x" * 200, helpful=1)
    assert repr(bullet).startswith("Bullet(id='mis-00001', section='OTHERS', content='xxx")
    assert len(repr(bullet)) < 200
    assert "Example:" in (PlaybooksResource.render.__doc__ or "")
    assert package.__version__.count(".") == 2
    assert repr(hansei.memories.list()) == "Page(1 items)"


WRONG_ARGUMENTS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda client: client.traces.create(task="t"), "`create`.*`task`.*`task_description`"),
    (lambda client: client.traces.list(outcom="failure"), "`list`.*`outcom`.*`outcome`"),
    (lambda client: client.playbooks.render("p", "t", token_budgt=1), "`token_budget`"),
    (lambda client: client.runs.get("r1", timout=1), r"`timout`\. Did you mean `timeout`"),
    (lambda client: client.runs.get("r1", xyz=1), r"`xyz`\. The arguments are extra_headers, "),
    (lambda client: client.memories.with_raw_response.search("x", topk=1), "`top_k`"),
    (lambda client: client.with_options(timout=1), "`with_options`.*`timeout`"),
]


@pytest.mark.parametrize(("call", "message"), WRONG_ARGUMENTS)
async def test_unknown_argument_is_refused_where_it_is_written(
    service: StubService, call: Callable[[Any], Any], message: str
) -> None:
    with Hansei(service.url, KEY) as client, pytest.raises(TypeError, match=message):
        call(client)
    async with AsyncHansei(service.url, KEY) as other:
        with pytest.raises(TypeError, match=message):
            await call(other)
    assert service.calls == []
