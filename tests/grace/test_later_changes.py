"""An answer is compared with passages that it does not cite: a value may have changed."""

from __future__ import annotations

import pytest

from tests.grace.conftest import Agent
from tests.grace.test_agent_with_model import (
    Model,
    answer_prompts,
    judgment,
    model,
    planned,
)
from tests.grace.test_one_numbering import prompts_of

__all__ = ["model"]

QUERY = "How long does a parcel take abroad?"
OLD = "Parcels to Norway take nine working days"
NEW = "Parcels to Norway take six working days"
NOTICE = f"# Notice 7, from 1 March 2026\n\n{NEW} since there is a night train. The form stays."
JUDGE = "Compare an answer"


@pytest.fixture
async def notice(agent: Agent, model: Model) -> None:
    """It has no word of the planned search, which finds only the handbook."""
    url = "/api/v1/collections/handbook/documents"
    added = await agent.api.post(url, params={"source": "notices.md"}, content=NOTICE.encode())
    added.raise_for_status()
    await agent.work()
    plan = planned(("rag_search", []), ("reasoning", [1]))
    plan["steps"][0]["query"] = "customs abroad"
    model.answers["plan"] = [plan]


@pytest.mark.usefixtures("notice")
async def test_contradicted_answer_is_written_again(agent: Agent, model: Model) -> None:
    model.answers["answer"] = [
        {"answer": f"{OLD} [1].", "sufficient": True},
        {"answer": f"{NEW} [1] [2] [3] [4].", "sufficient": True},
    ]
    model.answers["judge"] = [judgment("contradicted", claim=OLD), judgment("supported", claim=NEW)]
    run = await agent.ask(QUERY)
    first, second = answer_prompts(model)
    assert (NEW in first, NEW in second) == (False, True)
    others = prompts_of(model, JUDGE)[0].split("Other passages", 1)[1]
    assert NEW in others
    assert (run["state"], run["found"]) == ("done", True)
    assert run["answer"].startswith(NEW)
    assert [(step["action"], step["query"]) for step in run["steps"]][2] == (
        "rag_search",
        f"{OLD}.",
    )


@pytest.mark.usefixtures("notice")
async def test_lasting_contradiction_is_asked_about(agent: Agent, model: Model) -> None:
    model.answers["answer"] = [{"answer": f"{OLD} [1].", "sufficient": True}]
    model.answers["judge"] = [judgment("contradicted", claim=OLD)]
    run = await agent.ask(QUERY)
    assert len(answer_prompts(model)) == 2, "once more with the other passages"
    assert run["steps"][1]["penalties"] == ["contradiction"]
    assert run["intervention"]["step_id"] == 2
