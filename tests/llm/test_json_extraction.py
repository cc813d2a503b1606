"""Reading JSON out of what models write (spec 4, REQ-REFL-008)."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_api.llm.structured_output import json_candidates, parse_json, repair_json
from tests.support.cases import each_case

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc{}`\"'", max_size=5), inner)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text("abcxyz", min_size=1, max_size=5), VALUES, max_size=5)
PROSE = st.text(alphabet="abc def.,:;!?\n'\"あ（）", max_size=40)


@each_case(
    ("text", "value"),
    [
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('Sure:\n```JSON\n{"a": 1}\n```\nDone.', {"a": 1}),
        ('```json {"a": 1}```', {"a": 1}),
        ('```\n{"a": 1}\n```', {"a": 1}),
        ('```{"a": 1}```', {"a": 1}),
        ('I think {"a": {"b": "}"}} is right.', {"a": {"b": "}"}}),
        ('the set {x, y} and then {"a": 1}', {"a": 1}),
        ('{"a": "a \\" { brace"} trailing }', {"a": 'a " { brace'}),
        ("  [1, 2]  ", [1, 2]),
        ("null", None),
        ('{"code": "```python\\nx = 1\\n```"}', {"code": "```python\nx = 1\n```"}),
        ('```python\nx = {"no": 1}\n```\n```json\n{"yes": 1}\n```', {"yes": 1}),
        ('```json\nnot json\n```\nbut {"a": 1}', {"a": 1}),
        ("{}", {}),
    ],
)
def test_json_is_found_in_text(text: str, value: Any) -> None:
    assert parse_json(text) == value


def test_candidates_are_tried_in_order() -> None:
    braces, bare, fenced = '{"from": "braces"}', '{"from": "bare"}', '{"from": "json"}'
    text = f"{braces}\n```\n{bare}\n```\n```json\n{fenced}\n```"
    assert parse_json(text) == {"from": "json"}
    assert parse_json(f"{braces}\n```\n{bare}\n```") == {"from": "bare"}
    assert parse_json(f"[{braces}]") == {"from": "braces"}
    assert [value["from"] for value in json_candidates(text)] == [
        "json",
        "bare",
        "braces",
        "bare",
        "json",
    ]


@each_case(
    "text",
    [
        "",
        "no json here",
        '{"a": 1',
        '{"analysis": "x", "tags": [{"name": "one"}, {"name": "tw',
        '{"a": NaN}',
        '{"a": Infinity}',
        "{'a': 1}",
        "```json\n```",
        '{"a": "unclosed}',
        "{" * 50,
    ],
)
def test_non_json_is_refused(text: str) -> None:
    """In particular the inside of a cut object is not taken for the answer."""
    with pytest.raises(ValueError, match="no JSON"):
        parse_json(text)


def test_deep_nesting_is_refused_without_crash() -> None:
    with pytest.raises(ValueError, match="no JSON"):
        parse_json('{"a":' * 200_000 + "1" + "}" * 200_000)
    assert repair_json('{"a":' * 200_000) is None


def test_megabyte_of_braces_is_processed() -> None:
    with pytest.raises(ValueError, match="no JSON"):
        parse_json('{"' * 500_000)
    with pytest.raises(ValueError, match="no JSON"):
        parse_json('{ "' + "\\" * 1_000_000)


def test_unstorable_characters_are_replaced() -> None:
    assert parse_json('{"a\\u0000": ["\\ud800x"]}') == {"a\ufffd": ["\ufffdx"]}


@given(value=OBJECTS, before=PROSE, after=PROSE)
def test_property_an_object_in_prose_is_found(
    value: dict[str, Any], before: str, after: str
) -> None:
    assert parse_json(f"{before}{json.dumps(value)}{after}") == value


@given(value=OBJECTS, before=PROSE, after=PROSE, indent=st.sampled_from([None, 2]))
def test_property_a_fenced_object_is_found(
    value: dict[str, Any], before: str, after: str, indent: int | None
) -> None:
    body = json.dumps(value, ensure_ascii=False, indent=indent)
    for label in ("json", ""):
        assert parse_json(f"{before}\n```{label}\n{body}\n```\n{after}") == value


@given(value=OBJECTS, cut=st.integers(min_value=1))
def test_property_truncated_object_is_refused(value: dict[str, Any], cut: int) -> None:
    text = json.dumps(value)
    with pytest.raises(ValueError, match="no JSON"):
        parse_json(text[: cut % len(text)])


@given(st.text())
def test_property_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_json(text)
    repair_json(text)


def test_damaged_json_is_repaired() -> None:
    assert repair_json("""{"a": 'one', "b": [1, 2,], }""") == {"a": "one", "b": [1, 2]}
    assert repair_json('{a: 1, b: "two"}') == {"a": 1, "b": "two"}
    assert repair_json('{"a": "he said "no" and left", "b": 1}') is not None
    assert repair_json('{"a": "one", "b": "tw') is None
    assert repair_json('```json\n{"a": [{"b": 1}, {"c"') is None
    assert repair_json("prose only") is None
    assert repair_json("{x, y}") is None
