"""What a recorded run contains when it reaches the service."""

from __future__ import annotations

import asyncio
import logging
import math
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import hansei
from hansei.errors import HanseiError
from hansei.models import RenderPlaybookResponse
from hansei.recording import recorder as recorder_module
from hansei.recording.recorder import Recorder
from tests.sdk.stub_service import KEY, StubService, listed, problem


def sent(service: StubService, recorder: Recorder) -> dict[str, Any]:
    assert recorder.flush() == 0
    (stored,) = service.traces.values()
    return stored


def test_run_with_its_events_and_outcome(service: StubService, recorder: Recorder) -> None:
    with hansei.trace("refund", playbook="support", task_key="r1", recorder=recorder) as t:
        t.message("user", "Refund order W1")
        t.tool_call("get_order", {"id": "W1"}, result={"state": "完了"})
        with t.tool_call("refund", {"id": "W1"}) as call:
            call.respond("ok")
        t.message("assistant", "Done [mis-00001]")
        t.set_outcome("success")
    stored = sent(service, recorder)
    assert stored["task_description"] == "refund"
    assert stored["playbook"] == "support"
    assert stored["task_key"] == "r1"
    assert stored["outcome"] == "success"
    assert stored["external_id"] == t.external_id
    kinds = [(event["event_type"], event.get("tool_name")) for event in stored["events"]]
    assert kinds == [
        ("user_message", None),
        ("tool_call", "get_order"),
        ("tool_response", "get_order"),
        ("tool_call", "refund"),
        ("tool_response", "refund"),
        ("llm_response", None),
    ]
    assert stored["events"][2]["content"] == '{"state": "完了"}'
    assert [e["metadata"]["call_id"] for e in stored["events"][1:5]] == ["call-1"] * 2 + [
        "call-2"
    ] * 2


def test_exception_is_recorded_and_raised(service: StubService, recorder: Recorder) -> None:
    def run() -> None:
        with hansei.trace("t", recorder=recorder) as t:
            t.tool_call("get_order", error=ValueError("no such order"))
            raise KeyError("W1")

    with pytest.raises(KeyError):
        run()
    stored = sent(service, recorder)
    assert stored["outcome"] == "error"
    assert stored["error"]["error_message"] == "KeyError: 'W1'"
    assert stored["events"][1]["error"] == {"message": "ValueError: no such order"}
    assert stored["events"][-1]["event_type"] == "error_event"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(TimeoutError(), "timeout"), (KeyboardInterrupt(), None), (SystemExit(0), None)],
)
def test_outcome_of_other_ends(
    service: StubService, recorder: Recorder, error: BaseException, outcome: str | None
) -> None:
    with pytest.raises(type(error)), hansei.trace("t", recorder=recorder):
        raise error
    assert sent(service, recorder).get("outcome") == outcome


def test_run_that_ends_without_a_statement_has_no_outcome(
    service: StubService, recorder: Recorder
) -> None:
    @hansei.traced(recorder=recorder)
    def agent() -> str:
        return "I could not help you."

    agent()
    assert "outcome" not in sent(service, recorder)


def test_statement_outlasts_a_later_exception(service: StubService, recorder: Recorder) -> None:
    def run() -> None:
        with hansei.trace("t", outcome="success", recorder=recorder) as t:
            t.set_outcome("failure", "wrong total")
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        run()
    stored = sent(service, recorder)
    assert stored["outcome"] == "failure"
    assert stored["error"] == {"error_message": "wrong total"}
    assert stored["events"][-1]["content"] == "OSError: disk"


def test_stated_outcome_and_late_fields(service: StubService, recorder: Recorder) -> None:
    with hansei.trace("t", recorder=recorder) as t:
        t.set_outcome("failure", "wrong total")
        t.update(ground_truth="42", generated_answer="41")
    t.message("user", "after the end: not recorded")
    stored = sent(service, recorder)
    assert (stored["outcome"], stored["ground_truth"]) == ("failure", "42")
    assert stored["error"] == {"error_message": "wrong total"}
    assert [event["event_type"] for event in stored["events"]] == ["system_event"]


def test_wrong_argument_is_refused_where_it_is_written(recorder: Recorder) -> None:
    """Also without a service, and before a playbook is named."""
    for used in (recorder, None):
        with hansei.trace("t", recorder=used) as t:
            with pytest.raises(TypeError, match=r"`tokens`\. Did you mean `token_budget`\?"):
                t.render(tokens=5)  # pyright: ignore[reportCallIssue]
            with pytest.raises(TypeError, match=r"`render` has no option `nonsense`\. The options"):
                hansei.render(nonsense=3)  # pyright: ignore[reportCallIssue]
            with pytest.raises(ValueError, match=r"`role` must be one of user, .*, not 'bot'"):
                t.message("bot", "hi")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match=r"`event_type` must be one of .*'tool'"):
                t.event("tool", "hi")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"`answer`\. Did you mean `generated_answer`\?"):
                t.update(answer="42")


