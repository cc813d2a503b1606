"""An answer that names no step waits for all earlier steps, and uses what they found."""

from __future__ import annotations

from typing import Any

from tests.grace.conftest import Agent, config
from tests.grace.test_agent_runs import KNOWN, UNKNOWN, step
from tests.grace.test_agent_with_model import (
    FACT,
    QUERY,
    Model,
    answer_prompts,
    judgment,
    model,
    planned,
)
from tests.grace.test_settings_in_runs import web

__all__ = ["model", "web"]


async def test_answer_after_a_partial_replan_sees_the_new_search(
    agent: Agent, model: Model
) -> None:
    """S3.49: a part has no answer, and a person says what to search for."""
    first = planned(("rag_search", []), ("reasoning", [1]), ("reasoning", [2]))
    second = planned(("rag_search", []), ("reasoning", []))
    first["steps"][0]["query"] = "Norway customs form"
    model.answers["plan"] = [first, second]
    right = {"answer": f"{FACT} [2]", "sufficient": True}
    model.answers["answer"] = [{"answer": "Unknown.", "sufficient": False}, right]
    model.answers["judge"] = [judgment("supported")]
    agent.config = config(replan={"confirm_all": False}, intervention={"max_rounds": 1})
    run = await agent.go_on(await agent.ask(QUERY), "modify", "Search for orders.")
    assert (run["state"], run["replan_count"]) == ("done", 1)
    assert [each["depends_on"] for each in run["steps"]][-1] == []
    assert FACT in answer_prompts(model)[-1]


async def test_answer_waits_for_a_web_search_that_is_added(
    agent: Agent, web: tuple[str, list[str]]
) -> None:
    """S3.51."""
    agent.config = config(web_search={"url": web[0]})
    plan = {"steps": [step(1, "rag_search", query=UNKNOWN), step(2, "reasoning", query=UNKNOWN)]}
    run = await agent.ask(UNKNOWN, plan=plan, interactive=False)
    assert [each["action"] for each in run["steps"]] == ["rag_search", "reasoning", "web_search"]
    assert "Palmeiras" in run["answer"]


async def test_plan_of_a_model_that_only_searches_is_answered(agent: Agent, model: Model) -> None:
    """S3.21; `cited_bullet_keys` may be missing."""
    plan: dict[str, Any] = planned(("rag_search", []))
    plan.pop("cited_bullet_keys", None)
    model.answers["plan"] = [plan]
    run = await agent.ask(QUERY, interactive=False)
    assert (run["engine"], run["state"]) == ("llm", "done")
    assert [each["action"] for each in run["steps"]] == ["rag_search", "reasoning"]


async def test_questions_of_the_plan_leave_room_for_a_doubt(agent: Agent) -> None:
    """S3.41: an answer below .4 is asked about, also after the plan has asked."""
    agent.config = config(intervention={"max_rounds": 1})
    steps = [step(1, "ask_user", query="Which order?"), step(2, "ask_user", 1, query="Since when?"),
             step(3, "rag_search", 2, query="zebra quantum flux"),
             step(4, "reasoning", 3, query="Why is the zebra late?")]  # fmt: skip
    run = await agent.ask(KNOWN, plan={"steps": steps})
    for words in ("Order 7", "Since May"):
        assert run["intervention"]["kind"] == "question"
        run = await agent.go_on(run, "input", words)
    assert (run["state"], run["intervention"]["kind"]) == ("waiting", "step")


async def test_run_that_nobody_answered_says_why_it_was_cancelled(agent: Agent) -> None:
    """S3.53."""
    agent.config = config(intervention={"timeout_seconds": 0.01})
    plan = {"steps": [step(1, "ask_user", query="Which order?")]}
    run = await agent.ask(KNOWN, plan=plan)
    for _ in range(3):
        await agent.work()
    run = await agent.get(run["id"])
    assert (run["state"], run["error"]) == ("cancelled", {"message": "Nobody answered in time."})
