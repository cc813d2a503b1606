"""Follow-up questions: what they refer to is in the questions and answers before them."""

from __future__ import annotations

from typing import Any

from httpx2 import AsyncClient

from tests.grace.conftest import URL, Agent
from tests.grace.test_agent_runs import KNOWN, UNKNOWN
from tests.grace.test_agent_with_model import Model, model, planned
from tests.support.problems import assert_problem

__all__ = ["model"]

NORWAY = "How long do parcels to Norway take?"


async def test_a_follow_up_question_is_searched_with_the_one_before(agent: Agent) -> None:
    first = await agent.ask("Do parcels to Norway need a form?", interactive=False)
    asked = {"previous_run_id": first["id"], "interactive": False}
    run = await agent.ask("And how many working days do they take?", **asked)
    assert "nine working days" in run["answer"]
    assert run["steps"][0]["query"].startswith("Do parcels to Norway need a form? And how many")
    assert run["previous_run_id"] == first["id"]
    assert run["conversation"] == [{"question": first["query"], "answer": first["answer"]}]
    third = await agent.ask("And in winter?", previous_run_id=run["id"], interactive=False)
    assert [turn["question"] for turn in third["conversation"]] == [first["query"], run["query"]]


async def test_a_model_reads_the_conversation(agent: Agent, model: Model) -> None:
    model.answers["plan"] = [planned(("rag_search", []), ("reasoning", [1]))]
    first = await agent.ask(KNOWN, interactive=False)
    start = len(model.calls)
    run = await agent.ask("And after delivery?", previous_run_id=first["id"], interactive=False)
    assert run["engine"] == "llm", "the planner finds the words of the search"
    plan, answer = (f"{call.system}\n{call.user}" for call in model.calls[start : start + 2])
    for prompt in (plan, answer):
        assert f"Question: {KNOWN}\nAnswer: {first['answer']}" in prompt


async def test_a_run_without_an_answer_has_no_follow_up(
    agent: Agent, http: AsyncClient, make_tenant: Any
) -> None:
    waiting = await agent.ask(UNKNOWN)
    body = {"query": "And then?", "previous_run_id": waiting["id"]}
    assert_problem(await agent.api.post(URL, json=body), 409, "conflict")
    body["previous_run_id"] = "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa09"
    assert_problem(await agent.api.post(URL, json=body), 422, "invalid")
    done = await agent.ask(KNOWN, interactive=False)
    other = (await make_tenant()).auth()
    body["previous_run_id"] = done["id"]
    assert_problem(await http.post(URL, json=body, headers=other), 422, "invalid")
    path = f"{URL}/{done['id']}/execution"
    assert_problem(await http.get(path, headers=other), 404, "not_found")


async def test_a_correction_of_a_follow_up_teaches_no_bullet(agent: Agent) -> None:
    """ "And then?" is another question in each conversation."""
    first = await agent.ask(NORWAY, playbook="desk", interactive=False)
    asked = {"previous_run_id": first["id"], "interactive": False, "playbook": "desk"}
    run = await agent.ask("How many working days do they take?", **asked)
    body = {"feedback": "wrong", "answer": "Ten."}
    await agent.api.post(f"{URL}/{run['id']}/feedback", json=body)
    await agent.work()
    bullets = await agent.api.get("/api/v1/playbooks/desk/bullets")
    assert "Ten." not in bullets.text
    keys = [
        (await agent.api.get(f"/api/v1/traces/{each['trace_id']}")).json()["task_key"]
        for each in (run, await agent.ask(run["query"], playbook="desk", interactive=False))
    ]
    assert keys[0] != keys[1], "not the same task"
