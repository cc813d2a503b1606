"""A right answer survives a plan, another search or a judge that is not as it should be."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient

from tests.grace.conftest import URL, Agent, config
from tests.grace.test_agent_with_model import (
    FACT,
    GOOD_ANSWER,
    QUERY,
    Model,
    judgment,
    model,
    planned,
)
from tests.support.problems import assert_problem

__all__ = ["model"]

SEARCH, ANSWER = ("rag_search", []), ("reasoning", [])
MISSING = {"answer": "It is not said.", "sufficient": False}


def asked(plan: dict[str, Any], *queries: str | None) -> dict[str, Any]:
    """The plan as a short one: without what follows from the order of its steps."""
    steps = [
        {"action": step["action"], "query": query, "collection": None}
        for step, query in zip(plan["steps"], queries, strict=True)
    ]
    return {"complexity": 0.5, "steps": steps, "cited_bullets": []}


@pytest.mark.parametrize("last", ["rag_search", "ask_user"])
async def test_plan_that_ends_with_a_search_gets_an_answer(
    agent: Agent, model: Model, last: str
) -> None:
    """What only prepares a search does not answer the question."""
    model.answers["plan"] = [planned(SEARCH, ("reasoning", [1]), (last, [2]))]
    run = await agent.ask(QUERY)
    if last == "ask_user":
        run = await agent.go_on(run, "input", "Order 7.")
    actions = [step["action"] for step in run["steps"]]
    assert actions == ["rag_search", "reasoning", last, "reasoning"]
    assert run["steps"][3]["breakdown"]["support"] == 1, "it was judged"


async def test_plan_without_room_for_an_answer_is_refused(
    agent: Agent, model: Model, api: AsyncClient
) -> None:
    plan = planned(*[SEARCH] * 20)
    model.answers["plan"] = [plan]
    assert (await agent.ask(QUERY))["engine"] == "template"
    response = await api.post(URL, json={"query": QUERY, "plan": {"steps": plan["steps"]}})
    assert "No step answers the question" in assert_problem(response, 422)["detail"]


async def test_full_plan_searches_no_more(agent: Agent, model: Model) -> None:
    """Two further searches after 19 made a plan of 22 steps, which no door could read."""
    queries = [f"pending order {n}" for n in range(18)]
    model.answers["plan"] = [asked(planned(*[SEARCH] * 18, ANSWER), *queries, None)]
    searches = ["delivered order receipt", "Norway parcels customs"]
    model.answers["answer"] = [MISSING | {"search": each} for each in searches] + [GOOD_ANSWER]
    run = await agent.ask(QUERY)
    assert len(run["steps"]) == 20
    assert (run["state"], run["intervention"]["step_id"]) == ("waiting", 19)
    assert (await agent.api.get(f"{URL}/{run['id']}/execution")).status_code == 200


@pytest.mark.parametrize("search", [42, [], {}, True])
async def test_words_of_another_type_are_no_search(agent: Agent, model: Model, search: Any) -> None:
    model.answers["answer"] = [GOOD_ANSWER | {"search": search}]
    assert (await agent.ask(QUERY))["answer"] == f"{FACT} [1]"


async def test_blank_answer_is_asked_again(agent: Agent, model: Model) -> None:
    model.answers["answer"] = [GOOD_ANSWER | {"answer": " \n"}, GOOD_ANSWER]
    assert (await agent.ask(QUERY))["answer"] == f"{FACT} [1]"


async def test_two_answers_at_once_search_again(agent: Agent, model: Model) -> None:
    """The search of the first one has not ended when the second one asks for its own."""
    plan = planned(SEARCH, ("reasoning", [1]), ("reasoning", [1]), ANSWER)
    plan["steps"][2]["query"] = "Which parcels need a form?"
    model.answers["plan"] = [plan]
    searches = ["delivered order receipt", "Norway parcels customs"]
    model.answers["answer"] = [*(MISSING | {"search": each} for each in searches), GOOD_ANSWER]
    run = await agent.ask(QUERY)
    assert {step["query"] for step in run["steps"]} >= set(searches)
    assert run["answer"] == f"{FACT} [1]"


async def test_new_steps_use_the_answers_of_finished_ones(agent: Agent, model: Model) -> None:
    """The tool of step 3 fails. The new search has the answer of step 2, which stays."""
    first = planned(SEARCH, ("reasoning", [1]), ("run_legacy_agent", [2]), ANSWER)
    new = asked(planned(SEARCH, ANSWER), "delivered {2}", None)
    model.answers |= {"plan": [first, new], "act": [{"prose": "?"}]}
    run = await agent.ask(QUERY)
    prompt = next(call for call in model.calls if "What happened so far" in call.user).user
    assert "Number the remaining steps from 3." in prompt
    assert [step["step_id"] for step in run["steps"]] == [1, 2, 3, 4]
    assert run["steps"][2]["query"] == f"delivered {FACT}"
    assert run["steps"][2]["depends_on"] == [2]
    assert run["answer"] == f"{FACT} [1]"


async def test_unusable_verdict_makes_an_answer_unsure(agent: Agent, model: Model) -> None:
    model.answers["judge"] = [{"prose": "fine!"}]
    run = await agent.ask(QUERY)
    assert (run["state"], run["answer"]) == ("done", f"{FACT} [1]")
    model.answers["judge"] = [judgment("supported")]
    assert run["confidence"] < 0.9 < (await agent.ask(QUERY))["confidence"]


async def test_all_words_of_a_person_reach_the_model(agent: Agent, model: Model) -> None:
    model.answers["answer"] = [MISSING, GOOD_ANSWER]
    run = await agent.ask(QUERY)
    words = "word " * 1_990 + "the-last-word"
    await agent.go_on(run, "input", words)
    assert "the-last-word" in model.calls[-2].user + model.calls[-1].user


async def test_cost_of_a_plan_is_unknown_at_once(agent: Agent, model: Model) -> None:
    """The price of the stub's model is unknown."""
    run = await agent.ask(QUERY, confirm_plan=True)
    assert (run["state"], run["cost_usd"]) == ("waiting", None)
    assert "cost_unknown" in [kind for _, kind in await agent.events(run["id"])]


async def test_model_may_ask_for_a_confirmation(agent: Agent, model: Model) -> None:
    model.answers["plan"] = [
        planned(SEARCH, ("reasoning", [1])) | {"requires_confirmation": True},
    ]
    assert (await agent.ask(QUERY))["intervention"]["kind"] == "plan"
    agent.config = config(intervention={"interactive": False})
    assert (await agent.ask(QUERY, interactive=False))["answer"] == f"{FACT} [1]"


async def test_answer_of_a_plan_needs_no_collection(agent: Agent, model: Model) -> None:
    plan = planned(SEARCH, ("reasoning", [1]))
    del plan["steps"][1]["collection"]
    model.answers["plan"] = [plan]
    assert (await agent.ask(QUERY))["engine"] == "llm"
    assert sum("You plan how an agent" in call.system + call.user for call in model.calls) == 1
