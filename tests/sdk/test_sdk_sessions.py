"""Session files of coding agents: recognised, read, and sent as a transcript."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hansei.errors import BadRequest
from hansei.sessions import is_session, read_session

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
SESSIONS = sorted(SHARED.glob("transcripts/*/*.json*"))
HEAD = 64 * 1024

ASKED = {"role": "user", "content": 'Is "events": [] in it?'}
CLAUDE = {"type": "user", "sessionId": "s-1", "message": ASKED}
SUMMARY = {"type": "summary", "summary": "Looking for events", "leafUuid": "x"}
TRACE = {
    "id": "t",
    "error": {"message": "boom"},
    "task_description": 'say {"role": "user", "message": {}}',
    "events": [{"event_type": "user_message", "content": "x", "metadata": {"role": "user"}}],
}


def lines(*items: Any) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


@pytest.mark.parametrize(
    "text",
    [
        lines(SUMMARY, CLAUDE),
        lines(ASKED),
        json.dumps([ASKED], indent=1).encode(),
        json.dumps({"messages": [ASKED]}).encode(),
        json.dumps({"loglines": [CLAUDE]}, indent=2).encode(),
    ],
)
def test_sessions_are_recognised_and_read(text: bytes) -> None:
    assert is_session(text)
    assert read_session(text).messages[-1] in (ASKED, CLAUDE)


@pytest.mark.parametrize("text", [lines(TRACE), json.dumps([TRACE], indent=1).encode(), b"", b"x"])
def test_traces_are_not_taken_for_sessions(text: bytes) -> None:
    assert not is_session(text)


def test_real_traces_are_traces() -> None:
    files = [ROOT / "examples" / "traces.jsonl", SHARED / "traces.jsonl"]
    for file in files:
        for line in file.read_bytes().splitlines() if file.exists() else ():
            assert not is_session(line)


@pytest.mark.skipif(not SESSIONS, reason="needs the shared transcripts")
def test_real_sessions_are_sessions() -> None:
    for file in SESSIONS:
        text = file.read_bytes()
        if file.name == "edge_cases.jsonl":
            continue  # lines that are no session, on purpose
        assert is_session(text[:HEAD]), file
        assert read_session(text).messages


def test_a_session_says_its_name() -> None:
    assert read_session(lines(SUMMARY, CLAUDE)).session_id == "s-1"
    assert read_session(lines(ASKED)).session_id is None


def test_a_damaged_line_is_named() -> None:
    with pytest.raises(BadRequest, match="Line 2 is not JSON"):
        read_session(lines(CLAUDE) + b"{\n")
