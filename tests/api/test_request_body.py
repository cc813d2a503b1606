"""What is not good JSON: a 4xx that names the place, on every route that takes a body, and nothing
is stored."""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from httpx2 import AsyncClient
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.core.errors import InvalidRequest
from memory_api.core.json_input import MalformedJson, parse_json
from tests.support.api_calls import count, event, new_memory, new_trace, send_raw, trace
from tests.support.problems import assert_names, assert_problem

ROUTES = (
    "/api/v1/keys",
    "/api/v1/memories",
    "/api/v1/reflections",
    "/api/v1/reflections/generate",
    "/api/v1/reflections/query",
    "/api/v1/search",
    "/api/v1/traces",
    "/api/v1/trajectories/reflect",
    "/api/v1/transcripts/reflect",
)

MALFORMED = {
    "open brace": b"{",
    "trailing comma": b'{"events": [],}',
    "two values": b"{} {}",
    "single quotes": b"{'events': []}",
    "not UTF-8": b'{"query_text": "\xff\xfe"}',
    "UTF-16 without a mark, cut": '{"query_text": "x"}'.encode("utf-16-le")[:-1],
    "bare word": b"undefined",
    "control character": b'{"query_text": "a\nb"}',
    "a number of 5,000 digits": b'{"k": ' + b"9" * 5000 + b"}",
    "spaces": b"   ",
}


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_is_400(api: AsyncClient, path: str, raw: bytes) -> None:
    assert_problem(await send_raw(api, path, raw), 400, "malformed_json")


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b'"text"', b"17", b"true", b"[{}]"])
async def test_not_an_object_is_422(api: AsyncClient, path: str, raw: bytes) -> None:
    assert_names(await send_raw(api, path, raw), "body")


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "headers", [{}, {"Content-Type": "text/plain"}, {"Content-Type": "application/xml; a=b"}]
)
async def test_another_content_type_is_415(api, path: str, headers: dict[str, str]) -> None:
    answer = await api.post(path, content=b'{"query_text": "x"}', headers=headers)
    assert_problem(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "kind", ["application/json", "APPLICATION/JSON; charset=utf-8", "application/vnd.x+json"]
)
async def test_every_json_encoding_is_read(api: AsyncClient, kind: str) -> None:
    answer = await api.post(
        "/api/v1/search", content=b'{"query_text": "x"}', headers={"Content-Type": kind}
    )
    assert answer.status_code == 200


def nested(levels: int) -> Any:
    """A value with so many brackets around a number."""
    value: Any = 1
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


async def test_nesting_of_64_levels_is_stored_and_returned(api: AsyncClient) -> None:
    metadata = {"deep": nested(62)}
    trace_id = await new_trace(api, metadata=metadata)
    answer = await api.get(f"/api/v1/traces/{trace_id}")
    assert answer.json()["metadata"] == metadata


async def test_nesting_of_65_levels_is_refused_by_field(api, tenant, runtime) -> None:
    before = await count(runtime, tenant.id)
    answer = await api.post("/api/v1/traces", json=trace(metadata={"deep": nested(63)}))
    body = assert_problem(answer, 422, "invalid")
    assert body["errors"][0]["field"].startswith("metadata.deep.0")
    assert await count(runtime, tenant.id) == before


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "raw", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000]
)
async def test_hundred_thousand_brackets(api: AsyncClient, path: str, raw: bytes) -> None:
    assert (await send_raw(api, path, raw)).status_code in (400, 422)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/api/v1/memories", '{"content": "x", "importance": %s}', "importance"),
        ("/api/v1/memories", '{"content": "x", "metadata": {"a": [1, %s]}}', "metadata.a.1"),
        ("/api/v1/reflections", '{"reflection_text": "x", "confidence": %s}', "confidence"),
        ("/api/v1/reflections/query", '{"min_importance": %s}', "min_importance"),
        ("/api/v1/search", '{"query_text": "x", "alpha": %s}', "alpha"),
        (
            "/api/v1/traces",
            '{"events": [{"event_type": "tool_call", "metadata": {"t": %s}}]}',
            "events.0.metadata.t",
        ),
    ],
)
async def test_non_finite_number_is_reported_by_field(
    api, path: str, body: str, field: str, number
) -> None:
    assert_names(await send_raw(api, path, (body % number).encode()), field)


@pytest.mark.parametrize(
    "number", ["1" + "0" * 400, "-" + "9" * 4000, "1e308", "5e-324", "1e-999", "0.1", "-0.0"]
)
async def test_finite_numbers_of_any_size_are_kept(api: AsyncClient, number: str) -> None:
    raw = '{"content": "x", "metadata": {"n": ' + number + "}}"
    answer = await send_raw(api, "/api/v1/memories", raw.encode())
    assert answer.status_code == 201, answer.text
    back = await api.get(answer.headers["location"])
    assert Decimal(repr(back.json()["metadata"]["n"])) == Decimal(repr(json.loads(number)))


