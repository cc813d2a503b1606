"""Spec 5, "LLM Prompts": what a model is asked and shown, and how a prompt is overridden (S5.2,
S5.16, S5.17, S5.22, S5.23, S5.55)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apps.memory_api.core.prompts import load, render
from apps.memory_api.llm.structured import strict_schema
from apps.memory_api.reflection.evidence import Evidence
from apps.memory_api.reflection.findings.find import find
from apps.memory_api.reflection.mind import packaged
from apps.memory_api.reflection.prompt import BUILTIN, PROMPTS, compose
from apps.memory_api.reflection.response import LLMReflectionResponse
from apps.memory_api.reflection.schemas import ReflectionContext
from apps.memory_api.traces.schemas import OutcomeType

FAILURE = {OutcomeType.FAILURE, OutcomeType.ERROR, OutcomeType.TIMEOUT}
ASKED = {"reflection", "strategy", "importance", "confidence", "tags"}


def asked(run: dict[str, Any], outcome: OutcomeType) -> str:
    """All that a model is sent about a run."""
    context = ReflectionContext.model_validate(run | {"outcome": outcome.value})
    question = compose(
        packaged(PROMPTS[outcome]), context, Evidence(), find(context), budget=24_000
    )
    return "\n".join(message.content for message in question.messages)


def test_three_prompts_for_five_outcomes() -> None:
    assert set(PROMPTS) == set(OutcomeType)
    assert {PROMPTS[outcome] for outcome in FAILURE} == {"reflection_failure"}
    assert PROMPTS[OutcomeType.SUCCESS] == "reflection_success"
    assert PROMPTS[OutcomeType.PARTIAL] == "reflection_partial"
    texts = {packaged(name).text for name in PROMPTS.values()}
    assert len(texts) == 3
    assert BUILTIN not in texts, "the short form stands in for a prompt that is not installed"


@pytest.mark.parametrize("outcome", list(OutcomeType))
def test_a_prompt_shows_the_run(timeout_run: Any, outcome: OutcomeType) -> None:
    text = asked(timeout_run, outcome)
    for shown in (
        "Fetch customer order history",
        "Retrieve all orders for customer analysis",
        "[e1] tool_call: Called database query with complex JOIN",
        "[e2] error_event: Query timeout after 30 seconds",
        "QUERY_TIMEOUT",
        f"Outcome of the run: {outcome.value}",
    ):
        assert shown in text, shown


@pytest.mark.parametrize("outcome", sorted(FAILURE))
def test_a_failure_shows_category_message_and_context(
    timeout_run: Any, outcome: OutcomeType
) -> None:
    text = asked(timeout_run, outcome)
    assert "timeout_error" in text
    assert "Query execution exceeded 30s limit" in text
    assert "SELECT * FROM orders JOIN customers..." in text


@pytest.mark.parametrize("name", sorted(set(PROMPTS.values())))
def test_the_answer_that_is_asked_for(name: str) -> None:
    schema = strict_schema(LLMReflectionResponse)
    assert set(schema["properties"]) >= ASKED
    assert "{schema}" in packaged(name).text
    shown = render("{schema}", {"schema": json.dumps(schema)})
    assert json.loads(shown)["properties"].keys() >= ASKED


@pytest.mark.parametrize(
    ("name", "questions"),
    [
        ("reflection_failure", ("Root cause", "Explanation", "Lesson", "Strategy")),
        ("reflection_success", ("What worked", "Reusable", "Insight", "Strategy")),
        ("reflection_partial", ("`reflection`", "`strategy`")),
    ],
)
def test_what_is_asked(name: str, questions: tuple[str, ...]) -> None:
    text = packaged(name).text
    for question in (*questions, "`importance`", "`confidence`", "`tags`"):
        assert question in text, question


@pytest.mark.parametrize("name", ["reflection_failure", "reflection_success"])
def test_both_prompts_can_be_overridden(tmp_path: Path, timeout_run: Any, name: str) -> None:
    (tmp_path / f"{name}.txt").write_text("Answer in verse.\n{schema}\n{events}", encoding="utf-8")
    prompt = load(name, operator=tmp_path, builtin=BUILTIN)
    assert prompt.hash != packaged(name).hash
    context = ReflectionContext.model_validate(timeout_run)
    question = compose(prompt, context, Evidence(), find(context), budget=24_000)
    text = "\n".join(message.content for message in question.messages)
    assert "Answer in verse." in text
    assert "[e1] tool_call" in text
    assert "Root cause" not in text
