"""A trace that is sent again without its name is the same trace, not a second attempt."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient

from tests.conftest import TestTenant

TODAY = (
    "You change flights. Say what a change costs before you make it, and ask for a plain yes. A "
    "basic fare cannot be changed. Today: May 15"
)
REQUEST = "Please move my flight of the 27th from Denver to Houston to the quickest one"
EVENTS: list[dict[str, Any]] = [
    {
        "event_id": "a1",
        "event_type": "system_event",
        "content": TODAY,
    },
    {"event_id": "a2", "event_type": "user_message", "content": REQUEST},
    {"event_id": "a3", "event_type": "llm_response", "content": "I need your user id, please."},
    {"event_id": "a4", "event_type": "user_message", "content": "It is mia_li_3668."},
    {
        "event_id": "a5",
        "event_type": "tool_call",
        "tool_name": "search_flights",
        "content": '{"origin": "DEN", "destination": "IAH", "date": "2024-05-27"}',
    },
    {
        "event_id": "a6",
        "event_type": "tool_response",
        "tool_name": "search_flights",
        "content": "Error: no such route",
        "error": {"message": "no such route"},
    },
    {
        "event_id": "a7",
        "event_type": "llm_response",
        "content": "I found no flight for you.",
    },
]
TRACE: dict[str, Any] = {
    "outcome": "failure",
    "task_key": "quickest-flight",
    "playbook": "air",
    "task_description": REQUEST,
    "events": EVENTS,
}


def reworded() -> dict[str, Any]:
    """Without ids, with a word and a date changed."""
    events = [{k: v for k, v in event.items() if k != "event_id"} for event in EVENTS]
    events[0]["content"] = TODAY.replace("15", "16")
    events[2]["content"] = "I need your user id, kindly."
    return TRACE | {"events": events}


@pytest.fixture
def send(api: AsyncClient, tenant: TestTenant, drain: Any):
    async def send(body: dict[str, Any], reflect: str = "auto") -> dict[str, Any]:
        answer = await api.post(f"/api/v1/traces?reflect={reflect}", json=body)
        assert answer.status_code == 201, answer.text
        await drain(tenant.id)
        run = await api.get(f"/api/v1/runs/{answer.json()['run_id']}")
        return {"trace_id": answer.json()["trace_id"], **run.json()["result"]}

    return send


async def texts(api: AsyncClient, kind: str) -> list[str]:
    found = await api.get(f"/api/v1/memories?kind={kind}&limit=100")
    return [memory["content"] for memory in found.json()["items"]]


@pytest.mark.parametrize("again", [TRACE, reworded()], ids=["same words", "other words"])
async def test_trace_resent_without_external_id_is_duplicate(
    api: AsyncClient, send: Any, again: dict[str, Any]
) -> None:
    first = await send(TRACE | {"external_id": "run-1"})
    said = await texts(api, "reflection")
    second = await send(again)
    assert second["reflect"] is False
    assert second["duplicate_of"] == first["trace_id"]
    assert await texts(api, "reflection") == said
    trace = (await api.get(f"/api/v1/traces/{second['trace_id']}")).json()
    assert trace["duplicate_of"] == first["trace_id"]


async def test_other_external_id_is_new_attempt(api: AsyncClient, send: Any) -> None:
    await send(TRACE | {"external_id": "run-1"})
    await send(TRACE)  # a copy is no attempt: the next is the second
    second = await send(TRACE | {"external_id": "run-2"})
    assert second["reflect"] is True
    told = await texts(api, "reflection")
    assert any(
        "1 earlier attempt with the outcome failure made exactly the same calls" in text
        for text in told
    )
    assert not any("2 earlier attempts" in text for text in told)


async def test_other_events_are_new_attempt(api: AsyncClient, send: Any) -> None:
    await send(TRACE)
    other = [*EVENTS[:4], EVENTS[4] | {"content": '{"user": "mia_li_3668"}'}, *EVENTS[5:]]
    assert (await send(TRACE | {"events": other}))["reflect"] is True
    assert (await send(TRACE | {"outcome": "error"}))["reflect"] is True
    assert (await send(TRACE | {"playbook": "sea"}))["reflect"] is True
    assert (await send(TRACE | {"used_bullet_keys": ["pat-00001"]}))["reflect"] is True


async def test_duplicate_is_detected_with_reflect_always(api: AsyncClient, send: Any) -> None:
    await send(TRACE | {"external_id": "run-1"}, reflect="always")
    assert (await send(TRACE, reflect="always"))["reflect"] is False


async def test_short_equal_traces_are_separate_attempts(api: AsyncClient, send: Any) -> None:
    short = TRACE | {"events": EVENTS[1:4]}
    await send(short)
    assert (await send(short))["reflect"] is True


async def test_stored_trace_can_be_learned_from_later(api: AsyncClient, send: Any) -> None:
    answer = await api.post("/api/v1/traces?reflect=never", json=TRACE)
    assert answer.status_code == 201
    assert (await send(TRACE))["reflect"] is True


async def test_waiting_caller_gets_first_answer(api: AsyncClient) -> None:
    body = TRACE | {"playbook": None}
    first = await api.post("/api/v1/reflections/generate", json=body)
    again = await api.post("/api/v1/reflections/generate", json=reworded() | {"playbook": None})
    assert first.status_code == again.status_code == 200
    assert again.json()["reflection_id"] == first.json()["reflection_id"]
    assert again.json()["duplicate"] is True
    assert await texts(api, "reflection") == [first.json()["reflection_text"]]
