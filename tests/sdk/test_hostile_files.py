"""Files that are made to stop the command that reads them."""

from __future__ import annotations

import json
import time

from hansei.playbook_import import parse_lessons
from hansei.recording.delivery import parse_run
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


def test_damaged_lines_of_a_recorded_run_are_skipped() -> None:
    """They stopped the delivery of all runs in the spool."""
    deep = 'T{"query":' + "[" * 100_000 + "]" * 100_000 + "}"
    text = f'T{{"metadata":5,"task_description":"a task"}}\n{deep}\nE{{"content":"x"}}\n'
    run = parse_run("a", text)
    assert run.fields == {"task_description": "a task", "metadata": {}}
    assert run.events == ['{"content":"x"}']
