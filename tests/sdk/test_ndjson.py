"""Traces of files in any format, as numbered lines."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hansei._ndjson import MAX_BATCH_BYTES, MAX_BATCH_LINES, Line, batch_lines, read_lines
from hansei.errors import BadRequestError
from tests.support.cases import each_case

RECORDINGS = Path(__file__).parents[1] / "recordings"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
TRACES = st.lists(
    st.dictionaries(st.text(), VALUES, min_size=1, max_size=3), min_size=1, max_size=5
)


def read(content: bytes, **overrides: Any) -> list[Line]:
    return list(read_lines(io.BytesIO(content), overrides))


def values(lines: list[Line]) -> list[Any]:
    return [json.loads(line.text) for line in lines]


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])  # a loaded machine
@given(TRACES, st.booleans(), st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.booleans())
def test_every_file_format_yields_the_same_traces(
    traces: list[Any], indent: bool, end: bytes, mark: bool
) -> None:
    bom = b"\xef\xbb\xbf" if mark else b""
    a_line_each = bom + end.join(json.dumps(trace).encode() for trace in traces)
    a_list = bom + json.dumps(traces, indent=2 if indent else None).encode()
    single = bom + json.dumps(traces[0], indent=2 if indent else None).encode()
    assert values(read(a_line_each)) == traces
    assert values(read(a_list)) == traces
    assert values(read(single)) == traces[:1]
    assert values(list(read_lines(traces, {}))) == traces


@settings(max_examples=100)
@given(st.lists(st.integers(0, MAX_BATCH_BYTES * 5 // 4), max_size=300))
def test_batches_preserve_order_and_limits(sizes: list[int]) -> None:
    # bytes(n) for large n would cost memory: a view of one block has a length too.
    block = memoryview(bytes(MAX_BATCH_BYTES * 5 // 4))
    lines = [Line(n, block[:size]) for n, size in enumerate(sizes)]  # pyright: ignore[reportArgumentType]
    made = list(batch_lines(lines))
    assert [line for batch in made for line in batch] == lines
    for batch in made:
        assert 1 <= len(batch) <= MAX_BATCH_LINES
        assert len(batch) == 1 or sum(len(line.text) for line in batch) <= MAX_BATCH_BYTES


def test_lines_are_unchanged_byte_for_byte() -> None:
    odd = b'{"b":1e400,  "a":"\\ud800", "a":2}'
    assert [line.text for line in read(odd + b"\n" + odd)] == [odd, odd]


def test_line_numbers_are_those_of_the_file() -> None:
    assert [line.number for line in read(b'\n{"a":1}\n\n\n{"b":2}\n')] == [2, 5]
    assert [line.number for line in read(b'[{"a":1},\n{"b":2}]')] == [1, 2]


def test_malformed_line_is_left_to_the_service() -> None:
    lines = read(b'{"a":\n{"b":2}\n[oops\n')
    assert [(line.number, line.text) for line in lines] == [
        (1, b'{"a":'), (2, b'{"b":2}'), (3, b"[oops"),
    ]  # fmt: skip


@each_case(
    ("content", "said"),
    [
        (b'{\n "a": 1,\n "b" 2\n}', "line 3"),
        (b"[1, 2", "not JSON"),
        (b"hello", "not JSON"),
        ('{"a": "ü"}'.encode("latin-1"), "not UTF-8"),
        (b"null", "no trace"),
        (b"[" * 100_000, "nested too deep"),
    ],
)
def test_file_that_is_not_json_is_rejected(content: bytes, said: str) -> None:
    with pytest.raises(BadRequestError, match=said):
        read(content)


@each_case("content", [b"", b"\n \n", b"\xef\xbb\xbf", b"[]"])
def test_empty_file_yields_no_lines(content: bytes) -> None:
    assert read(content) == []


def test_overrides_apply_to_json_objects() -> None:
    lines = read(b'{"a":1,"project_id":"old"}\n[1]\n"x"\n', project_id="new", playbook=None)
    assert values(lines) == [{"a": 1, "project_id": "new"}, [1], "x"]


@each_case("pages", ["document", "line"])
def test_observations_of_a_page_become_traces_of_langfuse(pages: str) -> None:
    page = json.loads((RECORDINGS / "exports/langfuse.json").read_bytes())
    content = json.dumps(page, indent=1 if pages == "document" else None).encode()
    lines = list(read_lines(io.BytesIO(content), {"playbook": "p"}, is_export=True))
    (trace,) = values(lines)
    assert (trace["id"], trace["playbook"], trace["sessionId"]) == ("lf-1", "p", "s-1")
    assert trace["observations"] == page["data"]
    assert (trace["input"], trace["output"]) == ("Where is W1?", "It is on its way.")


def test_records_in_a_field_of_an_export_are_numbered() -> None:
    content = json.dumps({"data": [{"traj": []}, 7, {"run_type": "llm"}]}, indent=1).encode()
    lines = list(read_lines(io.BytesIO(content), {}, is_export=True))
    assert [line.number for line in lines] == [1, 2, 3]
    assert values(lines) == [{"traj": []}, 7, {"run_type": "llm"}]


@each_case("key", ["events", "messages", "traj", "observations", "run_type"])
def test_record_with_a_list_in_a_field_stays_one_record(key: str) -> None:
    record = {key: [], "data": [1, 2]}
    lines = read_lines(io.BytesIO(json.dumps(record).encode()), {}, is_export=True)
    assert values(list(lines)) == [record]


def test_path_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"a":1}\n')
    assert values(list(read_lines(str(path), {}))) == [{"a": 1}]
    with pytest.raises(FileNotFoundError):
        list(read_lines(tmp_path / "none", {}))


def test_value_that_json_cannot_encode_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="set cannot be encoded"):
        list(read_lines([{"a": {1}}], {}))
