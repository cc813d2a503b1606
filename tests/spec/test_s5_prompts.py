"""Spec 5, "LLM Prompts": what a model is asked and shown, and how a prompt is overridden (S5.2,
S5.16, S5.17, S5.22, S5.23, S5.55)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory_api.llm.prompts import load_prompt
from memory_api.llm.structured_output import strict_schema
from memory_api.reflection.evidence import Evidence
from memory_api.reflection.model_output import ModelReflection
from memory_api.reflection.prompt import PROMPT_BY_OUTCOME, build_messages
from memory_api.trace_analysis.analyze import ReflectionContext, analyze_trace
from memory_api.traces.schemas import OutcomeType

FAILURE = {OutcomeType.FAILURE, OutcomeType.ERROR, OutcomeType.TIMEOUT}
ASKED = {"root_cause", "explanation", "rules", "importance", "confidence", "tags"}
"""`root_cause` and `explanation` are the document's `reflection`, `rules` its `strategy`."""


def asked(run: dict[str, Any], outcome: OutcomeType) -> str:
    """All that a model is sent about a run."""
    context = ReflectionContext.model_validate(run | {"outcome": outcome.value})
    question = build_messages(
        load_prompt(PROMPT_BY_OUTCOME[outcome]),
        context,
        Evidence(),
        analyze_trace(context),
        budget=24_000,
    )
    return "\n".join(message.content for message in question.messages)


def test_three_prompts_cover_five_outcomes() -> None:
    assert set(PROMPT_BY_OUTCOME) == set(OutcomeType)
    assert {PROMPT_BY_OUTCOME[outcome] for outcome in FAILURE} == {"reflection/failure"}
    assert PROMPT_BY_OUTCOME[OutcomeType.SUCCESS] == "reflection/success"
    assert PROMPT_BY_OUTCOME[OutcomeType.PARTIAL] == "reflection/partial"
    texts = {load_prompt(name).text for name in PROMPT_BY_OUTCOME.values()}
    assert len(texts) == 3


@pytest.mark.parametrize("outcome", list(OutcomeType))
def test_prompt_shows_the_run(timeout_run: Any, outcome: OutcomeType) -> None:
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
def test_failure_shows_category_message_and_context(timeout_run: Any, outcome: OutcomeType) -> None:
    text = asked(timeout_run, outcome)
    assert "timeout_error" in text
    assert "Query execution exceeded 30s limit" in text
    assert "SELECT * FROM orders JOIN customers..." in text


@pytest.mark.parametrize("name", sorted(set(PROMPT_BY_OUTCOME.values())))
def test_requested_answer_fields(name: str) -> None:
    assert set(strict_schema(ModelReflection)["properties"]) >= ASKED
    text = load_prompt(name).text
    for field in ASKED:
        assert f"- `{field}` (" in text, field
    assert "{schema}" not in text, "the schema is part of the request, not of the text"


@pytest.mark.parametrize(
    ("name", "questions"),
    [
        ("reflection/failure", ("Root cause", "Explanation", "Lesson", "Strategy")),
        ("reflection/success", ("What worked", "Reusable", "Insight", "Strategy")),
        ("reflection/partial", ("requested", "done", "Strategy")),
    ],
)
def test_prompt_questions(name: str, questions: tuple[str, ...]) -> None:
    text = load_prompt(name).text
    for question in (*questions, "`importance`", "`confidence`", "`tags`"):
        assert question in text, question


@pytest.mark.parametrize("name", ["reflection/failure", "reflection/success"])
def test_both_prompts_can_be_overridden(tmp_path: Path, timeout_run: Any, name: str) -> None:
    (tmp_path / "reflection").mkdir()
    (tmp_path / f"{name}.txt").write_text("Answer in verse.\n{schema}\n{events}", encoding="utf-8")
    prompt = load_prompt(name, operator_dir=tmp_path)
    assert prompt.hash != load_prompt(name).hash
    context = ReflectionContext.model_validate(timeout_run)
    question = build_messages(prompt, context, Evidence(), analyze_trace(context), budget=24_000)
    text = "\n".join(message.content for message in question.messages)
    assert "Answer in verse." in text
    assert "[e1] tool_call" in text
    assert "Root cause" not in text
