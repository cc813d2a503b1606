"""Recording can be switched off, sampled and masked; wrong words are refused where they stand."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hansei
from hansei.recording import recorder as recorder_module
from hansei.recording import trace as trace_module
from hansei.recording.recorder import Recorder
from tests.sdk.stub_service import KEY, StubService


@pytest.mark.parametrize("text", ["0", "false", "OFF", " no "])
def test_nothing_is_recorded_if_it_is_switched_off(
    service: StubService, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSEI_ENABLED", text)
    monkeypatch.setenv("HANSEI_URL", service.url)
    monkeypatch.setenv("HANSEI_API_KEY", KEY)
    with hansei.trace("t", playbook="support") as t:
        t.message("user", "hello")
        assert t.render() == ""
    assert hansei.flush() == 0
    assert service.calls == []


def test_share_of_the_runs_is_recorded(service: StubService, spool: Path) -> None:
    recorder = Recorder(service.url, KEY, spool_dir=spool, sample_rate=0.0)
    for _ in range(20):
        with hansei.trace("t", recorder=recorder) as t:
            t.message("user", "hello")
    assert recorder.flush() == 0
    assert service.traces == {}
    recorder.close(0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        Recorder(service.url, KEY, spool_dir=spool, sample_rate=2)


def test_wrong_share_in_the_environment_is_reported(
    service: StubService,
    spool: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("HANSEI_SAMPLE_RATE", "half")
    recorder = Recorder(service.url, KEY, spool_dir=spool)
    assert recorder.options.sample_rate == 1
    assert "HANSEI_SAMPLE_RATE" in caplog.text
    recorder.close(0)


def test_mask_sees_every_text(service: StubService, spool: Path) -> None:
    recorder = Recorder(
        service.url, KEY, spool_dir=spool, mask=lambda text: text.replace("Ada", "***")
    )
    with hansei.trace("Refund Ada", playbook="Ada", recorder=recorder, query="Ada?") as t:
        t.message("user", "I am Ada", customer="Ada")
        t.tool_call("find", {"name": "Ada"}, error="no Ada")
        t.update(generated_answer="Bye Ada", metadata={"names": ["Ada", 3]})
    assert recorder.flush() == 0
    (stored,) = service.traces.values()
    assert stored.pop("playbook") == "Ada"  # an identifier
    assert "Ada" not in repr(stored)
    assert "***" in repr(stored)
    recorder.close(0)


def test_mask_that_fails_records_nothing(
    service: StubService, spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(text: str) -> str:
        raise RuntimeError("broken")

    recorder = Recorder(service.url, KEY, spool_dir=spool, mask=fail)
    with hansei.trace("secret", recorder=recorder) as t:
        t.message("user", "secret")
    assert recorder.flush() == 0
    assert "secret" not in repr(list(service.traces.values()))
    assert "The mask failed" in caplog.text
    recorder.close(0)


def test_configure_sets_the_options_of_the_process(
    service: StubService, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(service.url, KEY, spool_dir=spool)
    monkeypatch.setattr(recorder_module, "_default", recorder)
    hansei.configure(sample_rate=0.25, mask=str.upper)
    assert recorder.options.sample_rate == 0.25
    assert recorder.options.mask_text("a") == "A"
    with pytest.raises(ValueError, match="between 0 and 1"):
        hansei.configure(sample_rate=-0.1)
    recorder.close(0)


def test_misspelt_words_are_refused(recorder: Recorder) -> None:
    with pytest.raises(TypeError, match="Did you mean `playbook`"):
        hansei.trace("t", playbok="support", recorder=recorder)
    with pytest.raises(TypeError, match="`metadata`"):
        hansei.trace("t", customer_number=7, recorder=recorder)
    with hansei.trace("t", recorder=recorder) as t:
        with pytest.raises(TypeError, match="Did you mean `generated_answer`"):
            t.update(generate_answer="42")
        with pytest.raises(ValueError, match="sucess"):
            t.set_outcome("sucess")  # pyright: ignore[reportArgumentType]


def test_threads_of_an_executor(
    service: StubService,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`with_trace` records the call there; without it, a warning says that it is not recorded."""
    monkeypatch.setattr(trace_module, "_has_warned", False)
    caplog.set_level(logging.WARNING, logger="hansei")

    @hansei.tool
    def search(text: str) -> str:
        return text.upper()

    with ThreadPoolExecutor(2) as executor, hansei.trace("t", recorder=recorder):
        assert list(executor.map(hansei.with_trace(search), ["a", "b"])) == ["A", "B"]
        assert caplog.text == ""
        assert executor.submit(search, "c").result() == "C"
        assert executor.submit(search, "d").result() == "D"
    assert recorder.flush() == 0
    (stored,) = service.traces.values()
    assert len(stored["events"]) == 4
    assert caplog.text.count("`search` runs in a thread outside of any trace") == 1