async def test_unknown_field_is_refused_by_name(api: AsyncClient) -> None:
    answer = await api.post("/api/v1/search", json={"query_text": "x", "topk": 3})
    assert_names(answer, "topk")


async def test_huge_unknown_field_is_not_echoed_in_full(api: AsyncClient) -> None:
    body = {"query_text": "x"} | {"k" * 10_000 + str(n): 1 for n in range(100)}
    answer = await api.post("/api/v1/search", json=body)
    assert len(assert_problem(answer, 422)["errors"]) == 20


async def test_twenty_thousand_bad_events_answer_twenty_errors(api: AsyncClient) -> None:
    events = [{"event_type": "nonsense"}] * 20_000
    answer = await api.post("/api/v1/traces", json={"events": events})
    body = assert_names(answer, "events.0.event_type")
    assert len(body["errors"]) == 20


@pytest.mark.parametrize("name", ["query", "project_id", "task_key", "tag"])
@pytest.mark.parametrize("path", ["/api/v1/traces", "/api/v1/memories", "/api/v1/runs"])
async def test_nul_in_a_query_is_422(api: AsyncClient, path: str, name: str) -> None:
    assert_names(await api.get(f"{path}?{name}=a%00b"), name)


@pytest.mark.parametrize("value", ["%FF", "%ED%A0%80", "%", "%F4%90%80%80", "a" * 129])
async def test_invalid_bytes_in_query_cause_no_5xx(api: AsyncClient, value: str) -> None:
    answer = await api.get(f"/api/v1/traces?task_key={value}")
    assert answer.status_code in (200, 422)


async def test_nul_and_lone_surrogates_are_sanitized_and_reported(api: AsyncClient) -> None:
    raw = (
        rb'{"content": "a\u0000b \ud800 \udc00\ud800", "tags": ["x\u0000"],'
        rb' "metadata": {"k\u0000": "\ud83d\ude00", "k\ufffd": 2, "l": ["\udfff"]}}'
    )
    answer = await send_raw(api, "/api/v1/memories", raw)
    assert answer.status_code == 201, answer.text
    body = answer.json()
    assert body["sanitized"] is True
    assert body["content"] == "a\ufffdb \ufffd \ufffd\ufffd"
    assert body["tags"] == ["x\ufffd"]
    assert sorted(body["metadata"].values(), key=str) == [2, ["\ufffd"], "😀"]


def test_surrogate_in_utf8_bytes_is_sanitized() -> None:
    assert parse_json(b'"\xed\xa0\x80x"') == ("\ufffdx", True)


async def test_every_writing_route_reports_sanitized(api: AsyncClient) -> None:
    open_id = await new_trace(api, state="open", outcome=None)
    memory_id = await new_memory(api, "to be changed")
    bodies: dict[str, Any] = {
        "POST /api/v1/memories": {"content": "a\0"},
        f"PATCH /api/v1/memories/{memory_id}": {"content": "b\0"},
        "POST /api/v1/reflections": {"reflection_text": "c\0"},
        "POST /api/v1/reflections/generate": trace(task_goal="d\0"),
        "POST /api/v1/traces": trace(task_goal="e\0"),
        "POST /api/v1/trajectories/reflect": {
            "trajectory": {"query": "q\0", "generated_answer": "a"}
        },
        "POST /api/v1/transcripts/reflect": {"messages": [{"role": "user", "content": "m\0"}]},
        f"POST /api/v1/traces/{open_id}/events": {"events": [event("f\0")]},
        f"POST /api/v1/traces/{open_id}/outcome": {"outcome": "failure", "test_report": "g\0"},
        f"POST /api/v1/traces/{open_id}/close": {"error": {"message": "h\0"}},
    }
    for route, body in bodies.items():
        method, path = route.split()
        answer = await api.request(method, path, json=body)
        assert answer.is_success, (route, answer.text)
        assert answer.json()["sanitized"] is True, route


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(json_values)
@settings(max_examples=100)
def test_valid_json_is_unchanged(value: Any) -> None:
    parsed = parse_json(json.dumps(value).encode())
    if "\0" in json.dumps(value).encode().decode("unicode_escape"):
        return
    assert parsed.value == value
    assert parsed.sanitized is False


@given(st.recursive(st.text(st.characters(codec=None, categories=("Cs", "Cc", "Lu"))),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
                    max_leaves=10))  # fmt: skip
@settings(max_examples=100)
def test_sanitized_json_can_be_stored(value: Any) -> None:
    parsed = parse_json(json.dumps(value).encode())
    text = json.dumps(parsed.value, ensure_ascii=False)
    text.encode()  # no lone surrogate is left
    assert "\\u0000" not in text


@given(st.binary(max_size=200))
@settings(max_examples=100)
def test_any_bytes_are_parsed_or_refused(raw: bytes) -> None:
    with suppress(MalformedJson, InvalidRequest):
        parse_json(raw)
