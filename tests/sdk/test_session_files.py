"""Session files of coding agents."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from hansei.errors import BadRequestError
from hansei.session_files import ReplayedInput, detect_format, detect_session, read_session_file
from tests.support.cases import each_case
from tests.support.paths import ROOT, SHARED

SESSIONS = sorted(SHARED.glob("data/transcripts/*/*.json*"))

ASKED = {"role": "user", "content": 'Is "events": [] in it?'}
CLAUDE = {"type": "user", "sessionId": "s-1", "message": ASKED}
SUMMARY = {"type": "summary", "summary": "Looking for events", "leafUuid": "x"}
TRACE = {
    "id": "t",
    "error": {"message": "boom"},
    "task_description": 'say {"role": "user", "message": {}}',
    "events": [{"event_type": "user_message", "content": "x", "metadata": {"role": "user"}}],
}
LONG = {"type": "summary", "summary": "x" * 300_000}
HUGE_RESULT = {"toolUseResult": "y" * 300_000, **CLAUDE}


def lines(*items: Any) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def is_session(text: bytes) -> bool:
    found, head = detect_session(io.BytesIO(text))
    assert text.startswith(head)
    return found


@each_case(
    "text",
    [
        lines(SUMMARY, CLAUDE),
        lines(ASKED),
        json.dumps([ASKED], indent=1).encode(),
        json.dumps({"messages": [ASKED]}).encode(),
        json.dumps({"loglines": [CLAUDE]}, indent=2).encode(),
        lines(LONG, CLAUDE),
        lines(HUGE_RESULT),
        lines(LONG, "a text", 42, [1], CLAUDE),
        b'{"type": "user", "mess\n' + lines(CLAUDE),
        b"\xef\xbb\xbf" + lines(CLAUDE),
    ],
)
def test_sessions_are_detected_and_read(text: bytes) -> None:
    assert is_session(text)
    assert read_session_file(text).messages[-1] in (ASKED, CLAUDE)


@each_case(
    "text", [lines(TRACE), json.dumps([TRACE], indent=1).encode(), b"", b"x", lines(LONG, TRACE)]
)
def test_traces_are_not_detected_as_sessions(text: bytes) -> None:
    assert not is_session(text)


def test_detection_stops_at_the_first_message() -> None:
    _, head = detect_session(io.BytesIO(lines(SUMMARY, CLAUDE, CLAUDE)))
    assert head == lines(SUMMARY, CLAUDE)


def test_lines_with_a_conversation_each_are_read_with_the_next_line() -> None:
    conversation = {"messages": [ASKED]}
    text = lines(conversation) + b"\n" + lines(conversation, conversation)
    found, head = detect_session(io.BytesIO(text))
    assert found
    assert head == lines(conversation) + b"\n" + lines(conversation)
    assert detect_format(head) == "openai"


def test_replayed_input_starts_at_the_beginning() -> None:
    source = io.BytesIO(b"a" * 100_000 + b"\nrest")
    head = source.readline()
    assert io.BufferedReader(ReplayedInput(head, source)).read() == source.getvalue()


def test_real_traces_are_traces() -> None:
    files = [ROOT / "examples" / "traces.jsonl", SHARED / "data/traces.jsonl"]
    for file in files:
        for line in file.read_bytes().splitlines() if file.exists() else ():
            assert not is_session(line)


@pytest.mark.skipif(not SESSIONS, reason="needs the shared transcripts")
def test_real_sessions_are_sessions() -> None:
    for file in SESSIONS:
        text = file.read_bytes()
        assert is_session(text), file
        assert read_session_file(text).messages


@pytest.mark.skipif(not SESSIONS, reason="needs the shared transcripts")
def test_real_session_with_odd_lines() -> None:
    (file,) = [file for file in SESSIONS if file.name == "edge_cases.jsonl"]
    session = read_session_file(file.read_bytes())
    skipped = [(line.number, line.reason) for line in session.skipped]
    assert skipped == [(n, "not a JSON object") for n in (13, 15, 16)]
    counts = (session.line_count, len(session.messages), session.other_count)
    assert counts == (19, 13, 3)


def test_session_id_is_read() -> None:
    assert read_session_file(lines(SUMMARY, CLAUDE)).session_id == "s-1"
    assert read_session_file(lines(ASKED)).session_id is None


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (b'{"type": "user", "mess', "not JSON: "),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'"a text"', "not a JSON object"),
    ],
)
def test_damaged_line_is_skipped_and_named(damaged: bytes, reason: str) -> None:
    text = lines(CLAUDE) + b"\n" + damaged + b"\n" + lines(CLAUDE) + damaged
    session = read_session_file(text)
    assert session.messages == [CLAUDE, CLAUDE]
    assert session.line_count == 4
    assert [line.number for line in session.skipped] == [3, 5]
    assert all(line.reason.startswith(reason) for line in session.skipped)


@pytest.mark.parametrize("text", [b'{"loglines": [', b"not JSON\nat all\n", b"[1, 2]"])
def test_file_without_a_readable_message_names_its_first_damage(text: bytes) -> None:
    with pytest.raises(BadRequestError, match=r"contains no message\. Line 1"):
        read_session_file(text)


def test_file_without_a_message_is_an_error() -> None:
    with pytest.raises(BadRequestError, match="contains no message"):
        read_session_file(lines(SUMMARY))


IMAGE = {"type": "image", "source": {"type": "base64", "data": "iVBOR" * 50_000}}


def test_images_are_left_out() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [IMAGE, {"type": "text"}]}
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBOR"}}
    text = {"type": "text", "text": "What is this?"}
    entries = [
        {"type": "user", "message": {"role": "user", "content": [IMAGE, text, result]}},
        {"role": "user", "content": [url, text]},
    ]
    sent = read_session_file(lines(*entries)).messages
    assert b"iVBOR" not in json.dumps(sent).encode()
    assert sent[0]["message"]["content"] == [
        {"type": "image"},
        text,
        {**result, "content": [{"type": "image"}, {"type": "text"}]},
    ]
    assert sent[1]["content"] == [{"type": "image_url"}, text]


def test_only_needed_fields_are_sent() -> None:
    sidechain = {"isSidechain": True, "agentId": "a1", "parentUuid": None, "uuid": "u"}
    entry = {**CLAUDE, **sidechain, "toolUseResult": {"file": "x" * 9}, "cwd": "/tmp"}
    session = read_session_file(lines(SUMMARY, entry))
    assert session.messages == [{**CLAUDE, **sidechain}]


@each_case(
    ("head", "expected"),
    [
        (b'{"task_id": 1, "traj": [{"role": "user"}]}', "tau-bench"),
        (b'{"trajectory": [{"action": "ls"}], "history": [{"role": "user"}]}', "swe-agent"),
        (b'{"resourceSpans":[]}', "otel"),
        (b'{"timestamp":"t","type":"session_meta","payload":{}}', "codex"),
        (b'{"type":"user","message":{"role":"user","content":"the \\"traj\\": [1]"}}', None),
        (b'{"events": [{"content": "x"}]}', None),
        (b'{"messages": [{"role": "user"}]}\n\n{"messages": [{"role": "user"}]}\n', "openai"),
        (b'{"messages": [{"role": "user"}]}\n', None),
        (b'{"messages": [{"role": "user"}]}\n{"type": "summary"}\n', None),
        (b'{"type": "x", "message": {"input": {"messages": []}}}\n' * 2, None),
    ],
)
def test_formats_of_other_programs_are_detected(head: bytes, expected: str | None) -> None:
    assert detect_format(head) == expected
