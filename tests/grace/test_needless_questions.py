"""With a model, a person is not asked about what the model can find out by itself."""

from __future__ import annotations

import re
from typing import Any

import pytest

from memory_api.grace.tools.registry import BUILTIN_TOOLS, AskUserTool
from tests.grace.conftest import Agent, config
from tests.grace.test_agent_runs import UNKNOWN
from tests.grace.test_agent_with_model import (
    QUERY,
    Model,
    answer_prompts,
    judgment,
    model,
    planned,
)

__all__ = ["model"]

OTHER_WORDS = "parcels Norway customs form"
NOT_FOUND = {"answer": "The sources do not say it.", "sufficient": False, "search": OTHER_WORDS}
SEARCH_AND_ANSWER = planned(("rag_search", []), ("reasoning", [1]))
FOUND = "Parcels to Norway take nine working days and need a customs form."
FOUND_ANSWER = {"answer": f"{FOUND} [3]", "sufficient": True}


def search_for(words: str) -> dict[str, Any]:
    steps = [step | {"query": words} for step in SEARCH_AND_ANSWER["steps"]]
    return SEARCH_AND_ANSWER | {"steps": steps}


async def test_search_of_middle_confidence_is_read_first(agent: Agent, model: Model) -> None:
    doubtful = {"thresholds": {"silent": 1, "notify": 1, "confirm": 0.01},
                "replan": {"confidence_threshold": 0}}  # fmt: skip
    agent.config = config(**doubtful)
    run = await agent.ask(QUERY)
    assert run["intervention"]["step_id"] == 2, "the answer is asked about, not the search"
    agent.config = config(**doubtful, search={"ask_back_below": 1})
    assert (await agent.ask(QUERY))["intervention"]["step_id"] == 1


async def test_search_that_nobody_reads_is_asked_about(agent: Agent, model: Model) -> None:
    agent.config = config(thresholds={"silent": 1, "notify": 1, "confirm": 0.01})
    plan = planned(("rag_search", []), ("rag_search", []), ("reasoning", [2]))
    assert (await agent.ask(QUERY, plan={"steps": plan["steps"]}))["intervention"]["step_id"] == 1


async def test_weak_search_is_planned_again(agent: Agent, model: Model) -> None:
    """Below `search.ask_back_below`; once the replans are used up, a person is asked."""
    agent.config = config(search={"ask_back_below": 0.3})
    model.answers["plan"] = [search_for(UNKNOWN)]
    run = await agent.ask(UNKNOWN, interactive=False)
    assert (run["replan_count"], run["intervention"]["step_id"]) == (3, 1)
    prompt = next(call for call in model.calls if "What happened so far" in call.user).user
    assert "Searched for:" in prompt


@pytest.mark.parametrize("depends_on", [[], [1]])
async def test_insufficient_sources_lead_to_one_more_search(
    agent: Agent, model: Model, depends_on: list[int]
) -> None:
    """With the words of the model that has read them, and without a new plan."""
    plan = planned(("rag_search", []), ("reasoning", depends_on))
    plan["steps"][0]["query"] = "pending order"
    model.answers["plan"] = [plan]
    model.answers["answer"] = [NOT_FOUND, FOUND_ANSWER]
    model.answers["judge"] = [judgment("supported", claim=FOUND)]
    run = await agent.ask(QUERY)
    assert (run["state"], run["found"], run["replan_count"]) == ("done", True, 0)
    assert [step["action"] for step in run["steps"]] == ["rag_search", "reasoning", "rag_search"]
    assert run["steps"][2]["query"] == OTHER_WORDS
    assert FOUND in answer_prompts(model)[-1]
    assert FOUND not in answer_prompts(model)[0]
    model.answers["answer"] = [NOT_FOUND]
    run = await agent.ask(QUERY)
    assert len(run["steps"]) == 3, "only once; then the person is asked"
    question = run["intervention"]
    assert (question["level"], question["step_id"]) == ("escalate", 2)
    assert "The sources do not say it." in question["message"]
    run = await agent.go_on(run, "proceed")
    assert (run["state"], run["outcome"], run["found"]) == ("done", "partial", False)


@pytest.mark.parametrize(
    ("second", "searches"), [("delivered order receipt", 3), ("Norway parcels", 2)]
)
async def test_search_goes_on_while_it_finds_more(
    agent: Agent, model: Model, second: str, searches: int
) -> None:
    """The second search finds other passages than the first one, or only known ones."""
    plan = planned(("rag_search", []), ("reasoning", []))
    plan["steps"][0]["query"] = "nothing of it"
    model.answers["plan"] = [plan]
    words = [OTHER_WORDS, second, "batteries recycled"]
    model.answers["answer"] = [NOT_FOUND | {"search": each} for each in words]
    run = await agent.ask(QUERY)
    queries = [s["query"] for s in run["steps"] if s["action"] == "rag_search"]
    assert queries == ["nothing of it", *words[:searches]]
    assert run["intervention"]["step_id"] == 2


@pytest.mark.parametrize("may_change", [False, True])
async def test_new_plan_that_may_change_things_is_confirmed(
    agent: Agent, model: Model, monkeypatch: pytest.MonkeyPatch, may_change: bool
) -> None:
    weak = {"search": {"ask_back_below": 1}, "replan": {"confidence_threshold": 1}}
    agent.config = config(executor={"max_replans": 1}, **weak)
    asking = planned(("ask_user", []), ("rag_search", [1]), ("reasoning", [1, 2]))
    model.answers["plan"] = [search_for(UNKNOWN), asking]
    assert AskUserTool in BUILTIN_TOOLS
    monkeypatch.setattr(AskUserTool, "idempotent", not may_change)
    kind = "plan" if may_change else "question"
    assert (await agent.ask(QUERY))["intervention"]["kind"] == kind
    model.answers["plan"] = [search_for(UNKNOWN), SEARCH_AND_ANSWER]
    agent.config = config(executor={"max_replans": 1},
                          replan={"confidence_threshold": 1, "confirm_all": True},
                          search={"ask_back_below": 0.3})  # fmt: skip
    run: dict[str, Any] = await agent.ask(QUERY)
    assert run["intervention"]["kind"] == "plan"
    assert (await agent.go_on(run, "proceed"))["found"] is True


async def test_new_plan_knows_that_a_question_was_skipped(agent: Agent, model: Model) -> None:
    first = planned(("ask_user", []), ("rag_search", [1]), ("reasoning", [2]))
    first["steps"][1]["query"] = UNKNOWN
    model.answers["plan"] = [first, SEARCH_AND_ANSWER]
    agent.config = config(search={"ask_back_below": 0.3})
    await agent.go_on(await agent.ask(QUERY), "skip")
    prompt = next(call for call in model.calls if "What happened so far" in call.user).user
    outside_fences = re.sub(r"<([\w-]+)>.*?</\1>", "", prompt, flags=re.DOTALL)
    assert "The person skipped the question of step 1." in outside_fences
