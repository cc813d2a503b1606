"""What the agent learns: thresholds, temperature, collections, and the trace of a run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.grace.conftest import URL, Agent, config
from tests.grace.test_agent_runs import KNOWN, UNKNOWN
from tests.support.problems import assert_problem

CALIBRATION = "/api/v1/agents/calibration"


async def judge(agent: Agent, run: dict[str, Any], verdict: str, answer: str | None = None) -> Any:
    body = {"feedback": verdict, "answer": answer}
    return await agent.api.post(f"{URL}/{run['id']}/feedback", json=body)


async def ask_many(agent: Agent, count: int, verdict: str) -> None:
    started = [await agent.start(KNOWN, interactive=False) for _ in range(count)]
    await agent.work()
    for run_id in started:
        assert (await judge(agent, {"id": run_id}, verdict)).status_code == 200


async def read_calibration(agent: Agent) -> dict[str, Any]:
    return (await agent.api.get(CALIBRATION)).json()


async def test_feedback_moves_thresholds_once_and_fits_the_temperature(agent: Agent) -> None:
    agent.config = config(intervention={"max_rounds": 0})
    start = await read_calibration(agent)
    assert (start["silent"], start["temperature"], start["sample_count"]) == (0.9, 1, 0)
    await ask_many(agent, 9, "wrong")
    assert (await read_calibration(agent))["silent"] == 0.9
    await ask_many(agent, 1, "wrong")
    moved = await read_calibration(agent)
    assert (moved["silent"], moved["notify"], moved["confirm"]) == (0.95, 0.75, 0.45)
    await ask_many(agent, 5, "wrong")
    assert await read_calibration(agent) | {"sample_count": 10, "ece": moved["ece"]} == moved
    await ask_many(agent, 6, "right")
    fitted = await read_calibration(agent)
    assert fitted["sample_count"] == 21
    assert fitted["temperature"] > 1
    assert fitted["ece"] < moved["ece"]
    run = await agent.ask(KNOWN, interactive=False)
    assert run["confidence"] < run["steps"][1]["confidence"]
    assert (await agent.api.delete(CALIBRATION)).status_code == 204
    assert await read_calibration(agent) == start | {"ece": None}


async def test_feedback_is_for_ended_runs_and_given_once(agent: Agent) -> None:
    run = await agent.ask(UNKNOWN)
    assert_problem(await judge(agent, run, "right"), 409, "conflict")
    run = await agent.ask(KNOWN, interactive=False)
    assert_problem(await judge(agent, run, "perhaps"), 422, "invalid")
    for _ in range(2):
        assert (await judge(agent, run, "right")).json()["feedback"] == "right"
    assert_problem(await judge(agent, run, "wrong"), 409, "conflict")


async def read_trace(agent: Agent, run: dict[str, Any]) -> dict[str, Any]:
    return (await agent.api.get(f"/api/v1/traces/{run['trace_id']}")).json()


async def kinds_of(agent: Agent, run: dict[str, Any]) -> list[str]:
    runs = await agent.api.get("/api/v1/runs", params={"trace_id": run["trace_id"]})
    return [each["kind"] for each in runs.json()["items"]]


async def test_sure_success_is_learned_from_and_feedback_overrules_it(agent: Agent) -> None:
    agent.config = config(thresholds={"silent": 0.7})
    run = await agent.ask(KNOWN, interactive=False)
    assert (await read_trace(agent, run))["outcome"] == "success"
    learned = await kinds_of(agent, run)
    assert "evaluate" in learned
    assert (await judge(agent, run, "wrong", "It can be cancelled.")).status_code == 200
    trace = await read_trace(agent, run)
    assert (trace["outcome"], trace["ground_truth"]) == ("failure", "It can be cancelled.")
    await agent.work()
    assert len(await kinds_of(agent, run)) > len(learned)


async def test_unsure_success_is_learned_from_when_a_person_says_so(agent: Agent) -> None:
    agent.config = config(thresholds={"silent": 1.0})
    run = await agent.ask(KNOWN, interactive=False)
    assert (await read_trace(agent, run))["outcome"] is None
    assert await kinds_of(agent, run) == []
    await judge(agent, run, "right")
    await agent.work()
    assert (await read_trace(agent, run))["outcome"] == "success"
    assert "evaluate" in await kinds_of(agent, run)


async def test_collection_that_answered_similar_questions_is_preferred(agent: Agent) -> None:
    (await agent.api.post("/api/v1/collections", json={"name": "archive"})).raise_for_status()
    assert (await agent.ask(KNOWN, interactive=False))["steps"][0]["collection"] is None
    for _ in range(2):
        await agent.ask(KNOWN, interactive=False)
    run = await agent.ask("Can pending orders be refunded at all?", interactive=False)
    assert run["steps"][0]["collection"] == "handbook"
    other = await agent.ask("How long do parcels to Norway take?", interactive=False)
    assert other["steps"][0]["collection"] is None


@pytest.mark.parametrize("words", ["Start over. A pending order", "最初からやり直して"])
async def test_modify_plans_everything_again_and_the_plan_is_confirmed(
    agent: Agent, words: str
) -> None:
    agent.config = config(thresholds={"silent": 1.0, "notify": 1.0, "confirm": 0.01})
    run = await agent.ask(KNOWN)
    assert (run["intervention"]["kind"], run["intervention"]["level"]) == ("step", "confirm")
    assert run["intervention"]["options"] == ["proceed", "modify", "cancel"]
    run = await agent.go_on(run, "modify", words)
    assert (run["intervention"]["kind"], run["replan_count"]) == ("plan", 1)
    assert "1. rag_search" in run["intervention"]["message"]
    run = await agent.go_on(run, "proceed")
    run = await agent.go_on(run, "proceed")
    assert (run["state"], run["found"]) == ("done", True)


async def test_modify_searches_for_the_words_of_the_person(agent: Agent) -> None:
    agent.config = config(thresholds={"silent": 1.0, "notify": 1.0, "confirm": 0.01})
    run = await agent.ask("How long do I have to wait for my order to be refunded?")
    run = await agent.go_on(run, "modify", "How many working days do parcels to Norway take?")
    while run["state"] == "waiting":
        run = await agent.go_on(run, "proceed")
    assert "nine working days" in run["answer"]


async def list_bullets(agent: Agent) -> dict[str, str]:
    found = await agent.api.get("/api/v1/playbooks/desk/bullets")
    return {each["id"]: each["content"] for each in found.json()["items"]}


async def test_corrected_answer_is_given_to_similar_questions(agent: Agent) -> None:
    run = await agent.ask(KNOWN, playbook="desk", interactive=False)
    assert (await judge(agent, run, "wrong", "Only by the shift lead.")).status_code == 200
    await agent.work()
    ((key, content),) = [
        each for each in (await list_bullets(agent)).items() if "shift lead" in each[1]
    ]
    assert content == f'When asked "{KNOWN}", answer: Only by the shift lead.'
    again = await agent.ask(f"Please: {KNOWN.lower()}", playbook="desk", interactive=False)
    assert (again["answer"], again["found"]) == ("Only by the shift lead. [1]", True)
    assert [each["source"] for each in again["sources"]] == [f"bullet:{key}"]
    trace = await read_trace(agent, again)
    assert trace["used_bullet_keys"] == [key]
    other = await agent.ask("How long do parcels to Norway take?", playbook="desk")
    assert "nine working days" in other["answer"], "another question is searched for"
    same = await agent.ask(KNOWN, playbook="desk", interactive=False)
    await judge(agent, same, "wrong", "Only by the manager.")
    await agent.work()
    assert key in await list_bullets(agent), "the bullet about this question is changed"
    last = await agent.ask(KNOWN, playbook="desk", interactive=False)
    assert last["answer"] == "Only by the manager. [1]"


async def test_words_that_a_person_gave_are_searched_for_next_time(agent: Agent) -> None:
    agent.config = config(intervention={"max_rounds": 1})
    words = "未使用の商品 返品 購入 十四日以内"
    run = await agent.ask(UNKNOWN, playbook="desk")
    assert run["state"] == "waiting"
    run = await agent.go_on(run, "input", words)
    assert run["state"] == "done", run
    await judge(agent, run, "right")
    await agent.work()
    again = await agent.ask(UNKNOWN, playbook="desk")
    assert (again["state"], again["steps"][0]["query"]) == ("done", words)
    assert again["answer"] == run["answer"]
