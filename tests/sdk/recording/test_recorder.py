"""No trace is lost and none arrives twice: restarts of service and agent, full disks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import hansei
from hansei.models import Trace, TraceReceipt
from hansei.recording import delivery
from hansei.recording import recorder as recorder_module
from hansei.recording import spool as spool_module
from hansei.recording.recorder import Recorder
from tests.sdk.stub_service import KEY, Fault, StubService, page, problem

AGENT = """
import os, sys, hansei
with hansei.trace("finished"):
    pass
with hansei.trace("killed") as t:
    for number in range(300):
        t.tool_call("f", number, result=number)
    from hansei.recording.recorder import default_recorder
    default_recorder()._write()
    os.kill(os.getpid(), 9)
"""


def names(service: StubService) -> list[str]:
    return sorted(trace["task_description"] for trace in service.traces.values())


def files(spool: Path) -> list[str]:
    return [path.suffix for path in spool.rglob("*") if path.is_file() and path.name != ".lock"]


def test_service_restarts_in_the_middle(service: StubService, recorder: Recorder) -> None:
    """Refused connections, responses lost after the traces were stored, and pages of a proxy."""
    service.faults.extend([Fault(cut="before"), Fault(cut="after"), page(503), Fault(cut="after")])
    for number in range(20):
        with hansei.trace(f"run {number:02}", recorder=recorder) as t:
            for step in range(15):
                t.tool_call("f", step, result=step)
    assert recorder.flush() == 0
    assert names(service) == [f"run {number:02}" for number in range(20)]
    assert {len(trace["events"]) for trace in service.traces.values()} == {30}


def test_next_process_sends_what_a_killed_one_left(service: StubService, spool: Path) -> None:
    environment = os.environ | {
        "HANSEI_URL": service.url,
        "HANSEI_API_KEY": KEY,
        "HANSEI_SPOOL_DIR": str(spool),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    service.faults.extend([problem(503)] * 1000)  # nothing is accepted while the agent runs
    killed = subprocess.run([sys.executable, "-c", AGENT], env=environment, check=False)
    assert killed.returncode == -9
    assert sorted(files(spool)) == [".open", ".ready"]
    (half,) = spool.rglob("*.open")
    with half.open("a") as file:
        file.write('E{"event_type":"tool_ca')  # the kernel wrote half of a line
    service.faults.clear()
    recorder = Recorder(service.url, KEY, spool_dir=spool)
    assert recorder.flush() == 0
    recorder.close(0)
    assert names(service) == ["finished", "killed"]
    by_task = {trace["task_description"]: trace for trace in service.traces.values()}
    assert len(by_task["killed"]["events"]) == 600
    assert by_task["killed"].get("outcome") is None
    assert "interrupted" in by_task["killed"]["metadata"]
    assert files(spool) == []


def test_traces_of_another_key_are_not_sent(service: StubService, spool: Path) -> None:
    service.faults.append(problem(403, "forbidden"))
    other = Recorder(service.url, "hsk_of_another_tenant", spool_dir=spool)
    with hansei.trace("secret", recorder=other):
        pass
    other.close(0)
    recorder = Recorder(service.url, KEY, spool_dir=spool)
    assert recorder.flush() == 0
    recorder.close(0)
    assert service.traces == {}
    assert files(spool) == [".ready"]


def test_traces_of_a_running_process_are_not_adopted(
    service: StubService, spool: Path, recorder: Recorder
) -> None:
    with hansei.trace("mine", recorder=recorder) as t:
        t.message("user", "first")
        recorder._write()
        second = Recorder(service.url, KEY, spool_dir=spool)
        assert second.flush() == 0
        second.close(0)
        assert service.traces == {}
        t.message("user", "second")
    assert recorder.flush() == 0
    (stored,) = service.traces.values()
    assert len(stored["events"]) == 2


def test_refused_trace_does_not_block_others(
    service: StubService, recorder: Recorder, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = service._line

    def refuse(number: int, line: bytes) -> dict[str, object]:
        if b'"bad"' in line:
            return {"line": number, "error": {"code": "invalid", "detail": "No."}}
        return store(number, line)

    monkeypatch.setattr(service, "_line", refuse)
    for task in ("bad", "good"):
        with hansei.trace(task, recorder=recorder):
            pass
    assert recorder.flush() == 1
    assert names(service) == ["good"]
    (rejected,) = spool.rglob("rejected/*.ready")
    assert "bad" in rejected.read_text()


def test_memory_is_bounded(
    service: StubService, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that records writes to the spool if the writer is late."""
    monkeypatch.setattr(recorder_module, "MAX_BUFFER_CHARACTERS", 10_000)
    largest = 0
    with hansei.trace("t", recorder=recorder) as t:
        for _ in range(200):
            t.message("user", "x" * 1_000)
            largest = max(largest, recorder._size)
    assert largest <= 10_000
    assert recorder.flush() == 0
    (stored,) = service.traces.values()
    assert len(stored["events"]) == 200


