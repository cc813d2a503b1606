"""The `match` of a ground truth: how it is stored, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient

from memory_api.traces.expected_results import MATCH_RULES, declared_match, with_match
from tests.support.api_calls import ndjson, new_trace, send_lines, trace
from tests.support.cases import each_case
from tests.support.problems import assert_problem


@each_case(
    ("ground_truth", "match", "stored"),
    [
        ("Paris", "exact", {"answer": "Paris", "match": "exact"}),
        (["a", "b"], "contains", {"answer": ["a", "b"], "match": "contains"}),
        ({"gold": "1.250,50 €"}, "number", {"gold": "1.250,50 €", "match": "number"}),
        ({"actions": ["add"]}, "calls", {"actions": ["add"], "match": "calls"}),
        ({"answer": "x", "match": "exact"}, "exact", {"answer": "x", "match": "exact"}),
        ({"answer": "x", "match": "exact"}, None, {"answer": "x", "match": "exact"}),
        ({"match": "home – away", "score": 3}, None, {"match": "home – away", "score": 3}),
        ("Paris", None, "Paris"),
        (None, None, None),
    ],
)
def test_match_is_stored_in_the_ground_truth(ground_truth: Any, match: Any, stored: Any) -> None:
    found = with_match(ground_truth, match)
    assert found == stored
    assert with_match(found, match) == stored
    assert match is None or declared_match(found) == match


@each_case(
    ("ground_truth", "match", "named"),
    [
        ("Paris", "number", ("'number'", "'Paris'")),
        (["3", "four"], "number", ("'number'", "'four'")),
        ("1 year", "number", ("'number'", "'1 year'", "unit")),
        ("007", "number", ("'number'", "'007'")),
        (None, "exact", ("'exact'", "None")),
        ({"actions": ["add"]}, "contains", ("'contains'", "actions")),
        ("Paris", "calls", ("'calls'", "Paris")),
        ({"actions": []}, "calls", ("'calls'", "actions")),
        ({"actions": [{"tool": "add"}]}, "calls", ("'calls'", "tool")),
        ({"answer": "x", "match": "fuzzy"}, None, ("fuzzy", *MATCH_RULES)),
        ({"answer": "x", "match": ["exact"]}, None, ("['exact']", *MATCH_RULES)),
        ({"answer": "x", "match": "exact"}, "contains", ("'exact'", "'contains'")),
    ],
)
def test_match_that_does_not_fit(ground_truth: Any, match: Any, named: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="`match`") as raised:
        with_match(ground_truth, match)
    assert all(name in str(raised.value) for name in named)


async def test_trace_with_a_declared_match(api: AsyncClient) -> None:
    trace_id = await new_trace(api, ground_truth="Paris", match="exact")
    back = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert back["ground_truth"] == {"answer": "Paris", "match": "exact"}


@each_case(
    ("fields", "field", "named"),
    [
        ({"ground_truth": "Paris", "match": "fuzzy"}, "match", MATCH_RULES),
        ({"ground_truth": "Paris", "match": "number"}, "match", ("'number'", "'Paris'")),
        ({"match": "exact"}, "match", ("'exact'", "None")),
        ({"ground_truth": {"answer": "x", "match": "y"}}, "ground_truth", MATCH_RULES),
    ],
)
async def test_invalid_match_is_422(
    api: AsyncClient, fields: dict[str, Any], field: str, named: tuple[str, ...]
) -> None:
    answer = await api.post("/api/v1/traces", json=trace(**fields))
    errors = assert_problem(answer, 422, "invalid")["errors"]
    assert [error["field"] for error in errors] == [field]
    assert all(name in str(errors) for name in named)


@each_case(
    ("fields", "named"),
    [
        ({"match": "fuzzy"}, MATCH_RULES),
        ({"match": "number"}, ("'number'", "'Paris'")),
        ({"ground_truth": "Rome", "match": "number"}, ("'number'", "'Rome'")),
    ],
)
async def test_invalid_match_of_an_outcome_is_422_and_changes_nothing(
    api: AsyncClient, fields: dict[str, Any], named: tuple[str, ...]
) -> None:
    """Also a match for the ground truth that the trace has already."""
    trace_id = await new_trace(api, ground_truth="Paris", outcome=None)
    answer = await api.post(
        f"/api/v1/traces/{trace_id}/outcome", json={"outcome": "success"} | fields
    )
    assert all(name in answer.text for name in named)
    assert_problem(answer, 422, "invalid")
    back = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert (back["outcome"], back["ground_truth"]) == (None, "Paris")


async def test_invalid_match_of_a_line_is_named_and_the_next_line_is_stored(
    api: AsyncClient,
) -> None:
    traces = [trace(ground_truth="Paris", match="number"), trace(ground_truth="4", match="number")]
    answer = (await send_lines(api, ndjson(traces))).json()
    assert (answer["stored_count"], answer["rejected_count"]) == (1, 1)
    error = answer["items"][0]["error"]
    assert error["code"] == "invalid"
    assert all(name in str(error) for name in ("'number'", "'Paris'"))
