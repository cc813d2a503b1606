"""Tests of an agent see what it records, without a service."""

from __future__ import annotations

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
