"""Complexity, plans and their checks, and the decision how to plan again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from memory_api.grace.config import GraceConfig
from memory_api.grace.execution_plan import (
    ExecutionPlan,
    ExecutionState,
    PlanStep,
    PlanStepResult,
    find_plan_problems,
)
from memory_api.grace.planner import (
    PlannedSteps,
    PlanningContext,
    create_plan,
    estimate_complexity,
)
from memory_api.grace.replanning import (
    ReplanContext,
    choose_strategy,
    make_replan,
    skip_step,
)
from tests.support.cases import each_case

CONFIG = GraceConfig()
ACTIONS = frozenset({"rag_search", "reasoning"})


def steps(*dependencies: tuple[int, ...], fallback: str | None = None) -> list[PlanStep]:
    return [
        PlanStep(
            step_id=n,
            action="rag_search" if n < len(dependencies) else "reasoning",
            description=f"Step {n}",
            depends_on=list(depends_on),
            fallback=fallback if n == 1 else None,
        )
        for n, depends_on in enumerate(dependencies, start=1)
    ]


def state_of(*dependencies: tuple[int, ...], fallback: str | None = None) -> ExecutionState:
    plan = ExecutionPlan(original_query="q", steps=steps(*dependencies, fallback=fallback))
    return ExecutionState(plan)


@each_case(
    ("query", "complexity"),
    [
        ("Where is the office?", 0.3),
        ("Show the stepson's whiskey.", 0.3),
        ("Who founded the shop, and where does it deliver to?", 0.4),
        ("Where is the office? When does it open?", 0.5),
        ("京都と大阪では、どちらが広いですか？人口は？", 0.6),
        ("one, two; three, four, five, six", 0.6),
        ("x" * 101, 0.4),
        ("x" * 201, 0.5),
    ],
)
def test_complexity(query: str, complexity: float) -> None:
    assert estimate_complexity(query) == complexity


async def test_an_answer_flows_into_a_later_search() -> None:
    plan = ExecutionPlan(original_query="q", steps=[
        PlanStep(step_id=1, action="rag_search", description="d", query="drill {3}"),
        PlanStep(step_id=2, action="reasoning", description="d", query="Who made it?"),
        PlanStep(step_id=3, action="rag_search", description="d", query="{2} born {1} {9}"),
    ]).depend_on_variables()  # fmt: skip
    assert [step.depends_on for step in plan.steps] == [[], [], [2]]
    found = PlanStepResult(step_id=1, status="success", action="rag_search", output="passages")
    answer = PlanStepResult(step_id=2, status="success", action="reasoning", output="Ada\nLee [1]")
    filled = plan.steps[2].fill_query({1: found, 2: answer})
    assert filled.query == "Ada Lee born {1} {9}", "searches and unknown steps have no output"
    missing = answer.model_copy(update={"found": False})
    assert plan.steps[2].fill_query({2: missing}).query == "born {1} {9}", "no answer, no words"
    numbered = plan.steps[2].renumber({2: 5, 3: 6})
    assert (numbered.step_id, numbered.depends_on) == (6, [5])
    assert numbered.query == "{5} born {1} {9}"


def test_words_of_a_person_are_no_words_of_a_search() -> None:
    said = PlanStepResult(step_id=1, status="success", action="ask_user", output="On the Aldis.")
    search = PlanStep(step_id=2, action="rag_search", description="d", query="{1} main engine",
                      depends_on=[1])  # fmt: skip
    assert search.fill_query({1: said}).query == "main engine"
    assert search.model_copy(update={"query": "{1}"}).fill_query({1: said}).query == ""
    answer = search.model_copy(update={"action": "reasoning", "query": "Engine? {1}"})
    assert answer.fill_query({1: said}).query == "Engine? On the Aldis."


async def test_template_without_model_prefers_the_default_collection() -> None:
    context = PlanningContext("q", CONFIG, {}, [("other", ""), ("wikipedia_ja", "")])
    plan = await create_plan(context, None)
    assert [step.action for step in plan.steps] == ["rag_search", "reasoning"]
    assert plan.steps[0].collection == "wikipedia_ja"
    assert plan.steps[1].depends_on == [1]


def test_all_steps_start_pending_and_wait_for_their_dependencies() -> None:
    state = state_of((), (), (1, 2))
    assert set(state.states.values()) == {"pending"}
    assert [step.step_id for step in state.ready()] == [1, 2]
    state.states |= {1: "success", 2: "failed"}
    assert state.ready() == []
    assert [step.step_id for step in state.unmet()] == [3]


def test_problems_of_a_plan() -> None:
    def problems(given: list[PlanStep]) -> list[str]:
        return find_plan_problems(ExecutionPlan(original_query="q", steps=given), ACTIONS, 3)

    assert problems(steps((), (1,))) == []
    assert "not earlier" in problems(steps((2,), (1,)))[0]
    assert "missing" in problems(steps((), (9,)))[0]
    assert "At most 3" in problems(steps((), (), (), ()))[0]
    assert "unknown fallback" in problems(steps((), (1,), fallback="dance"))[0]


@each_case(
    ("trigger", "step_id", "feedback", "count", "strategy"),
    [
        ("step_failed", 2, "", 3, "abort"),
        ("user_feedback", 1, "Use other words", 3, "partial"),
        ("new_information", 2, "Start over", 3, "full"),
        ("step_failed", 1, "", 0, "fallback"),
        ("timeout", 2, "", 0, "full"),
        ("user_feedback", 2, "Start over", 0, "full"),
        ("user_feedback", 2, "最初からやり直して", 0, "full"),
        ("user_feedback", 1, "Use other words", 0, "partial"),
        ("low_confidence", 2, "", 0, "full"),
        ("step_failed", 3, "", 0, "partial"),
    ],
)
def test_decision_order(
    trigger: str, step_id: int, feedback: str, count: int, strategy: str
) -> None:
    state = state_of((), (), (1,), (2, 3), fallback="reasoning")
    why = ReplanContext(trigger, step_id, "", feedback)  # type: ignore[arg-type]
    assert choose_strategy(why, state, count, CONFIG) == strategy


async def test_fallback_swaps_the_action_once() -> None:
    state = state_of((), (1,), fallback="reasoning")
    state.states[1] = "failed"
    context = PlanningContext("q", CONFIG, {})
    result = await make_replan("fallback", ReplanContext("step_failed", 1), state, context, None)
    assert result.plan is not None
    assert (result.plan.steps[0].action, result.plan.steps[0].fallback) == ("reasoning", None)
    assert result.plan.plan_id != state.plan.plan_id


async def test_partial_keeps_finished_steps_and_renumbers() -> None:
    state = state_of((), (1,), (2,))
    state.states |= {1: "success", 2: "failed"}
    state.results[1] = PlanStepResult(step_id=1, status="success", output="found")
    why = ReplanContext("user_feedback", 2, "", "Use other words")
    result = await make_replan("partial", why, state, PlanningContext("q", CONFIG, {}), None)
    assert result.plan is not None
    assert [(s.step_id, s.depends_on) for s in result.plan.steps] == [(1, []), (2, []), (3, [2])]
    assert list(result.kept) == [1]
    assert result.plan.requires_confirmation


def test_answer_without_dependencies_waits_for_all_earlier_steps() -> None:
    actions = ("rag_search", "reasoning", "rag_search", "reasoning")
    steps = [PlanStep(step_id=n, action=action, description="x", depends_on=[1] if n == 2 else [])
             for n, action in enumerate(actions, start=1)]  # fmt: skip
    state = ExecutionState(ExecutionPlan(original_query="q", steps=steps))
    ready = [[step.step_id for step in state.ready()]]
    for number in (1, 2, 3):
        state.states[number] = "success"
        ready.append([step.step_id for step in state.ready()])
    assert ready == [[1, 3], [2, 3], [3], [4]]


def test_plan_that_only_searches_gets_an_answer() -> None:
    search = PlanStep(step_id=1, action="rag_search", description="x", query="Heron saw")
    plan = ExecutionPlan(original_query="Who repairs it?", steps=[search]).end_with_answer()
    assert [step.action for step in plan.steps] == ["rag_search", "reasoning"]
    assert (plan.steps[1].step_id, plan.steps[1].query) == (2, "Who repairs it?")
    assert plan.end_with_answer() is plan


async def test_partial_keeps_finished_steps_of_any_number() -> None:
    state = state_of((), (), (), (1, 2, 3))
    state.states |= {1: "failed", 2: "success", 3: "success"}
    why = ReplanContext("user_feedback", 1, "", "Use other words")
    result = await make_replan("partial", why, state, PlanningContext("q", CONFIG, {}), None)
    assert list(result.kept) == [2, 3]
    assert result.plan is not None
    assert [step.step_id for step in result.plan.steps] == [2, 3, 4, 5]


async def test_full_without_model_expands_the_query() -> None:
    state = state_of((), (1,))
    state.states |= {1: "success", 2: "failed"}
    title = {"source": "a.md", "title": "Warranty"}
    state.results[1] = PlanStepResult(step_id=1, status="success", sources=[title])
    why, context = ReplanContext("timeout", 2), PlanningContext("How long?", CONFIG, {})
    result = await make_replan("full", why, state, context, None)
    assert result.plan is not None
    assert result.plan.steps[0].query == "How long? Warranty"
    assert result.plan.original_query == "How long?"
    said = replace(context, person_inputs=["of batteries"])
    result = await make_replan("full", why, state, said, None)
    assert result.plan is not None
    assert result.plan.steps[0].query == "How long? of batteries"


@pytest.mark.parametrize(
    "words",
    ["Start over: batteries", "Start from the beginning: batteries", "最初から、batteries"],
)
async def test_full_without_model_searches_no_punctuation(words: str) -> None:
    why = ReplanContext("user_feedback", 1, feedback=words)
    context = PlanningContext("How long?", CONFIG, {})
    result = await make_replan("full", why, state_of((), (1,)), context, None)
    assert result.plan is not None
    assert result.plan.steps[0].query == "How long? batteries"


async def test_full_without_model_is_no_new_plan() -> None:
    state = state_of((), (1,))
    why = ReplanContext("step_failed", 1)
    result = await make_replan("full", why, state, PlanningContext("q", CONFIG, {}), None)
    assert (result.strategy, result.plan) == ("abort", None)


def test_skip_drops_the_step_from_dependencies() -> None:
    result = skip_step(1, state_of((), (1,)))
    assert result.plan is not None
    assert [(s.step_id, s.depends_on) for s in result.plan.steps] == [(2, [])]


def test_only_the_last_planned_step_may_have_no_query() -> None:
    def plan(*queries: str | None) -> PlannedSteps:
        steps = [
            {"step_id": n, "action": "reasoning", "query": query, "collection": None,
             "depends_on": [], "fallback": None}
            for n, query in enumerate(queries, start=1)
        ]  # fmt: skip
        return PlannedSteps.model_validate({"complexity": 0, "steps": steps, "cited_bullets": []})

    assert len(plan("Which ship?", None).steps) == 2
    for queries in ((None, None), (" ", "Which ship?")):
        with pytest.raises(ValidationError, match="Step 1 has no `query`"):
            plan(*queries)
