"""Values of two bytes: a body of 31 MB with 10 million of them took 2 GB, or 18 GB of errors."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic import ValidationError

from memory_api.core import isolated_work, json_input
from memory_api.core.errors import PayloadTooLarge
from memory_api.core.isolated_work import ISOLATION
from memory_api.core.json_input import MAX_NAMES, MAX_VALUES, have_too_many_values
from memory_api.playbooks.formats import transfer
from memory_api.playbooks.models import Playbook
from memory_api.traces.importers.formats import convert_session
from memory_api.traces.otlp.decoding import JSON, MAX_FIELDS, PROTOBUF, decode_request
from memory_api.traces.redaction import MAX_SEARCHED_INLINE, redact_trace_isolated
from memory_api.traces.schemas import CreateTraceRequest
from tests.support.api_calls import event, send_raw, trace
from tests.support.cases import each_case
from tests.support.problems import assert_problem

json_values = st.recursive(
    st.none() | st.integers() | st.text(alphabet=',[{}]"\\:あa', max_size=4),
    lambda nested: (
        st.lists(nested, max_size=4)
        | st.dictionaries(st.text(alphabet=',[{"\\', max_size=3), nested, max_size=4)
    ),
    max_leaves=30,
)


def count_signs(value: Any) -> int:
    """Containers, and commas between their items."""
    if not isinstance(value, list | dict):
        return 0
    items = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(0, len(items) - 1) + sum(map(count_signs, items))


def many(field: str, value: str = "{}") -> bytes:
    return f'{{"outcome": "success", "{field}": [{",".join([value] * MAX_VALUES)}]}}'.encode()


@given(value=json_values, escapes=st.booleans())
def test_values_are_counted_outside_of_strings(value: Any, escapes: bool) -> None:
    raw = json.dumps(value, ensure_ascii=escapes).encode()
    signs = count_signs(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_input, "MAX_VALUES", max(signs, 1))
        assert not have_too_many_values([raw])
        if signs > 1:
            patch.setattr(json_input, "MAX_VALUES", signs - 1)
            assert have_too_many_values([raw])


def most_names(value: Any) -> int:
    """The names of the object that has the most."""
    if not isinstance(value, list | dict):
        return 0
    items = list(value.values()) if isinstance(value, dict) else value
    own = len(value) if isinstance(value, dict) else 0
    return max([own, *map(most_names, items)])


@given(value=json_values, escapes=st.booleans())
def test_names_of_the_largest_object_are_counted(value: Any, escapes: bool) -> None:
    raw = json.dumps(value, ensure_ascii=escapes).encode()
    names = most_names(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_input, "MAX_NAMES", names)
        assert not have_too_many_values([raw])
        patch.setattr(json_input, "MAX_NAMES", names - 1)
        assert have_too_many_values([raw]) == (names > 0)


async def test_object_with_many_names_is_refused_before_it_is_parsed(
    api: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser would hold the interpreter, and so stop all requests, for a second."""
    parsed: list[bytes] = []
    parse = json_input.from_json

    def watched(raw: bytes, **options: Any) -> Any:
        parsed.append(raw)
        return parse(raw, **options)

    monkeypatch.setattr(json_input, "from_json", watched)
    for count, status in ((740_000, 413), (MAX_NAMES, 201)):
        metadata = {f"k{number}": 0 for number in range(count)}
        raw = json.dumps(trace(metadata=metadata)).encode()
        answer = await send_raw(api, "/api/v1/traces", raw)
        assert answer.status_code == status, answer.text[:500]
    assert len(parsed) == 1


def test_strings_without_values_are_counted_too() -> None:
    hidden = b'["' + b"," * MAX_VALUES + b'",' + b'""' * (3 * MAX_VALUES)
    assert have_too_many_values([hidden])


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/v1/traces", "events"),
        ("/api/v1/traces", "metadata"),
        ("/api/v1/traces?format=openai", "messages"),
        ("/api/v1/trajectories/reflect", "trajectory"),
        ("/api/v1/transcripts/reflect", "messages"),
        ("/api/v1/playbooks/p/deltas", "deltas"),
        ("/v1/traces", "resourceSpans"),
    ],
)
async def test_body_of_many_values_is_refused(api: AsyncClient, path: str, field: str) -> None:
    assert_problem(await send_raw(api, path, many(field)), 413, "too_large")


async def test_text_with_many_commas_is_no_list(api: AsyncClient) -> None:
    body = {"outcome": "success", "events": [event("1," * MAX_VALUES)]}
    answer = await api.post("/api/v1/traces?reflect=never", json=body)
    assert answer.status_code == 201, answer.text


async def test_line_of_many_values_is_refused(api: AsyncClient) -> None:
    headers = {"Content-Type": "application/x-ndjson"}
    answer = await api.post("/api/v1/traces", content=many("events", "0"), headers=headers)
    (item,) = answer.json()["items"]
    assert item["error"]["code"] == "too_large"


