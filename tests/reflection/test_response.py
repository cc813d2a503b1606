"""A model's answer is read leniently, and never comes out of its bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from apps.memory_api.llm.structured import strict_schema
from apps.memory_api.reflection.response import LLMReflectionResponse, as_unit

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (0.3, 0.3),
        (85, 1.0),
        (-2, 0.0),
        ("0.7", 0.7),
        ("about 80 %", 0.8),
        ("1", 1.0),
        ("100", 1.0),
        ("101", 0.5),
        ("-3", 0.5),
        ("high", 0.5),
        ("", 0.5),
        (None, 0.5),
        (True, 0.5),
        (float("nan"), 0.5),
        (float("inf"), 1.0),
        ([0.9], 0.5),
        ("9" * 400, 0.5),
    ],
)
def test_scores(said: Any, read: float) -> None:
    assert as_unit(said) == pytest.approx(read)


@pytest.mark.parametrize(
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
    assert LLMReflectionResponse(reflection="x", tags=said).tags == read


@pytest.mark.parametrize("said", ["", " ", "null", "None", "N/A", None])
def test_no_strategy(said: Any) -> None:
    assert LLMReflectionResponse(reflection="x", strategy=said).strategy is None


def test_left_out_fields_have_defaults() -> None:
    read = LLMReflectionResponse.model_validate({"reflection": " what happened "})
    assert read.reflection == "what happened"
    assert (read.strategy, read.importance, read.confidence, read.tags) == (None, 0.5, 0.5, [])


@pytest.mark.parametrize("said", [{}, {"reflection": ""}, {"reflection": " "}, {"reflection": 3}])
def test_without_a_reflection_it_is_no_answer(said: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LLMReflectionResponse.model_validate(said)


@given(JSON, JSON, JSON)
def test_whatever_a_model_writes_stays_in_bounds(score: Any, tags: Any, sources: Any) -> None:
    read = LLMReflectionResponse.model_validate(
        {
            "reflection": "x",
            "importance": score,
            "confidence": score,
            "tags": tags,
            "source_event_ids": sources,
        }
    )
    assert 0 <= read.importance <= 1
    assert 0 <= read.confidence <= 1
    assert len(read.tags) <= 10
    assert all(0 < len(tag) <= 64 for tag in read.tags)


def test_the_schema_is_one_both_vendors_take() -> None:
    schema = strict_schema(LLMReflectionResponse)
    assert set(schema["required"]) == set(LLMReflectionResponse.model_fields)
    assert "default" not in json.dumps(schema)
