"""Which bullets a run used, read from what it names, what it cites and what it was served."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient

from memory_api.reflection.bullet_usage import UsedBullet, load_bullet_usage
from memory_api.runtime import Runtime
from memory_api.traces.queries import get_trace, list_events, to_events
from tests.rules.test_sql import listening
from tests.support.playbook_api import Book

SAID = ("Look up an order first", "Ask before a refund", "Read the rules", "Add the figures up")


@pytest.fixture
async def book(api: AsyncClient) -> Book:
    book = Book(api)
    await book.deltas(*({"type": "ADD", "section": "pat", "content": text} for text in SAID))
    return book


@pytest.fixture
def used(book: Book, runtime: Runtime, tenant: Any, app: FastAPI) -> Any:
    """Send a trace of the playbook, and ask which bullets it used."""

    async def send(*events: tuple[str, str], **fields: Any) -> list[UsedBullet]:
        body = {
            "playbook": book.name,
            "outcome": "failure",
            "events": [{"event_type": kind, "content": text} for kind, text in events]
            or [{"event_type": "user_message", "content": "Do it"}],
        }
        sent = await book.api.post("/api/v1/traces?reflect=never", json=body | fields)
        assert sent.status_code == 201, sent.text
        async with runtime.sessions.for_tenant(tenant.id) as session:
            trace = await get_trace(session, UUID(sent.json()["trace_id"]))
            assert trace is not None
            events = to_events(await list_events(session, trace.id))
            return list((await load_bullet_usage(session, trace, events)).bullets)

    return send


def hows(found: list[UsedBullet]) -> dict[str, str]:
    return {one.key: one.usage for one in found}


async def test_strongest_evidence_of_use_is_kept(book: Book, used: Any) -> None:
    block = (await book.post("render")).json()
    found = await used(
        ("llm_response", "By [pat-00001] and [pat-2] I look it up."),
        used_bullet_keys=["pat-00001"],
        retrieval_id=block["retrieval_id"],
    )
    assert hows(found) == {
        "pat-00001": "named",
        "pat-00002": "cited",
        "pat-00003": "served",
        "pat-00004": "served",
    }
    assert {str(one.retrieval_id) for one in found} == {block["retrieval_id"]}
    assert found[0].bullet.content == SAID[0]


async def test_only_agent_messages_cite(book: Book, used: Any) -> None:
    block = (await book.post("render")).json()["text"]
    read = [(kind, block) for kind in ("system_event", "user_message", "llm_call", "tool_response")]
    assert await used(*read) == []
    assert hows(await used(*read, generated_answer="Done [pat-00003]")) == {"pat-00003": "cited"}
    steps = ["first", "then [pat-00004]"]
    assert hows(await used(*read, reasoning_steps=steps)) == {"pat-00004": "cited"}


async def test_custom_slugs_are_recognized(book: Book, used: Any) -> None:
    sections = [{"name": "Ground rules", "slug": "rul", "description": ""}]
    (await book.api.patch(book.url, json={"sections": sections})).raise_for_status()
    await book.deltas({"type": "ADD", "section": "Ground rules", "content": "Be short"})
    said = ("llm_response", "As [rul-00001] says, and [zzz-00001]")
    assert hows(await used(said)) == {"rul-00001": "cited"}


async def test_merged_key_means_survivor(book: Book, used: Any) -> None:
    block = (await book.post("render")).json()
    await book.deltas({"type": "MERGE", "source_ids": ["pat-00001", "pat-00002"]})
    await book.deltas({"type": "DELETE", "bullet_id": "pat-00004"})
    found = await used(("llm_response", "[pat-00002] [pat-2]"), retrieval_id=block["retrieval_id"])
    assert hows(found) == {"pat-00001": "cited", "pat-00003": "served"}


async def test_unknown_references_are_ignored(used: Any) -> None:
    assert await used(used_bullet_keys=["pat-00099", "nonsense", "pat-00001; drop"]) == []
    assert await used(used_bullet_keys=["pat-00001"], playbook="other") == []
    assert hows(await used(used_bullet_keys=["pat-1"])) == {"pat-00001": "named"}


async def test_retrieval_identifies_playbook_within_project(
    book: Book, used: Any, runtime: Runtime, tenant: Any
) -> None:
    block = (await book.post("render", query_text="order")).json()
    found = await used(playbook=None, retrieval_id=block["retrieval_id"])
    assert len(found) == 4
    assert (
        await used(playbook=None, retrieval_id=block["retrieval_id"], project_id="elsewhere") == []
    )
    assert await used(playbook=None) == []
    trace = {"outcome": "success", "events": [{"event_type": "user_message", "content": "x"}]}
    sent = await book.api.post(
        "/api/v1/traces?reflect=never", json=trace | {"retrieval_id": block["retrieval_id"]}
    )
    async with runtime.sessions.for_tenant(tenant.id) as session:
        row = await get_trace(session, UUID(sent.json()["trace_id"]))
        assert row is not None
        place = (await load_bullet_usage(session, row, [])).playbook
    assert place is not None
    assert place.name == book.name


async def test_texts_are_as_served(book: Book, runtime: Runtime, tenant: Any, app: FastAPI) -> None:
    block = (await book.post("render")).json()
    change = {"type": "UPDATE", "bullet_id": "pat-00001", "content": "Never mind the order"}
    await book.deltas(change)
    body = {"playbook": book.name, "retrieval_id": block["retrieval_id"], "outcome": "success"}
    body["events"] = [{"event_type": "user_message", "content": "Do it"}]
    sent = await book.api.post("/api/v1/traces?reflect=never", json=body)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        trace = await get_trace(session, UUID(sent.json()["trace_id"]))
        assert trace is not None
        texts = (await load_bullet_usage(session, trace, [])).served_texts
    assert texts == {f"pat-0000{n}": text for n, text in enumerate(SAID, 1)}


async def test_large_playbook_costs_no_more_statements(
    book: Book, runtime: Runtime, tenant: Any
) -> None:
    body = {"playbook": book.name, "outcome": "success", "used_bullet_keys": ["pat-3"]}
    body["events"] = [{"event_type": "llm_response", "content": "[pat-1] [pat-002]"}]
    sent = await book.api.post("/api/v1/traces?reflect=never", json=body)
    with listening(runtime) as statements:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            trace = await get_trace(session, UUID(sent.json()["trace_id"]))
            assert trace is not None
            events = to_events(await list_events(session, trace.id))
            statements.clear()
            found = [*(await load_bullet_usage(session, trace, events)).bullets]
            assert len(statements) == 2
    assert hows(found) == {"pat-00003": "named", "pat-00001": "cited", "pat-00002": "cited"}