def test_lines_wait_for_room_on_the_disk(
    service: StubService, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "MAX_DISK_BYTES", 0)
    with hansei.trace("t", recorder=recorder) as t:
        t.message("user", "hello")
    recorder._write()
    assert service.traces == {}
    monkeypatch.undo()
    assert recorder.flush() == 0
    assert names(service) == ["t"]
    assert recorder.lost_events == 0


def test_read_only_folder(service: StubService, tmp_path: Path) -> None:
    """Without a folder, traces wait in memory."""
    (tmp_path / "file").write_text("")
    recorder = Recorder(service.url, KEY, spool_dir=tmp_path / "file")
    with hansei.trace("t", recorder=recorder):
        pass
    assert recorder.flush() == 0
    recorder.close(0)
    assert names(service) == ["t"]


def test_large_trace_is_sent_in_parts(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MAX_SINGLE_REQUEST_EVENTS", 10)
    monkeypatch.setattr(delivery, "MAX_SINGLE_REQUEST_BYTES", 400)
    stored: list[object] = [None, None]  # an earlier attempt stored two events
    closed: list[object] = []
    client = recorder._sender
    monkeypatch.setattr(client, "send", lambda request: TraceReceipt(trace_id="t1"))
    monkeypatch.setattr(
        client.traces, "get", lambda _: Trace(state="open", event_count=len(stored))
    )
    monkeypatch.setattr(client.traces.events, "append", lambda _, events: stored.extend(events))
    monkeypatch.setattr(client.traces, "close", lambda _, outcome, **__: closed.append(outcome))
    with hansei.trace("t", recorder=recorder, outcome="success") as t:
        for number in range(30):
            t.message("user", str(number))
    assert recorder.flush() == 0
    assert [event["content"] for event in stored[2:]] == [str(n) for n in range(2, 30)]
    assert closed == ["success"]


def test_files_of_the_spool_are_private(recorder: Recorder, spool: Path) -> None:
    with hansei.trace("t", recorder=recorder) as t:
        t.message("user", "secret")
        recorder._write()
        (path,) = spool.rglob("*.open")
        assert path.stat().st_mode & 0o077 == 0
        assert path.parent.stat().st_mode & 0o077 == 0
        assert json.loads(path.read_text().splitlines()[1][1:])["content"] == "secret"


def test_threads_share_a_recorder(service: StubService, recorder: Recorder) -> None:
    def run(number: int) -> None:
        with hansei.trace(f"run {number}", recorder=recorder) as t:
            for _ in range(50):
                t.message("user", "x")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.flush() == 0
    assert {len(trace["events"]) for trace in service.traces.values()} == {50}
    assert len(service.traces) == 8


def test_texts_of_a_service_do_not_control_the_terminal_of_a_log(
    service: StubService,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(delivery, "MAX_RETRY_AFTER_SECONDS", 0.2)
    text = json.dumps({"code": "busy", "detail": "busy\x1b]0;pwn\x07"}).encode()
    headers = {"retry-after": "11"}
    service.faults.append(Fault(429, text, kind="application/problem+json", headers=headers))
    with hansei.trace("a run", recorder=recorder):
        pass
    assert recorder.flush() == 0
    assert "busy\ufffd]0;pwn\ufffd" in caplog.text
    assert "\x1b" not in caplog.text


@pytest.mark.parametrize("seconds", ["1e9", "inf"])
def test_retry_after_does_not_end_the_sending(
    service: StubService, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, seconds: str
) -> None:
    monkeypatch.setattr(delivery, "MAX_RETRY_AFTER_SECONDS", 0.2)
    service.faults.append(problem(429, retry_after=seconds))
    with hansei.trace("a run", recorder=recorder):
        pass
    deadline = time.monotonic() + 20
    while not service.traces and time.monotonic() < deadline:
        time.sleep(0.05)
    assert names(service) == ["a run"]
