"""A source has one number: in the answer, for the judge, and in the list of the run."""

from __future__ import annotations

import re
from typing import Any

from memory_api.grace.tools.port import Source
from memory_api.grace.tools.reasoning import cite_sources
from tests.grace.conftest import Agent, config
from tests.grace.test_agent_with_model import (
    FACT,
    HARD,
    QUERY,
    Model,
    answer_prompts,
    model,
    planned,
)

__all__ = ["model"]


def test_cited_sources_are_numbered_from_one() -> None:
    sources = [Source(name, name, 1.0) for name in "abcd"]
    text, cited = cite_sources("X [4]. Y [2] [4], Z [9].", sources)
    assert text == "X [2]. Y [1] [2], Z ."
    assert [each.source for each in cited] == ["b", "d"]


def prompts_of(model: Model, start: str) -> list[str]:
    texts = [f"{call.system}\n{call.user}" for call in model.calls]
    return [text for text in texts if start in text]


async def test_judge_and_answer_have_the_same_numbers(agent: Agent, model: Model) -> None:
    agent.config = config(search={"min_score": 0}, executor={"max_replans": 0},
                          intervention={"max_rounds": 0})  # fmt: skip
    words = "order refund parcels working days"
    plan = planned(("rag_search", []), ("reasoning", [1]))
    plan["steps"][0]["query"] = words
    model.answers["plan"] = [plan]
    model.answers["answer"] = [{"answer": f"{FACT} [2]", "sufficient": True}]
    run = await agent.ask(QUERY, interactive=False)
    shown = re.findall(r"\[(\d)\]\n<source-\w+>\n(.*?)\n</", answer_prompts(model)[0], re.S)
    assert len(shown) > 1
    (judged,) = prompts_of(model, "Compare an answer")
    assert re.findall(r"\[(\d)\]\n<source-\w+>\n(.*?)\n</", judged, re.S) == [("1", shown[1][1])]
    assert f"{FACT} [1]" in judged
    assert run["answer"] == f"{FACT} [1]"
    assert shown[1][1].endswith(run["sources"][0]["content"])


async def test_an_intermediate_answer_is_judged_with_the_one_that_uses_it(
    agent: Agent, model: Model
) -> None:
    plan = planned(("rag_search", []), ("reasoning", [1]), ("rag_search", []),
                   ("reasoning", [1, 3]))  # fmt: skip
    plan["steps"][1]["query"] = "What cannot be refunded?"
    plan["steps"][2]["query"] = "{2} receipt"
    plan["steps"][3]["query"] = None
    model.answers["plan"] = [plan]
    model.answers["answer"] = [
        {"answer": "A pending order [1]", "sufficient": True},
        {"answer": f"{FACT} [1]", "sufficient": True},
    ]
    run = await agent.ask(HARD)
    assert (run["state"], run["answer"]) == ("done", f"{FACT} [1]")
    first, last = answer_prompts(model)
    part, whole = ("The question of the person. Answer only the part below:", HARD)
    assert (part in first, "What cannot be refunded?" in first, whole in first) == (True,) * 3
    assert (part in last, last.rstrip().rpartition("\n")[0].endswith(HARD)) == (False, True)
    assert "What cannot be refunded?\nA pending order\n" in last, "the question, and no number"
    assert len(prompts_of(model, "Compare an answer")) == 1


async def test_a_question_to_a_person_is_the_steps_own(agent: Agent, model: Model) -> None:
    plan = planned(("ask_user", []), ("rag_search", [1]), ("reasoning", [1, 2]))
    plan["steps"][0]["query"] = "Which order is it?"
    plan["steps"][1]["query"] = "{1} pending order"
    model.answers["plan"] = [plan]
    run = await agent.ask(HARD)
    assert run["intervention"]["message"] == "Which order is it?"
    said = "It is the one of Tuesday."
    run = await agent.go_on(run, "input", said)
    assert run["steps"][1]["query"] == "pending order", "the words of the person are a sentence"
    prompt = answer_prompts(model)[0]
    assert f"Which order is it?\n{said}\n" in prompt
    assert prompt.count(said) == 1
    (judged,) = prompts_of(model, "Compare an answer")
    assert f"Which order is it?\n{said}\n" in judged


async def test_all_queries_of_the_run_are_named_for_a_new_plan(agent: Agent, model: Model) -> None:
    words = ["batteries winter", "batteries recycled", "old batteries"]
    plans: list[dict[str, Any]] = []
    for each in words:
        plan = planned(("rag_search", []), ("reasoning", [1]))
        plan["steps"][0]["query"] = each
        plans.append(plan)
    model.answers["plan"] = plans
    agent.config = config(executor={"cooldown_seconds": 0, "max_replans": 2},
                          replan={"confidence_threshold": 1.0},
                          search={"ask_back_below": 1.0})  # fmt: skip
    await agent.ask("Are batteries recycled in winter?", interactive=False)
    second, third = prompts_of(model, "What happened so far")[:2]
    searched = re.compile(r"<queries-\w+>\n(.*?)\n</", re.S)
    assert searched.findall(second) == [words[0]]
    assert searched.findall(third) == ["\n".join(words[:2])]


async def test_the_loop_can_end_without_an_answer(agent: Agent, model: Model) -> None:
    """Then a person is asked; with what they say, the loop works again."""
    agent.config = config(intervention={"max_rounds": 1}, executor={"max_replans": 0})
    search = {"thought": "", "tool": "rag_search", "tool_query": QUERY, "answer": None}
    missing = {"thought": "", "tool": None, "answer": "The order's state is not known.",
               "tool_query": None, "sufficient": False}  # fmt: skip
    found = missing | {"answer": f"{FACT} [1]", "sufficient": True}
    model.answers["act"] = [search, missing, search, found]
    model.answers["plan"] = [planned(("run_legacy_agent", []))]
    run = await agent.ask(HARD)
    assert run["state"] == "waiting"
    assert "The order's state is not known." in run["intervention"]["message"]
    run = await agent.go_on(run, "input", "It is pending.")
    assert (run["state"], run["found"], run["answer"]) == ("done", True, f"{FACT} [1]")
    model.answers["act"] = [search, missing]
    run = await agent.go_on(await agent.ask(HARD), "proceed")
    assert (run["state"], run["outcome"], run["found"]) == ("done", "partial", False)
    assert not run["sources"]
