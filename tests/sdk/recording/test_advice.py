"""An agent never waits long for advice and never fails because of it."""

from __future__ import annotations

import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

import hansei
from hansei.errors import APIConnectionError
from hansei.models import RenderPlaybookResponse
from hansei.recording import advice
from hansei.recording.recorder import Recorder
from tests.sdk.stub_service import KEY, StubService, problem

BLOCK = RenderPlaybookResponse(text="# Playbook", retrieval_id="r-1")


def open_recorder(url: str, spool: Path) -> Recorder:
    return Recorder(url, KEY, spool_dir=spool)


def test_service_that_hangs_costs_one_second_and_then_nothing(
    spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        recorder = open_recorder(f"http://127.0.0.1:{silent.getsockname()[1]}", spool)
        since = time.monotonic()
        with hansei.trace("t", playbook="support", recorder=recorder) as t:
            assert t.render() == ""
            first = time.monotonic() - since
            assert t.render() == ""
        total = time.monotonic() - since
        recorder.close(0)
    assert 0.5 < first < 3  # a second, on a busy machine
    assert total - first < 0.5  # nothing was asked
    assert "without new advice for 5 seconds" in caplog.text


def test_service_that_drips_is_cut_after_the_whole_second(
    spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A timeout of the connection counts from byte to byte."""
    monkeypatch.setenv("HANSEI_RENDER_TIMEOUT", "1")
    recorder = open_recorder("http://127.0.0.1:9", spool)
    released = threading.Event()
    monkeypatch.setattr(recorder.client.playbooks, "render", lambda *_, **__: released.wait(20))
    since = time.monotonic()
    with hansei.trace("t", playbook="support", recorder=recorder) as t:
        assert t.render() == ""
    assert time.monotonic() - since < 5
    assert "did not respond within 1 second." in caplog.text
    released.set()
    recorder.close(0)


def test_last_block_stands_in_while_the_service_is_away(
    service: StubService, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hansei.trace("t", playbook="support", recorder=recorder) as t:
        with monkeypatch.context() as patch:
            patch.setattr(recorder.client.playbooks, "render", lambda *_, **__: BLOCK)
            assert t.render() == "# Playbook"
        assert t.retrieval_id == "r-1"
    assert recorder.flush() == 0  # else the delivery of this trace meets the fault
    service.calls.clear()
    service.faults.append(problem(503))
    with hansei.trace("u", playbook="support", recorder=recorder) as u:
        assert u.render() == "# Playbook"
        assert u.retrieval_id is None  # it is the block of another run
        assert u.render(query="other") == "# Playbook"  # and nothing is asked for a while
        assert service.paths() == ["POST /api/v1/playbooks/support/render"]


def test_circuit_opens_for_longer_with_each_failure_and_closes_after_a_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, asked = [100.0], [0]
    monkeypatch.setattr(advice, "time", SimpleNamespace(monotonic=lambda: now[0]))
    blocks = advice.Advice()

    def fail() -> RenderPlaybookResponse:
        asked[0] += 1
        raise APIConnectionError("The service is away.")

    for count, pause in enumerate((5, 10, 20, 40, 60, 60), start=1):
        assert blocks.render("support", fail).text == ""
        now[0] += pause - 0.1
        assert blocks.render("support", fail).text == ""
        assert asked[0] == count  # not asked before the pause ends
        now[0] += 0.2
    assert blocks.render("support", lambda: BLOCK).text == "# Playbook"
    assert blocks.render("support", fail).text == "# Playbook"
    now[0] += 5.1
    assert blocks.render("support", lambda: BLOCK).retrieval_id == "r-1"  # 5 seconds again


def test_refused_connection_costs_less_than_the_limit_and_opens_the_circuit(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = open_recorder("http://127.0.0.1:9", spool)
    since = time.monotonic()
    with hansei.trace("t", playbook="support", recorder=recorder) as t:
        assert t.render() == ""
        with monkeypatch.context() as patch:
            patch.setattr(recorder.client.playbooks, "render", pytest.fail)
            assert t.render() == ""
    assert time.monotonic() - since < 1.5
    recorder.close(0)


def test_agents_that_ask_at_once_wait_one_second_each(spool: Path) -> None:
    """Not one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        recorder = open_recorder(f"http://127.0.0.1:{silent.getsockname()[1]}", spool)

        def ask(number: int) -> str:
            with hansei.trace(f"t {number}", playbook="support", recorder=recorder) as t:
                return t.render()

        since = time.monotonic()
        with ThreadPoolExecutor(12) as threads:
            assert list(threads.map(ask, range(12))) == [""] * 12
        assert time.monotonic() - since < 4
        recorder.close(0)


@pytest.mark.parametrize("text", ["soon", "-1", "0", "inf", "nan"])
def test_wrong_time_limit_is_reported(
    text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HANSEI_RENDER_TIMEOUT", text)
    caplog.set_level(logging.WARNING, logger="hansei")
    assert advice.Advice().max_wait == advice.MAX_WAIT_SECONDS
    assert "HANSEI_RENDER_TIMEOUT" in caplog.text
