"""A model's answer is read leniently, and never comes out of its bounds."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from memory_api.llm.structured_output import json_schema_of, strict_schema
from memory_api.reflection.model_output import (
    MAX_RULES,
    ModelReflection,
    ReflectionRule,
    reflection_class,
)
from memory_api.reflection.schemas import CauseKind
from memory_api.traces.schemas import OutcomeType
from tests.support.cases import each_case

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@each_case(("said", "read"), [(0, 0), (0.3, 0.3), (1, 1), ("0.7", 0.7), (" 1 ", 1)])
@each_case("name", ["importance", "confidence"])
def test_scores(name: str, said: Any, read: float) -> None:
    answer = ModelReflection.model_validate({"explanation": "x", name: said})
    assert getattr(answer, name) == pytest.approx(read)


@each_case(
    "said", [85, -0.1, 1.01, "80 %", "high", "", None, True, float("nan"), float("inf"), [0.9]]
)
@each_case("name", ["importance", "confidence"])
def test_score_that_is_no_number_from_0_to_1_is_invalid(name: str, said: Any) -> None:
    with pytest.raises(ValidationError):
        ModelReflection.model_validate({"explanation": "x", name: said})


@each_case(
    ("said", "read"),
    [
        (["a", " b ", "a", ""], ["a", "b"]),
        ("['x', 'y z']", ["x", "y z"]),
        ("one, two,three", ["one", "two", "three"]),
        ("検索、頁", ["検索", "頁"]),
        ("[broken, list", ["broken", "list"]),
        ("#tag", ["tag"]),
        ([1, None, {"a": 1}], ["1"]),
        (None, []),
        (7, []),
    ],
)
def test_tags(said: Any, read: list[str]) -> None:
    assert ModelReflection(explanation="x", tags=said).tags == read


@each_case("said", ["", " ", "null", "None", "N/A", None, [], [{"do": "none"}]])
def test_no_rule(said: Any) -> None:
    assert ModelReflection.model_validate({"explanation": "x", "rules": said or []}).rules == []
    if said is None or isinstance(said, str):
        assert ModelReflection.model_validate({"reflection": "x", "strategy": said}).rules == []
        assert (
            ModelReflection.model_validate({"explanation": "x", "task_hint": said}).task_hint
            is None
        )


def test_missing_fields_have_defaults() -> None:
    read = ModelReflection.model_validate({"explanation": " what happened "})
    assert read.reflection == "what happened"
    assert (read.rules, read.importance, read.confidence, read.tags) == ([], 0.5, 0.5, [])
    assert (read.cause_kind, read.task_hint, read.same_as) == ("unknown", None, [])


def test_fields_of_spec_5_are_accepted() -> None:
    """An operator's template may ask for `reflection` and `strategy`."""
    read = ModelReflection.model_validate({"reflection": "It broke.", "strategy": "Mend it first."})
    assert (read.reflection, read.rules[0].to_sentence()) == ("It broke.", "Mend it first.")


def test_root_cause_and_explanation_are_one_text() -> None:
    read = ModelReflection(root_cause="It was late.", explanation="So it failed.")
    assert read.reflection == "It was late. So it failed."


@each_case(
    ("when", "do", "text"),
    [
        ("fetch times out", "Ask for pages.", "When fetch times out, ask for pages."),
        ("Before paying,", "read the total back", "Before paying, read the total back."),
        ("", "Read the total back.", "Read the total back."),
        ("If X fails", "SQL is next", "If X fails, SQL is next."),
        (
            "fetchが失敗したとき",
            "ページごとに取得する。",
            "fetchが失敗したとき、ページごとに取得する。",
        ),
    ],
)
def test_rule_is_one_sentence(when: str, do: str, text: str) -> None:
    assert ReflectionRule(when=when, do=do).to_sentence() == text


def test_name_of_a_tool_keeps_its_case() -> None:
    rule = ReflectionRule(when="a page is missing", do="Search the matching title.")
    assert rule.to_sentence({"Search"}) == "When a page is missing, Search the matching title."


def test_a_fourth_rule_is_dropped() -> None:
    rules = [{"when": "a", "do": str(number)} for number in range(5)]
    assert (
        len(ModelReflection.model_validate({"explanation": "x", "rules": rules}).rules) == MAX_RULES
    )


def test_unknown_cause_is_invalid() -> None:
    with pytest.raises(ValidationError):
        ModelReflection.model_validate({"explanation": "x", "cause_kind": "the weather"})


@each_case(
    "said", [{}, {"explanation": ""}, {"reflection": " "}, {"reflection": 3}, {"root_cause": " "}]
)
def test_answer_without_text_is_invalid(said: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ModelReflection.model_validate(said)


@given(JSON, JSON, JSON)
def test_any_valid_answer_is_in_bounds(score: Any, tags: Any, sources: Any) -> None:
    said = {"explanation": "x", "importance": score, "tags": tags, "source_event_ids": sources}
    try:
        read = ModelReflection.model_validate(said)
    except ValidationError:
        return
    assert 0 <= read.importance <= 1
    assert len(read.tags) <= 10
    assert all(0 < len(tag) <= 64 for tag in read.tags)


def test_schema_is_accepted_by_both_vendors() -> None:
    schema = strict_schema(ModelReflection)
    assert set(schema["required"]) == set(ModelReflection.model_fields)
    assert "default" not in json.dumps(schema)


def test_fields_without_meaning_are_not_asked_for() -> None:
    schema = json_schema_of(ModelReflection, frozenset({"verdicts", "same_as"})).schema
    assert not {"verdicts", "same_as"} & {*schema["properties"], *schema["required"]}
    assert {"root_cause", "rules", "cause_kind"} <= set(schema["properties"])
    assert "ModelVerdict" not in schema["$defs"]
    assert {*json_schema_of(ModelReflection).schema["$defs"]} == {"ModelVerdict", "ReflectionRule"}


@pytest.mark.parametrize(
    ("outcome", "impossible"),
    [
        ("failure", {"agent_decision", "succeeded_by_luck"}),
        ("success", {"agent_mistake"}),
    ],
)
def test_schema_offers_the_causes_of_the_outcome(outcome: str, impossible: set[str]) -> None:
    schema = json_schema_of(reflection_class(OutcomeType(outcome))).schema["properties"]
    kinds = set(schema["cause_kind"]["enum"])
    assert not kinds & impossible
    assert kinds | impossible == set(get_args(CauseKind))
    assert not impossible & set(re.findall(r"\w+", str(schema["second_cause_kind"])))


@each_case(
    ("first", "second", "may"),
    [
        ("expected_result_conflicts_with_policy", None, False),
        ("expected_result_conflicts_with_policy", "outside_agent_control", False),
        ("expected_result_conflicts_with_policy", "agent_mistake", True),
        ("agent_mistake", "outside_agent_control", True),
        ("succeeded_by_luck", None, True),
    ],
)
def test_rules_follow_from_one_of_two_causes(first: str, second: str | None, may: bool) -> None:
    read = ModelReflection.model_validate(
        {"root_cause": "It paid too early.", "cause_kind": first, "second_cause_kind": second}
    )
    assert read.may_have_rules is may


@pytest.mark.parametrize("rules", [5, {"when": 5}, [{"when": "x"}]])
def test_malformed_rules_cost_no_verdict(rules: Any) -> None:
    verdict = {"key": "pat-00001", "tag": "helpful", "reason": "It worked."}
    answer = {"explanation": "x", "rules": rules, "verdicts": verdict}
    read = ModelReflection.model_validate(answer)
    assert (read.rules, [each.key for each in read.verdicts]) == ([], ["pat-00001"])
