"""Tests of an agent see what it records, without a service."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hansei
from hansei.testing import recording


def agent(task: str) -> str:
    with hansei.trace(task, playbook="support") as t:
        t.tool_call("find", {"id": 1}, result="here")
        t.set_outcome("success")
        return t.render()


def test_runs_are_collected_and_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSEI_ENABLED", "0")
    with recording(advice="# Playbook") as runs:
        assert agent("one") == "# Playbook"
        assert hansei.flush() == 0
    assert agent("two") == ""
    (run,) = runs
    assert (run["task_description"], run["outcome"]) == ("one", "success")
    assert [event["event_type"] for event in run["events"]] == ["tool_call", "tool_response"]


def test_package_offers_its_names_and_testing_without_another_import() -> None:
    """What `dir` and the tab key show in a new process."""
    program = "import hansei; print(*dir(hansei)); print(hansei.testing.recording.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    names, recording_name = done.stdout.splitlines()
    assert {"trace", "tool", "Hansei", "testing"} <= set(names.split())
    assert "import_module" not in names
    assert recording_name == "recording"
