"""Spec 1's properties."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from memory_api.library.playbook_store import PlaybookStore
from memory_api.library.reflector_agent import ReflectorAgent
from memory_api.library.reflector_prompt import ReflectorPromptBuilder
from memory_api.playbooks.models import Bullet
from memory_api.reflection.trajectories.schemas import (
    BulletEvaluation,
    Insight,
    Trajectory,
    TrajectoryResult,
)
from memory_api.text.terms import estimate_tokens

EXAMPLES = settings(max_examples=100, deadline=None)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
SOME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)
BRACED = st.one_of(
    SOME, st.sampled_from(["{", "}}", "{x}", "{0}", "{{a}}", '{"k": {"l": 1}}', "%s"])
)
INSIGHTS = st.builds(
    Insight,
    reasoning=TEXT,
    error_identification=TEXT,
    root_cause_analysis=TEXT,
    correct_approach=TEXT,
    key_insight=TEXT,
)
VERDICTS = st.builds(
    BulletEvaluation,
    bullet_id=TEXT,
    tag=st.sampled_from(["helpful", "harmful", "neutral"]),
    reason=TEXT,
)
RESULTS = st.builds(
    TrajectoryResult,
    insights=st.lists(INSIGHTS, max_size=4),
    bullet_evaluations=st.lists(VERDICTS, max_size=4),
    trajectory_query=TEXT,
    trajectory_dataset=TEXT,
    iteration_count=st.integers(0, 100),
)
NOT_TEXT = st.one_of(st.integers(), st.floats(), st.none(), st.lists(st.text()), st.booleans())


# Feature: reflector-agent, Property 1: a ReflectionResult with all that is nested in it survives
# JSON dump and load unchanged.
@EXAMPLES
@given(RESULTS)
def test_property_1_a_result_survives_json(result: TrajectoryResult) -> None:
    assert TrajectoryResult.model_validate_json(result.model_dump_json()) == result


# Feature: reflector-agent, Property 2: a value of a wrong type or a tag that is none raises a
# ValidationError, in every field of each model.
@EXAMPLES
@given(st.sampled_from(sorted(Insight.model_fields)), NOT_TEXT)
def test_property_2_insight_fields_are_text(field: str, wrong: Any) -> None:
    good = dict.fromkeys(Insight.model_fields, "x")
    assert Insight.model_validate(good)
    with pytest.raises(ValidationError):
        Insight.model_validate(good | {field: wrong})


@EXAMPLES
@given(TEXT.filter(lambda text: text not in ("helpful", "harmful", "neutral")), NOT_TEXT)
def test_property_2_a_tag_is_one_of_three(tag: str, wrong: Any) -> None:
    good: dict[str, Any] = {"bullet_id": "pat-00001", "tag": "helpful", "reason": "r"}
    assert BulletEvaluation.model_validate(good)
    for bad in ({"tag": tag}, {"tag": wrong}, {"bullet_id": wrong}, {"reason": wrong}):
        with pytest.raises(ValidationError):
            BulletEvaluation.model_validate(good | bad)


@EXAMPLES
@given(
    RESULTS, st.one_of(st.text(), st.none(), st.floats(), st.booleans(), st.integers(max_value=-1))
)
def test_property_2_result_has_its_types(result: TrajectoryResult, wrong: Any) -> None:
    good = result.model_dump()
    for bad in (
        {"iteration_count": wrong},
        {"insights": wrong},
        {"bullet_evaluations": [wrong]},
        {"trajectory_query": 1},
        {"trajectory_dataset": 1},
    ):
        with pytest.raises(ValidationError):
            TrajectoryResult.model_validate(good | bad)


# Feature: reflector-agent, Property 3: the prompt holds the generated answer, the right answer, the
# test report and the content of every bullet, whatever stands in them.
@EXAMPLES
@given(BRACED, BRACED, BRACED, st.lists(BRACED, max_size=5), st.lists(BRACED, max_size=3))
def test_property_3_prompt_contains_its_inputs(
    answer: str, truth: str, report: str, contents: list[str], steps: list[str]
) -> None:
    bullets = [
        Bullet(id=f"pat-{n:05d}", section="s", content=content)
        for n, content in enumerate(contents, start=1)
    ]
    trajectory = Trajectory(query="q", generated_answer=answer, reasoning_steps=steps)
    prompt = ReflectorPromptBuilder().build(trajectory, truth, report, bullets, "any")
    for text in (answer, truth, report, *contents, *steps):
        assert text in prompt
    for bullet in bullets:
        one = ReflectorPromptBuilder().build_evaluation_prompt(trajectory, truth, bullet)
        assert answer in one
        assert truth in one
        assert bullet.content in one


LONG = st.builds(
    lambda line, count: "\n".join(f"{number} {line}" for number in range(count)),
    st.text(st.characters(categories=["L", "Zs"]), min_size=5, max_size=60),
    st.integers(400, 900),
)


@EXAMPLES
@given(LONG, LONG, LONG, st.lists(LONG, min_size=1, max_size=2))
def test_property_3_inputs_above_the_budget_are_shortened(
    answer: str, truth: str, report: str, contents: list[str]
) -> None:
    """Every input keeps its beginning and its end, and a mark shows what was left out."""
    bullets = [
        Bullet(id=f"pat-{n:05d}", section="s", content=content)
        for n, content in enumerate(contents, start=1)
    ]
    trajectory = Trajectory(query="q", generated_answer=answer)
    builder, unlimited = ReflectorPromptBuilder(budget=2_000), ReflectorPromptBuilder(budget=10**9)
    prompt = builder.build(trajectory, truth, report, bullets, "any")
    complete = unlimited.build(trajectory, truth, report, bullets, "any")
    for text in (answer, truth, report):
        lines = text.splitlines()
        assert lines[0] in prompt
        assert lines[-1] in prompt
        assert text in complete
    assert all(f"[{bullet.id}]" in complete for bullet in bullets)
    assert "omitted" in prompt
    empty = builder.build(Trajectory(query="q", generated_answer="a"), "b", "c", [], "any")
    assert estimate_tokens(prompt) - estimate_tokens(empty) <= 2_000 * 1.1


# Feature: reflector-agent, Property 4: insights written as JSON are read back equal, alone or in an
# answer, bare or in a fence.
@EXAMPLES
@given(st.lists(INSIGHTS, max_size=5))
def test_property_4_insights_are_parsed_back(insights: list[Insight]) -> None:
    agent = ReflectorAgent(None, ReflectorPromptBuilder(), PlaybookStore())
    dumped = [insight.model_dump() for insight in insights]
    for value in (dumped, {"insights": dumped}):
        text = json.dumps(value, ensure_ascii=False)
        assert agent._extract_insights(text) == insights
    # What no database stores is replaced on the way out of a fence, and a fence ends at a fence.
    fenced = json.dumps({"insights": dumped}, indent=1).replace("`", "\\u0060")
    if "\\u0000" not in fenced:
        assert agent._extract_insights(f"This is it:\n```json\n{fenced}\n```") == insights
