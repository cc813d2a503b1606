"""`hansei spool` shows, sends and deletes what has not reached the service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import hansei
from hansei.cli.main import app
from hansei.recording.recorder import Recorder
from tests.sdk.stub_service import KEY, StubService


@pytest.fixture
def refusing(
    service: StubService, recorder: Recorder, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> StubService:
    """A service that has refused one of two runs. A third one is being recorded."""
    values = {"HANSEI_URL": service.url, "HANSEI_API_KEY": KEY, "HANSEI_SPOOL_DIR": str(spool)}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    store = service._line

    def refuse(number: int, line: bytes) -> dict[str, Any]:
        if b'"bad"' in line:
            return {"line": number, "error": {"code": "invalid", "detail": "No such playbook."}}
        return store(number, line)

    with monkeypatch.context() as patch:
        patch.setattr(service, "_line", refuse)
        for task in ("bad", "good"):
            with hansei.trace(task, recorder=recorder):
                pass
        assert recorder.flush() == 1
    hansei.trace("in progress", recorder=recorder).message("user", "hello")
    recorder._write()
    return service


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["spool", *arguments])


def items() -> list[dict[str, Any]]:
    return json.loads(run("list", "--json").stdout)["items"]


@pytest.mark.usefixtures("refusing")
def test_list_names_what_has_not_arrived_and_why() -> None:
    found = {(item["task"], item["state"], item["reason"]) for item in items()}
    assert found == {
        ("bad", "refused", "No such playbook."),
        ("in progress", "recording", None),
    }
    assert "Refused: No such playbook." in run("list").stdout


def test_refused_run_is_sent_again(refusing: StubService) -> None:
    (refused,) = (item for item in items() if item["state"] == "refused")
    result = run("resend", refused["id"])
    assert (result.exit_code, result.stdout) == (0, "1 run sent, 0 refused, 0 left.\n")
    assert sorted(t["task_description"] for t in refusing.traces.values()) == ["bad", "good"]
    assert [item["state"] for item in items()] == ["recording"]


@pytest.mark.usefixtures("refusing")
def test_dropped_run_is_gone_and_a_recording_stays() -> None:
    assert run("drop").exit_code == 2
    assert "The spool has no run nowhere" in run("drop", "nowhere").stderr
    assert run("drop", "--all").stdout == "1 run dropped.\n"
    assert [item["state"] for item in items()] == ["recording"]
