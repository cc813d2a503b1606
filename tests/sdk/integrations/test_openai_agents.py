"""Runs of the real OpenAI Agents SDK as traces, against the stub provider."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from agents import (
    Agent,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_trace_processors,
)
from openai import AsyncOpenAI, BadRequestError

import hansei
from hansei.integrations.openai_agents import HanseiTracingProcessor
from hansei.recording.recorder import Recorder
from tests.sdk.stub_service import KEY, StubService
from tests.support.stub_provider import StubProvider, answer, bad_request


@function_tool
def look_up(number: int) -> str:
    """Find an order."""
    if number == 2:
        raise ValueError("no such order")
    return "here"


@pytest.fixture
async def agent(stub: StubProvider) -> AsyncIterator[Agent]:
    async with AsyncOpenAI(base_url=stub.openai_url, api_key="k", max_retries=0) as client:
        model = OpenAIResponsesModel(model="m", openai_client=client)
        yield Agent(name="support", instructions="Be brief.", model=model, tools=[look_up])


async def test_run_with_tools(
    service: StubService, stub: StubProvider, agent: Agent, tmp_path: Path
) -> None:
    recorder = Recorder(service.url, KEY, spool_dir=tmp_path / "spool")
    set_trace_processors([HanseiTracingProcessor(playbook="support", recorder=recorder)])
    calls = [answer("", tool_calls=(("look_up", {"number": n}),)) for n in (1, 2)]
    stub.queue(*calls, answer("It is here."))
    await Runner.run(agent, "Where is it?")
    assert recorder.flush() == 0
    recorder.close(0)
    (trace,) = service.traces.values()
    found = [(e["event_type"], e.get("tool_name"), e["content"]) for e in trace["events"]]
    assert [(kind, name) for kind, name, _ in found] == [
        ("system_event", None),
        ("user_message", None),
        ("tool_call", "look_up"),
        ("tool_response", "look_up"),
        ("tool_call", "look_up"),
        ("tool_response", "look_up"),
        ("llm_response", None),
    ]
    assert found[3][2] == "here"
    assert "error" in trace["events"][5]["error"]["message"]  # the SDK redacts it
    assert trace["task_description"] == "Where is it?"
    assert "outcome" not in trace  # nobody knows whether the answer helped
    assert trace["playbook"] == "support"


async def test_failed_run_and_run_in_a_trace_block(
    service: StubService, stub: StubProvider, agent: Agent, tmp_path: Path
) -> None:
    recorder = Recorder(service.url, KEY, spool_dir=tmp_path / "spool")
    set_trace_processors([HanseiTracingProcessor(recorder=recorder)])
    stub.queue(bad_request(), answer("ok"))
    with pytest.raises(BadRequestError):
        await Runner.run(agent, "first")
    with hansei.trace("second", recorder=recorder):
        await Runner.run(agent, "Where is it?")
    assert recorder.flush() == 0
    recorder.close(0)
    failed, ended = service.traces.values()
    assert failed["outcome"] == "error"
    assert failed["events"][-1]["event_type"] == "error_event"
    assert (ended["task_description"], ended["events"][-1]["content"]) == ("second", "ok")
