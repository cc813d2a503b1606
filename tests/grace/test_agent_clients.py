"""The agent through the SDK and the command line, over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hansei import AsyncHansei, Hansei
from hansei.cli.main import app
from tests.grace.conftest import URL, Agent
from tests.grace.test_agent_runs import KNOWN, UNKNOWN, Counter, step
from tests.grace.test_agent_runs import counter as counter


async def with_worker(agent: Agent, function: Callable[[], Any]) -> Any:
    """Call a blocking client in a thread while a worker does what is due."""
    task = asyncio.ensure_future(asyncio.to_thread(function))
    while not task.done():
        await agent.work()
        await asyncio.sleep(0.01)
    return task.result()


async def test_generator_yields_what_happens(agent: Agent, live: str) -> None:
    seen: list[str] = []
    async with AsyncHansei(live, agent.tenant.keys["admin"]) as client:
        states = client.agents.execute_plan_generator(KNOWN, interactive=False)
        first = await anext(states)
        assert (first.state, first.plan, first.step_results) == ("queued", None, [])
        seen += [event.event for event in first.events]
        await agent.work()
        async for state in states:
            seen += [event.event for event in state.events]
        run = await client.agents.runs.get(first.agent_run_id)
        after = [event.id async for event in client.agents.runs.follow(run.id, after=4)]
    assert seen[:2] == ["run_queued", "plan_created"]
    assert seen[-1] == "run_finished"
    assert "cannot be refunded" in run.answer
    assert after == list(range(5, len(seen) + 1))
    plan, result = state.plan, state.result
    assert plan is not None
    assert (plan.original_query, plan.requires_confirmation) == (KNOWN, False)
    assert [step.action for step in plan.steps] == ["rag_search", "reasoning"]
    assert [each.status for each in state.step_results] == ["success", "success"]
    assert result is not None
    assert result.final_answer == run.answer


async def test_client_answers_a_question(agent: Agent, live: str) -> None:
    def ask() -> Any:
        with Hansei(live, agent.tenant.keys["admin"]) as client:
            states = list(client.agents.execute_plan_generator(UNKNOWN))
            assert states[-1].events[-1].event == "intervention_requested"
            run = client.agents.runs.get(states[0].agent_run_id)
            question = run.intervention
            assert question is not None
            client.agents.runs.interventions.answer(run.id, question.id, "input", input=KNOWN)
            last = [event.event for event in client.agents.runs.follow(run.id)][-1]
            assert last == "run_finished"
            return client.agents.runs.get(run.id)

    run = await with_worker(agent, ask)
    assert "cannot be refunded" in run.answer


async def test_command_asks_and_takes_feedback(
    agent: Agent, live: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HANSEI_URL", live)
    monkeypatch.setenv("HANSEI_API_KEY", agent.tenant.keys["admin"])

    async def command(*arguments: str) -> Result:
        return await with_worker(agent, lambda: CliRunner().invoke(app, ["agent", *arguments]))

    asked = await command("run", KNOWN)
    assert asked.exit_code == 0, asked.output
    assert "1. rag_search" in asked.output
    assert "A pending order cannot be refunded." in asked.output
    assert "[1] handbook.md" in asked.output
    run_id = asked.output.split("Run ")[1].split(".")[0]
    judged = await command("feedback", run_id, "--wrong", "--answer", "Cancel it.")
    assert judged.output.strip() == "Recorded: the answer was wrong."
    assert (await agent.get(run_id))["feedback"] == "wrong"
    unsure = await command("run", UNKNOWN, "--json")
    assert unsure.exit_code == 3, "it waits, and nobody can answer"
    assert json.loads(unsure.stdout[unsure.stdout.index("{") :])["state"] == "waiting"
    waiting_id = json.loads(unsure.stdout[unsure.stdout.index("{") :])["id"]
    assert waiting_id in (await command("list", "--state", "waiting")).output
    shown = await command("show", waiting_id)
    assert f"hansei agent answer {waiting_id} ACTION" in shown.output
    unknown = await command("answer", waiting_id, "jump")
    assert unknown.exit_code == 2
    assert "Choose one of: input" in unknown.output
    answered = await command("answer", waiting_id, "input", "--text", KNOWN)
    assert "A pending order cannot be refunded." in answered.output
    assert answered.output.count("rag_search") == 1  # only what happened after the answer
    assert (await command("answer", waiting_id, "proceed")).exit_code == 1
    other = json.loads((await command("run", UNKNOWN, "--json")).stdout)["id"]
    assert (await command("cancel", other)).output.strip() == "The run is cancelled."
    planned = await command("run", KNOWN, "--plan-only")
    plan = json.loads(planned.stdout)
    assert (planned.exit_code, [step["query"] for step in plan["steps"]]) == (0, [KNOWN, KNOWN])
    (last,) = (await agent.api.get(f"{URL}?limit=1")).json()["items"]
    assert (last["state"], last["answer"]) == ("cancelled", None)
    plan["steps"][0]["query"] = "parcels to Norway working days"
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"steps": plan["steps"]}))
    own = await command("run", "Norway?", "--plan", str(file), "--json")
    assert json.loads(own.stdout)["steps"][0]["query"] == "parcels to Norway working days"
    for content, words in (("[]", "object"), ("{", "cannot be read")):
        file.write_text(content)
        refused = await command("run", KNOWN, "--plan", str(file))
        assert (refused.exit_code, words in refused.output) == (2, True)
    done = json.loads((await command("run", KNOWN, "--json")).stdout)["id"]
    follow = await command("run", "How many working days does it take?", "--after", done, "--json")
    assert json.loads(follow.stdout)["conversation"][0]["question"] == KNOWN
    missing = await command("run", KNOWN, "--collection", "nope")
    assert missing.exit_code != 0
    assert "'handbook'" in missing.output


async def test_command_says_that_a_run_has_failed(
    agent: Agent, live: str, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSEI_URL", live)
    monkeypatch.setenv("HANSEI_API_KEY", agent.tenant.keys["admin"])
    counter.failures = 9
    run = await agent.ask("count", plan={"steps": [step(1)]})
    assert run["state"] == "failed", run
    shown = await asyncio.to_thread(CliRunner().invoke, app, ["agent", "show", run["id"]])
    assert f"The run has failed. {run['error']['message']}" in shown.output