def test_lines_of_a_session_are_counted_together() -> None:
    line = b'{"a": [' + b"0," * (MAX_VALUES // 2) + b"0]}"
    with pytest.raises(PayloadTooLarge, match="values"):
        convert_session([(1, line), (2, b'"'), (3, line)], "codex")


def length_delimited(number: int, content: bytes) -> bytes:
    size, rest = b"", len(content)
    while rest > 127:
        size, rest = size + bytes([rest & 127 | 128]), rest >> 7
    return bytes([number << 3 | 2]) + size + bytes([rest]) + content


def spans_of(raw: bytes) -> bytes:
    """A request whose list of spans is this."""
    return length_delimited(1, length_delimited(2, raw))


@each_case(
    "raw",
    {
        "empty spans": spans_of(b"\x12\x00" * MAX_FIELDS),
        "empty resources": b"\x0a\x00" * (MAX_FIELDS + 1),
        "long numbers": spans_of(b"\x92\x00\x80\x00" * MAX_FIELDS),
        "after a group": spans_of(b"\x0b\x0c" + b"\x12\x00" * MAX_FIELDS),
        "before damage": spans_of(b"\x12\x00" * MAX_FIELDS + b"\xff"),
        "numbers": spans_of(length_delimited(2, b"\x30\x00" * MAX_FIELDS)),
        "attributes": spans_of(length_delimited(2, b"\x4a\x00" * MAX_FIELDS)),
    }.values(),
)
def test_export_of_many_spans_is_refused(raw: bytes) -> None:
    """25 MB of empty spans took 7 GB and minutes."""
    with pytest.raises(PayloadTooLarge, match="fields"):
        decode_request(raw, PROTOBUF)


def test_bytes_of_text_are_no_fields() -> None:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(trace_id=b"1" * 16)
    span.name = "\x12\x00" * MAX_FIELDS
    (decoded,) = decode_request(request.SerializeToString(), PROTOBUF)
    assert len(decoded.name) == 2 * MAX_FIELDS


def test_export_of_many_json_values_is_refused() -> None:
    with pytest.raises(PayloadTooLarge):
        decode_request(many("resourceSpans"), JSON)


@pytest.mark.parametrize("opening", ['{"bullets": [', "["])
async def test_playbook_of_many_values_is_refused(api: AsyncClient, opening: str) -> None:
    body = f"{opening}{'{},' * MAX_VALUES}"
    assert_problem(await api.put("/api/v1/playbooks/p", content=body), 422, "invalid")


async def test_playbook_of_many_lines_is_refused(api: AsyncClient) -> None:
    answer = await api.put("/api/v1/playbooks/p", content="\n" * 600_000)
    assert_problem(answer, 422, "invalid")


def test_playbook_of_invalid_bullets_makes_one_error() -> None:
    with pytest.raises(ValidationError) as caught:
        Playbook.model_validate({"bullets": [{}] * 1_000})
    assert {error["loc"][:2] for error in caught.value.errors()} == {("bullets", 0)}


async def test_large_playbook_is_parsed_in_a_thread(
    api: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    parse = transfer._parse

    def record(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return parse(*arguments)

    monkeypatch.setattr(transfer, "_parse", record)
    bullets = [
        {"id": f"pat-{n:05d}", "section": "PATTERNS", "content": "x" * 2_000} for n in range(200)
    ]
    answer = await api.put("/api/v1/playbooks/p", json={"bullets": bullets})
    assert answer.status_code == 200, answer.text
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize(
    ("text", "is_isolated"),
    [
        ("http://me:Tr0ub4dor9x@host " * (MAX_SEARCHED_INLINE // 20), True),
        ("http://me:Tr0ub4dor9x@host ", False),
        ("please refund " * (MAX_SEARCHED_INLINE // 8), False),
    ],
)
async def test_large_search_for_secrets_leaves_the_process(
    monkeypatch: pytest.MonkeyPatch, text: str, is_isolated: bool
) -> None:
    """8 MB of addresses held the event loop for 3 s, of which a thread would hold it 0.8 s."""
    monkeypatch.setattr(ISOLATION, "is_enabled", True)
    calls: list[object] = []

    async def run_here(work: Any, _seconds: float) -> Any:
        calls.append(work)
        return await asyncio.to_thread(work)

    monkeypatch.setattr(isolated_work, "_run_in_process", run_here)
    events = [{"event_type": "user_message", "content": text}]
    body = CreateTraceRequest.model_validate({"outcome": "success", "events": events})
    clean = await redact_trace_isolated(body, UUID(int=1))
    assert bool(calls) is is_isolated
    assert "Tr0ub4dor9x" not in clean.events[0].content
