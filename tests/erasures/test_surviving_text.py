"""Texts that were derived from what is erased, or were hidden before it, are erased too."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from memory_api.memories.queries import NewLink, add_links
from tests.erasures.test_erasures import SECRET, erase, occurrences, trace
from tests.grace.conftest import Agent, add_handbook
from tests.support.model_service import Serve
from tests.support.stub_provider import answer

__all__ = ["occurrences"]


async def summarize(api: Any, drain: Any, tenant: Any) -> None:
    (await api.post("/api/v1/maintenance/summaries", json={})).raise_for_status()
    await drain(tenant.id)
    listed = (await api.get("/api/v1/memories?kind=episode")).json()["items"]
    assert any("session_summary" in item["tags"] for item in listed)


async def test_summary_of_a_session_is_erased_with_a_trace(api, tenant, drain, occurrences) -> None:
    for number in range(10):
        name = SECRET if number == 0 else f"Customer {number}"
        body = {
            "outcome": "failure",
            "task_description": f"Refund the order of {name}",
            "session_id": "monday",
            "events": [{"event_type": "tool_call", "tool_name": "r", "content": f"find {name}"}],
        }
        sent = (await api.post("/api/v1/traces", json=body)).raise_for_status().json()
        if number == 0:
            first = sent["trace_id"]
        await drain(tenant.id)
    await summarize(api, drain, tenant)
    await erase(api, drain, tenant, target_kind="trace", target_id=first)
    assert await occurrences(SECRET) == []


async def test_deleted_memory_of_a_person_is_erased(api, tenant, drain, occurrences) -> None:
    memory = {"content": f"{SECRET} likes tea", "metadata": {"subject": SECRET}}
    made = (await api.post("/api/v1/memories", json=memory)).raise_for_status().json()
    (await api.delete(f"/api/v1/memories/{made['id']}")).raise_for_status()
    assert await occurrences(SECRET) != []
    await erase(api, drain, tenant, target_kind="person", target_id=SECRET)
    assert await occurrences(SECRET) == []


async def test_deleted_bullet_of_a_trace_is_erased(
    api, tenant, drain, runtime, occurrences
) -> None:
    sent = (await api.post("/api/v1/traces?reflect=never", json=trace())).raise_for_status().json()
    url = "/api/v1/playbooks/support"
    deltas = [{"type": "ADD", "section": "pat", "content": f"Ask {SECRET} first"}]
    (await api.post(f"{url}/deltas", json={"deltas": deltas})).raise_for_status()
    (memory,) = (await api.get("/api/v1/memories?kind=bullet")).json()["items"]
    async with runtime.sessions.for_tenant(tenant.id) as session:
        link = NewLink(UUID(memory["id"]), "derived_from", "trace", UUID(sent["trace_id"]))
        await add_links(session, [link])
    (await api.delete(f"{url}/bullets/pat-00001")).raise_for_status()
    done = await erase(api, drain, tenant, target_kind="trace", target_id=sent["trace_id"])
    assert done["affected_bullets"] == []
    assert await occurrences(SECRET) == []


async def test_agent_run_is_erased_with_its_trace(api, runtime, tenant, drain, occurrences) -> None:
    agent = Agent(api, runtime, tenant)
    await add_handbook(api, agent.work)
    question = f"How is a delivered order refunded within thirty days, asks {SECRET}?"
    run = await agent.ask(question, interactive=False)
    next_run = await agent.ask("And abroad?", interactive=False, previous_run_id=run["id"])
    assert {"agent_runs", "agent_events"} <= set(await occurrences(SECRET))
    await erase(api, drain, tenant, target_kind="trace", target_id=run["trace_id"])
    await erase(api, drain, tenant, target_kind="trace", target_id=next_run["trace_id"])
    assert await occurrences(SECRET) == []


async def test_dream_is_erased_with_an_episode_that_it_does_not_name(
    serve: Serve, occurrences: Any
) -> None:
    """The model read it, so a theme about other episodes may quote it."""
    service = await serve("openai")
    made: list[str] = []
    for name in (SECRET, "Customer 1", "Customer 2"):
        body = {"content": f"{name} asked", "kind": "episode", "importance": 0.8}
        answered = await service.api.post("/api/v1/memories", json=body)
        made.append(answered.raise_for_status().json()["id"])

    def quote(call: Any) -> Any:
        lines = [line for line in call.text.splitlines() if "asked" in line and line[0] == "["]
        named = [n for n, line in enumerate(lines, start=1) if SECRET not in line]
        theme = {"reflection": f"All know {SECRET}.", "strategy": f"Ask {SECRET}."}
        return answer({"themes": [theme | {"episodes": named}]})

    service.stub.behave = quote
    (await service.api.post("/api/v1/maintenance/dreaming", json={})).raise_for_status()
    await service.deliver_due_tickets()
    assert len((await service.api.get("/api/v1/memories?kind=reflection")).json()["items"]) == 1
    body = {"target_kind": "memory", "target_id": made[0]}
    erasure = (await service.api.post("/api/v1/erasures", json=body)).raise_for_status().json()
    await service.deliver_ticket(erasure["run_id"])
    assert await occurrences(SECRET) == []
