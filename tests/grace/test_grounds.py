"""What an answer rests on, what its confidence is about, and what is refused."""

from __future__ import annotations

import pytest

from memory_api.core.errors import ConfigurationError
from memory_api.core.resources import packaged_path
from memory_api.grace.config import FILE_NAME, read_config
from memory_api.grace.execution_plan import ExecutionPlan, ExecutionState, PlanStep
from memory_api.grace.replanning import FEEDBACK_WORDS
from tests.grace.conftest import URL, Agent, config
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


async def test_a_missing_name_counts(agent: Agent) -> None:
    """The passage of another thing fits worse than the right one, and does not answer for it."""
    question = "What is the warranty period of the Falcon drill?"
    await add_document(agent, "wikipedia_ja", "The warranty period for souvenirs is five days.")
    run = await agent.ask(question)
    assert (run["state"], run["intervention"]["level"]) == ("waiting", "escalate")
    await add_document(agent, "tools", "The Falcon drill has a warranty period of 24 months.")
    run = await agent.ask(question, interactive=False)
    assert "24 months" in run["answer"]
    assert "souvenirs" not in run["answer"]


async def add_document(agent: Agent, collection: str, content: str) -> None:
    await agent.api.post("/api/v1/collections", json={"name": collection})
    added = await agent.api.post(
        f"/api/v1/collections/{collection}/documents",
        params={"source": f"{collection}.md"},
        content=content.encode(),
    )
    added.raise_for_status()
    await agent.work()


async def test_words_of_a_person_change_the_answer_of_the_rules(agent: Agent) -> None:
    await add_document(agent, "tools", "The warranty of the Falcon drill is 36 months.")
    await add_document(agent, "parts", "The warranty of the batteries is 12 months.")
    agent.config = config(thresholds={"silent": 0.99, "notify": 0.99, "confirm": 0.99})
    run = await agent.ask("How long is the warranty?")
    run = await agent.go_on(run, "input", "I mean the warranty of the batteries")
    while run["state"] == "waiting":
        run = await agent.go_on(run, "proceed")
    assert "12 months" in run["answer"]
    assert "36 months" not in run["answer"]
    assert run["confidence"] < 0.9


async def test_confidence_is_that_of_the_answer(agent: Agent) -> None:
    run = await agent.ask("Can a pending order be refunded?", interactive=False)
    assert run["confidence"] == run["steps"][1]["confidence"] < 0.9
    assert run["steps"][1]["level"] == "notify"


async def test_a_cancelled_run_shows_no_answer(agent: Agent) -> None:
    step = {"step_id": 1, "action": "rag_search", "description": "Search."}
    answer = {"step_id": 2, "action": "reasoning", "description": "Answer.", "depends_on": [1]}
    ask = {"step_id": 3, "action": "ask_user", "description": "Ask.", "depends_on": [2]}
    run = await agent.ask(
        "Can a pending order be refunded?", plan={"steps": [step, answer, ask]}, interactive=False
    )
    assert (run["state"], run["steps"][1]["state"]) == ("waiting", "success")
    run = await agent.go_on(run, "cancel")
    assert (run["state"], run["answer"], run["sources"]) == ("cancelled", None, [])
    assert (run["found"], run["confidence"]) == (False, 0)
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


async def test_without_a_collection_the_agent_says_so(agent: Agent) -> None:
    run = await agent.ask("Where is the key?", project_id="empty")
    assert (run["state"], run["answer"]) == ("failed", None)
    assert "Project 'empty' has no collection" in run["error"]["message"]
    assert "hansei collection create" in run["error"]["message"]


async def test_a_plan_is_confirmed_if_the_caller_wants_so(agent: Agent) -> None:
    agent.config = config(intervention={"interactive": False, "max_rounds": 0})
    run = await agent.ask("Can a pending order be refunded?", confirm_plan=True)
    assert run["intervention"]["kind"] == "plan"
    assert "(search: Can a pending order be refunded?)" in run["intervention"]["message"]
    run = await agent.go_on(run, "proceed")
    assert run["state"] == "done"
    plan = {"steps": [{"step_id": 1, "action": "rag_search", "description": "d"}]}
    run = await agent.ask("Can a pending order be refunded?", plan=plan, confirm_plan=True)
    assert run["intervention"]["kind"] == "plan"
    step = {"step_id": 1, "action": "rag_search", "description": "refunds", "query": "refunds"}
    run = await agent.ask("Refunds?", plan={"steps": [step]}, confirm_plan=True)
    assert run["intervention"]["message"] == (
        "Carry out this plan? 1. rag_search: refunds; 2. reasoning: Answer the question from the"
        " passages."
    )


async def test_a_question_of_spaces_is_refused(agent: Agent) -> None:
    assert_problem(await agent.api.post(URL, json={"query": " \n "}), 422)


@pytest.mark.parametrize("value", ["inf", "nan", "-1", "1e300"])
def test_a_timeout_must_be_finite(value: str) -> None:
    path = packaged_path("config") / FILE_NAME
    with pytest.raises(ConfigurationError, match=r"intervention\.timeout_seconds"):
        read_config(path, {"GRACE_INTERVENTION_TIMEOUT_SECONDS": value})
