"""What an answer rests on, what its confidence is about, and what is refused."""

from __future__ import annotations

import pytest

from memory_api.core.errors import ConfigurationError
from memory_api.core.resources import packaged_path
from memory_api.grace.config import FILE_NAME, read_config
from memory_api.grace.execution_plan import ExecutionPlan, ExecutionState, PlanStep
from memory_api.grace.replanning import FEEDBACK_WORDS
from tests.grace.conftest import URL, Agent
from tests.support.problems import assert_problem


async def test_a_collection_is_a_preference(agent: Agent) -> None:
    """A passage of another collection that fits is found, though the default one has a hit."""
    await agent.api.post("/api/v1/collections", json={"name": "wikipedia_ja"})
    text = "Souvenirs that cannot be refunded stay in the order for five days."
    await agent.api.post(
        "/api/v1/collections/wikipedia_ja/documents",
        params={"source": "souvenirs.md"},
        content=text.encode(),
    )
    await agent.work()
    run = await agent.ask("Can a pending order be refunded?", interactive=False)
    assert run["steps"][0]["collection"] == "wikipedia_ja"
    assert [source["source"] for source in run["sources"]] == ["handbook.md"]


async def test_confidence_is_that_of_the_answer(agent: Agent) -> None:
    run = await agent.ask("Can a pending order be refunded?", interactive=False)
    assert run["confidence"] == run["steps"][1]["confidence"] < 0.9
    assert run["steps"][1]["level"] == "notify"


async def test_a_cancelled_run_shows_no_answer(agent: Agent) -> None:
    run = await agent.ask("How are batteries recycled in winter?")
    assert run["state"] == "waiting"
    run = await agent.go_on(run, "cancel")
    assert (run["state"], run["answer"], run["sources"]) == ("cancelled", None, [])
    assert "pending" not in {step["state"] for step in run["steps"]}


def test_an_answer_waits_for_all_searches() -> None:
    actions = ("rag_search", "rag_search", "reasoning")
    steps = [
        PlanStep(step_id=n, action=action, description="d") for n, action in enumerate(actions, 1)
    ]
    state = ExecutionState(ExecutionPlan(original_query="q", steps=steps))
    assert [step.step_id for step in state.ready()] == [1, 2]
    state.states[1] = "success"
    assert [step.step_id for step in state.ready()] == [2]
    state.states[2] = "failed"
    assert [step.step_id for step in state.ready()] == [3]


@pytest.mark.parametrize(
    ("text", "is_feedback"),
    [
        ("exchange of a parcel", False),
        ("interchangeable batteries", False),
        ("change the plan", True),
        ("That is wrong.", True),
        ("それは違う", True),
    ],
)
def test_feedback_words(text: str, is_feedback: bool) -> None:
    assert bool(FEEDBACK_WORDS.search(text)) is is_feedback


async def test_a_question_of_spaces_is_refused(agent: Agent) -> None:
    assert_problem(await agent.api.post(URL, json={"query": " \n "}), 422)


@pytest.mark.parametrize("value", ["inf", "nan", "-1"])
def test_a_timeout_must_be_finite(value: str) -> None:
    path = packaged_path("config") / FILE_NAME
    with pytest.raises(ConfigurationError, match=r"intervention\.timeout_seconds"):
        read_config(path, {"GRACE_INTERVENTION_TIMEOUT_SECONDS": value})
