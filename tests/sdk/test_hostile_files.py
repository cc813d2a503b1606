"""Files that are made to stop the command that reads them."""

from __future__ import annotations

import json
import time

from hansei.playbook_import import parse_lessons
from hansei.session_files import read_session_file


def test_comments_without_an_end_take_no_quadratic_time() -> None:
    started = time.process_time()
    lessons = parse_lessons("- Look first.\n\n<!-- x --> " + "<!--" * 100_000, "agents-md")
    assert time.process_time() - started < 2
    assert lessons[0].content == "Look first."


def test_entry_that_is_nested_too_deeply_is_skipped() -> None:
    deep = b'{"role": "user", "content": ' + b"[" * 500 + b"]" * 500 + b"}"
    good = json.dumps({"role": "assistant", "content": "Done."}).encode()
    session = read_session_file(deep + b"\n" + good)
    assert [line.reason for line in session.skipped] == ["nested too deeply"]
    assert len(session.messages) == 1