@pytest.mark.parametrize("given", ["run/4711", UUID("01a1fbf9-5d6a-7e7c-9c5d-912a377774c9")])
def test_external_id_of_the_program(
    service: StubService, recorder: Recorder, given: str | UUID
) -> None:
    """It is no name of a file, and stays what `t.external_id` says."""
    for used in (recorder, None):
        with hansei.trace("t", external_id=given, recorder=used) as t:
            with pytest.raises(TypeError, match=r"cannot change `external_id`.*`hansei\.trace`"):
                t.update(external_id="other")
            assert t.external_id == str(given)
    assert sent(service, recorder)["external_id"] == str(given)
    with hansei.trace("t", external_id=None) as t:
        assert t.external_id.startswith("sdk-")
    with pytest.raises(TypeError, match="`traced` has no `external_id`: each call"):
        hansei.traced(external_id="one for all calls")


def test_outcome_of_an_earlier_trace(
    service: StubService, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "stand_in", recorder)
    monkeypatch.setattr(StubService, "_route", lambda *_: (200, listed([])))
    with pytest.raises(HanseiError, match="no trace with the external ID 'run-1'"):
        hansei.outcome("failure", external_id="run-1")


def test_declared_match_is_sent_and_checked(service: StubService, recorder: Recorder) -> None:
    with hansei.trace("t", ground_truth="42", match="exact", recorder=recorder) as t:
        t.update(match="number")
        with pytest.raises(ValueError, match="exact, number, contains, calls, not 'fuzzy'"):
            t.update(match="fuzzy")
    stored = sent(service, recorder)
    assert (stored["ground_truth"], stored["match"]) == ("42", "number")


def test_values_that_are_not_json(service: StubService, recorder: Recorder) -> None:
    loop: list[Any] = []
    loop.append(loop)

    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError

    values = [
        math.nan,
        {"a": object},
        loop,
        Hostile(),
        b"\xff",
        "\0\ud800",
        {1: {2}},
        "x" * 1_200_000,
    ]
    with hansei.trace("t", recorder=recorder) as t:
        for value in values:
            t.tool_call("f", value, result=value)
    events = sent(service, recorder)["events"]
    assert len(events) == 2 * len(values)
    assert events[-1]["metadata"]["truncated_characters"] == 200_000


async def test_async_runs_at_once_have_their_own_events(
    service: StubService, recorder: Recorder
) -> None:
    @hansei.tool
    async def look_up(order: str) -> str:
        await asyncio.sleep(0)
        return f"state of {order}"

    @hansei.traced("refund {order}", playbook="support", recorder=recorder)
    async def agent(order: str) -> str:
        return await look_up(order)

    assert await asyncio.gather(agent("A"), agent("B")) == ["state of A", "state of B"]
    assert recorder.flush() == 0
    traces = {trace["task_description"]: trace for trace in service.traces.values()}
    assert set(traces) == {"refund A", "refund B"}
    assert traces["refund A"]["generated_answer"] == "state of A"
    contents = [event["content"] for event in traces["refund A"]["events"]]
    assert contents == ['{"order": "A"}', '{"order": "A"}', "state of A", "state of A"]


def test_tools_of_a_function(service: StubService, recorder: Recorder) -> None:
    @hansei.tool(name="divide")
    def div(a: float, b: float) -> float:
        return a / b

    assert div(4, 2) == 2  # without a trace
    with hansei.trace("t", recorder=recorder), pytest.raises(ZeroDivisionError):
        div(1, b=0)
    call, response = sent(service, recorder)["events"]
    assert (call["tool_name"], call["content"]) == ("divide", '{"a": 1, "b": 0}')
    assert response["error"] == {"message": "ZeroDivisionError: division by zero"}
    with pytest.raises(TypeError, match="generator"):
        hansei.tool(lambda: (yield))


def test_render_joins_the_retrieval(
    service: StubService, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = RenderPlaybookResponse(text="# Playbook", retrieval_id="r-1")
    monkeypatch.setattr(recorder.client.playbooks, "render", lambda *_, **__: block)
    with hansei.trace("t", playbook="support", recorder=recorder) as t:
        assert t.render() == "# Playbook"
    assert sent(service, recorder)["retrieval_id"] == "r-1"


async def test_agent_runs_without_its_playbook(
    service: StubService, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    service.faults.append(problem(500, "internal_error"))
    async with hansei.trace("t", playbook="support", recorder=recorder) as t:
        assert await t.arender() == ""
    assert "runs without new advice" in caplog.text
    assert "retrieval_id" not in sent(service, recorder)


def test_agent_runs_without_a_service(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder_module, "_default", None)
    monkeypatch.setattr(recorder_module, "_has_warned", False)
    for _ in range(2):
        with hansei.trace("t", playbook="support") as t:
            assert t.render() == ""
            t.tool_call("f", result=1)
    assert hansei.flush() == 0
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 1


def test_import_is_light() -> None:
    """`import hansei` loads neither the HTTP client nor the command line."""
    code = "import sys, hansei; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    folder = Path(hansei.__file__).parents[1]
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=folder, text=True).split()
    assert not {"httpx2", "typer", "rich", "pydantic", "asyncio"} & set(loaded)


def test_key_of_the_service_is_used(service: StubService, recorder: Recorder) -> None:
    with hansei.trace("t", recorder=recorder):
        pass
    sent(service, recorder)
    assert service.calls[-1].headers["authorization"] == f"Bearer {KEY}"
