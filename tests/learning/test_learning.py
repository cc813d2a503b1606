"""The loop: a trace becomes advice, in steps that count once and are tried again one by one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient

from memory_api import worker
from memory_api.core.errors import InvalidRequest
from memory_api.run_queue.port import Ticket
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.tables import TraceRow
from tests.conftest import TestTenant
from tests.support.junit import junit
from tests.support.problems import assert_names
from tests.support.steps import InterruptedStep
from tests.support.tickets import waiting_tickets

FAILED: dict[str, Any] = {
    "outcome": "failure",
    "error": {"error_category": "timeout_error", "error_message": "fetch timed out"},
    "task_description": "Bring the monthly report",
    "playbook": "reports",
    "events": [
        {"event_type": "user_message", "content": "Bring the monthly report"},
        {"event_type": "tool_call", "tool_name": "fetch", "content": "fetch(report, march)"},
        {
            "event_type": "error_event",
            "tool_name": "fetch",
            "content": "connection timed out after 30 s",
            "error": {"message": "timed out", "code": "E_TIME"},
        },
    ],
}


@pytest.fixture
def learn(api: AsyncClient, tenant: TestTenant, drain: Any):
    """Send a trace, do all the work; answers the steps, first to last."""

    async def send(reflect: str = "auto", **changes: Any) -> list[dict[str, Any]]:
        answer = await api.post(f"/api/v1/traces?reflect={reflect}", json=FAILED | changes)
        assert answer.status_code in (200, 201), answer.text
        await drain(tenant.id)
        return await steps(api, answer.json()["run_id"])

    return send


async def steps(api: AsyncClient, run_id: str | None) -> list[dict[str, Any]]:
    found = []
    while run_id is not None:
        found.append((await api.get(f"/api/v1/runs/{run_id}")).json())
        run_id = found[-1]["next_run_id"]
    return found


async def test_declared_check_wins_and_both_sides_are_shown(api: AsyncClient, learn: Any) -> None:
    expected = {"answer": "2024-05-12", "match": "exact"}
    said = {"event_type": "llm_response", "content": "12 June 2024"}
    sent = {"outcome": "success", "error": None, "events": [*FAILED["events"], said]}
    chain = await learn(ground_truth=expected, **sent)
    assert (chain[0]["result"]["conflict"], chain[0]["result"]["importance"]) == (True, 0.95)
    trace = (await api.get(f"/api/v1/traces/{chain[0]['trace_id']}")).json()
    assert (trace["outcome"], trace["conflict"]["check"]) == ("success", "failure")
    listed = await api.get(f"/api/v1/memories?kind=reflection&trace_id={trace['id']}")
    (reflection,) = listed.json()["items"]
    opening = "Outcome: failure by the declared check; the client reported success."
    assert opening in reflection["content"]
    conflicts = await api.get("/api/v1/analytics/conflicts?since=2020-01-01T00:00:00Z")
    assert [row["trace_id"] for row in conflicts.json()["rows"]] == [trace["id"]]


async def test_answer_in_another_form_does_not_override_the_client(
    api: AsyncClient, learn: Any
) -> None:
    said = {"event_type": "llm_response", "content": "12 May 2024"}
    sent = {"outcome": "success", "error": None, "events": [*FAILED["events"], said]}
    chain = await learn(ground_truth="2024-05-12", **sent)
    assert chain[0]["result"]["conflict"] is False
    assert chain[0]["result"]["verdict"] is None
    trace = (await api.get(f"/api/v1/traces/{chain[0]['trace_id']}")).json()
    assert (trace["outcome"], trace["conflict"]) == ("success", None)


async def test_trace_becomes_a_bullet_of_its_playbook(api: AsyncClient, learn: Any) -> None:
    chain = await learn()
    assert [step["kind"] for step in chain] == ["evaluate", "reflect", "curate", "apply"]
    assert {step["state"] for step in chain} == {"done"}
    assert [step["parent_id"] for step in chain] == [None, *[chain[0]["id"]] * 3]
    listed = (await api.get(f"/api/v1/runs?parent_id={chain[0]['id']}")).json()["items"]
    assert [step["id"] for step in reversed(listed)] == [step["id"] for step in chain[1:]]
    (change,) = chain[-1]["result"]["changes"]
    assert change["action"] == "added"
    (bullet,) = (await api.get("/api/v1/playbooks/reports/bullets")).json()["items"]
    assert (bullet["id"], bullet["content"]) == (change["key"], change["content"])
    evaluations = await api.get(f"/api/v1/traces/{chain[0]['trace_id']}/evaluations")
    assert evaluations.status_code == 200


async def bullets(api: AsyncClient, name: str = "reports", **query: str) -> list[dict[str, Any]]:
    answer = await api.get(f"/api/v1/playbooks/{name}/bullets", params=query)
    answer.raise_for_status()
    return answer.json()["items"]


async def test_without_a_playbook_a_strategy_stays_a_strategy(api: AsyncClient, learn: Any) -> None:
    chain = await learn(playbook=None)
    assert [step["kind"] for step in chain] == ["evaluate", "reflect"]
    assert chain[-1]["result"]["strategy_id"] is not None
    assert (await api.get("/api/v1/playbooks")).json()["items"] == []


async def test_no_lesson_starts_no_curation(learn: Any) -> None:
    events = [{"event_type": "llm_response", "content": "Hello"}]
    chain = await learn("always", outcome="success", events=events, task_description=None)
    assert [step["kind"] for step in chain] == ["evaluate", "reflect"]
    assert chain[-1]["result"]["result"] == "nothing_found"


async def test_trace_creates_named_playbook(api: AsyncClient, learn: Any) -> None:
    events = [{"event_type": "llm_response", "content": "Hello"}]
    await learn(outcome="success", events=events, task_description=None, playbook="new one")
    assert (await api.get("/api/v1/playbooks/new one")).status_code == 200
    assert (await api.get("/api/v1/playbooks/another")).status_code == 404


async def test_plain_success_is_only_evaluated_in_lite_mode(
    runtime: Runtime, api: AsyncClient, tenant: TestTenant
) -> None:
    answer = (await api.post("/api/v1/traces", json=FAILED | {"outcome": "success"})).json()
    lite = runtime.settings.model_copy(update={"reflective_memory_mode": "lite"})
    await worker.process_ticket(
        replace(runtime, settings=lite), Ticket(tenant.id, UUID(answer["run_id"]))
    )
    (only,) = await steps(api, answer["run_id"])
    assert (only["state"], only["result"]["reflect"]) == ("done", False)
    again = await api.post("/api/v1/traces?reflect=always", json=FAILED | {"outcome": "success"})
    assert again.json()["run_id"] is not None


async def test_unknown_outcome_is_not_stated(api: AsyncClient, learn: Any) -> None:
    events = [
        {"event_type": "tool_call", "tool_name": "query", "content": "SELECT 1"},
        {"event_type": "tool_response", "content": "x", "error": {"message": "no such table"}},
        {"event_type": "llm_response", "content": "Here it is."},
    ]
    chain = await learn("always", outcome=None, error=None, events=events)
    assert chain[0]["result"]["reason"] == "The outcome is unknown."
    result = chain[1]["result"]
    assert "no such table" in result["reflection_text"]
    assert "Outcome" not in result["reflection_text"]
    assert "partial" not in result["tags"]
    memory = (await api.get(f"/api/v1/memories/{result['reflection_id']}")).json()
    assert (memory["outcome"], memory["metadata"]["outcome"]) == (None, None)


async def test_evidence_is_learned_from_without_an_outcome(api: AsyncClient, learn: Any) -> None:
    report = junit(test_total="assert 3 == 4")
    chain = await learn(outcome=None, test_report=report)
    assert chain[0]["result"]["reason"] == "The outcome is failure."
    assert "failure" in chain[1]["result"]["tags"]
    trace = (await api.get(f"/api/v1/traces/{chain[0]['trace_id']}")).json()
    assert trace["outcome"] is None  # nobody stated it


async def test_disproved_success_is_reflected_on_as_failure(learn: Any) -> None:
    report = junit(test_total="assert 3 == 4")
    chain = await learn(outcome="success", test_report=report)
    assert chain[0]["result"]["verdict"] == "failure"
    assert chain[1]["input"]["outcome"] == "failure"
    assert "failure" in chain[1]["result"]["tags"]


async def test_repeated_lesson_adds_no_bullet(api: AsyncClient, learn: Any) -> None:
    await learn()
    before = await bullets(api)
    chain = await learn(session_id="another day")
    assert [change["action"] for change in chain[-1]["result"]["changes"]] == ["kept"]
    after = await bullets(api)
    assert [b["content"] for b in after] == [b["content"] for b in before]
    counters = ("helpful", "harmful", "neutral")
    assert [[b[c] for c in counters] for b in after] == [[b[c] for c in counters] for b in before]


async def test_other_project_learns_separately(api: AsyncClient, learn: Any) -> None:
    await learn()
    chain = await learn(project_id="other")
    assert [change["action"] for change in chain[-1]["result"]["changes"]] == ["added"]
    assert len(await bullets(api, project_id="other")) == 1


async def test_next_run_gets_bullet_and_its_outcome_is_recorded(
    api: AsyncClient, learn: Any
) -> None:
    """S5.53: strategies are applied: rendered into the next prompt, judged by what came of it."""
    await learn()
    (bullet,) = await bullets(api)
    query = {"query_text": "fetch the report"}
    block = (await api.post("/api/v1/playbooks/reports/render", json=query)).json()
    assert bullet["content"] in block["text"]
    said = {"event_type": "llm_response", "content": f"I follow [{bullet['id']}]."}
    chain = await learn(
        outcome="success",
        retrieval_id=block["retrieval_id"],
        events=[FAILED["events"][0], FAILED["events"][1], said],
    )
    judged = chain[1]["result"]["verdicts"]
    assert {one["key"] for one in judged} == {bullet["id"]}
    assert "helpful" in {one["tag"] for one in judged}


async def test_text_copied_from_playbook_is_no_lesson(api: AsyncClient, learn: Any) -> None:
    """The same failure again, by a run that was served the bullet: what the rules would say of it
    stands in the playbook already."""
    await learn()
    (bullet,) = await bullets(api)
    chain = await learn(used_bullet_keys=[bullet["id"]])
    reflected = chain[1]["result"]
    assert reflected["reflection_id"] is not None
    assert reflected["strategy_id"] is None
    assert reflected["strategy_text"] is None
    assert len(await bullets(api)) == 1


async def test_reviewed_playbook_gets_proposal(api: AsyncClient, learn: Any) -> None:
    made = await api.put("/api/v1/playbooks/reports", json={"bullets": []})
    made.raise_for_status()
    changed = await api.patch("/api/v1/playbooks/reports", json={"review_mode": "required"})
    changed.raise_for_status()
    chain = await learn()
    assert chain[-1]["result"]["proposal_id"] is not None
    assert await bullets(api) == []


async def test_generate_with_playbook_starts_curation(
    api: AsyncClient, tenant: TestTenant, drain: Any
) -> None:
    answer = (await api.post("/api/v1/reflections/generate", json=FAILED)).json()
    assert answer["reflection_id"] is not None
    assert answer["next_run_id"] is not None
    await drain(tenant.id)
    chain = await steps(api, answer["run_id"])
    assert [step["kind"] for step in chain] == ["reflect", "curate", "apply"]
    assert len(await bullets(api)) == 1


@pytest.mark.parametrize("kind", ["evaluate", "reflect", "curate", "apply"])
async def test_failed_step_is_retried_alone(
    api: AsyncClient, runtime: Runtime, tenant: TestTenant, drain: Any, kind: str
) -> None:
    """A dead letter is seen with its cause; `retry` does that step, and those after it follow."""
    done: list[str] = []

    async def breaks(*_: Any) -> None:
        raise InvalidRequest("not today")

    steps_now = {**worker.RUN_STEPS, kind: InterruptedStep(kind, breaks)}
    first = (await api.post("/api/v1/traces", json=FAILED)).json()["run_id"]
    await drain(tenant.id, steps_now)
    for _ in range(runtime.settings.max_attempts):
        run = (await api.get(f"/api/v1/runs?kind={kind}")).json()["items"][0]
        await worker.process_ticket(runtime, Ticket(tenant.id, UUID(run["id"])), steps_now)
    chain = await steps(api, first)
    assert (chain[-1]["kind"], chain[-1]["state"]) == (kind, "dead")
    assert chain[-1]["error"]["message"] == "not today"
    dead = (await api.get("/api/v1/runs?state=dead")).json()["items"]
    assert [run["id"] for run in dead] == [chain[-1]["id"]]
    done = [run["finished_at"] for run in chain[:-1]]
    (await api.post(f"/api/v1/runs/{chain[-1]['id']}/retry")).raise_for_status()
    await drain(tenant.id)
    whole = await steps(api, first)
    assert [step["kind"] for step in whole] == ["evaluate", "reflect", "curate", "apply"]
    assert {step["state"] for step in whole} == {"done"}
    assert [run["finished_at"] for run in whole[: len(done)]] == done, "nothing was done twice"
    assert len(await bullets(api)) == 1


@pytest.mark.parametrize("kind", ["evaluate", "reflect", "curate", "apply"])
async def test_two_workers_at_one_step_count_once(
    api: AsyncClient, runtime: Runtime, tenant: TestTenant, drain: Any, kind: str
) -> None:
    """A worker that was thought dead comes back: whoever lost the lease saves nothing."""

    async def twice(runtime: Runtime, run: RunRow) -> None:
        await worker.execute_run(runtime, run, worker.RUN_STEPS)

    first = (await api.post("/api/v1/traces", json=FAILED)).json()["run_id"]
    await drain(tenant.id, {**worker.RUN_STEPS, kind: InterruptedStep(kind, twice)})
    chain = await steps(api, first)
    assert [step["kind"] for step in chain] == ["evaluate", "reflect", "curate", "apply"]
    listed = (await api.get(f"/api/v1/runs?trace_id={chain[0]['trace_id']}")).json()["items"]
    assert len(listed) == 4
    assert len(await bullets(api)) == 1
    memories = (await api.get("/api/v1/memories?kind=strategy")).json()["items"]
    assert [memory["observation_count"] for memory in memories] == [1]


async def test_concurrent_traces_end_in_one_history(
    api: AsyncClient, runtime: Runtime, tenant: TestTenant
) -> None:
    """Eight runs that teach the same, worked on at the same time: one bullet."""
    sent = [
        (await api.post("/api/v1/traces", json=FAILED | {"session_id": str(n)})).json()["run_id"]
        for n in range(8)
    ]
    while tickets := await waiting_tickets(runtime, tenant.id):
        await asyncio.gather(*(worker.process_ticket(runtime, ticket) for ticket in tickets))
    chains = [await steps(api, run_id) for run_id in sent]
    assert {step["state"] for chain in chains for step in chain} == {"done"}
    assert len(await bullets(api)) == 1
    history = (await api.get("/api/v1/playbooks/reports/versions")).json()["items"]
    versions = [one["version"] for one in history]
    assert versions == list(range(len(versions), 0, -1))
    (memory,) = (await api.get("/api/v1/memories?kind=strategy")).json()["items"]
    assert memory["observation_count"] == 8


async def test_deleted_trace_ends_run_visibly(
    api: AsyncClient, runtime: Runtime, tenant: TestTenant, owner: Any
) -> None:
    first = (await api.post("/api/v1/traces", json=FAILED)).json()
    async with owner.for_tenant(tenant.id) as session:
        trace = await session.get(TraceRow, (tenant.id, UUID(first["trace_id"])))
        await session.delete(trace)
    for _ in range(runtime.settings.max_attempts):
        await worker.process_ticket(runtime, Ticket(tenant.id, UUID(first["run_id"])))
    run = (await api.get(f"/api/v1/runs/{first['run_id']}")).json()
    assert (run["state"], run["error"]["code"]) == ("dead", "not_found")


@pytest.mark.parametrize("name", ["a/b", " a", "a\n", ".."])
async def test_invalid_playbook_name_is_refused_at_once(api: AsyncClient, name: str) -> None:
    for path, body, field in (
        ("/api/v1/traces", FAILED, "playbook"),
        ("/api/v1/reflections/generate", FAILED, "playbook"),
        ("/workflow/run", {"query": "q"}, "dataset"),
    ):
        assert_names(await api.post(path, json=body | {field: name}), field)
