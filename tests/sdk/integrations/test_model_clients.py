"""Calls of the real OpenAI and Anthropic clients as events, against the stub provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from openai import AsyncOpenAI, BadRequestError, OpenAI

import hansei
from hansei.integrations.model_clients import record_anthropic, record_openai
from hansei.recording.recorder import Recorder
from tests.sdk.stub_service import KEY, StubService
from tests.support.stub_provider import StubProvider, answer, bad_request

CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"id": 1}'}}
CONVERSATION = [
    ("system_event", None, "Be brief."),
    ("user_message", None, "Where is it?"),
    ("llm_response", None, "I look it up."),
    ("tool_call", "look_up", '{"id": 1}'),
    ("tool_response", "look_up", "here"),
    ("llm_response", None, "It is here."),
]


@pytest.fixture
def recorder(service: StubService, tmp_path: Path) -> Iterator[Recorder]:
    opened = Recorder(service.url, KEY, spool_dir=tmp_path / "spool")
    yield opened
    opened.close(0)


def events(service: StubService, recorder: Recorder) -> list[tuple[str, str | None, str]]:
    assert recorder.flush() == 0
    (trace,) = service.traces.values()
    return [(e["event_type"], e.get("tool_name"), e["content"]) for e in trace["events"]]


def test_openai_chat(service: StubService, recorder: Recorder, stub: StubProvider) -> None:
    """The second call repeats the messages of the first one."""
    stub.queue(answer("I look it up."), answer("It is here."))
    with OpenAI(base_url=stub.openai_url, api_key="k") as real:
        client = record_openai(record_openai(real))
        messages: list[Any] = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Where is it?"}]},
        ]
        with hansei.trace("t", recorder=recorder):
            client.chat.completions.create(model="m", messages=messages)
            messages += [
                {"role": "assistant", "content": "I look it up.", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "here"},
            ]
            client.chat.completions.create(model="m", messages=messages)
    assert events(service, recorder) == CONVERSATION


async def test_openai_responses(
    service: StubService, recorder: Recorder, stub: StubProvider
) -> None:
    stub.queue(answer("I look it up."), answer("It is here."))
    async with AsyncOpenAI(base_url=stub.openai_url, api_key="k") as real:
        client = record_openai(real)
        async with hansei.trace("t", recorder=recorder):
            first = await client.responses.create(
                model="m", instructions="Be brief.", input="Where is it?"
            )
            given: list[Any] = [
                {"role": "user", "content": "Where is it?"},
                *first.output,
                {
                    "type": "function_call",
                    "call_id": "c1",
                    "name": "look_up",
                    "arguments": '{"id": 1}',
                },
                {"type": "function_call_output", "call_id": "c1", "output": "here"},
            ]
            await client.responses.create(model="m", instructions="Be brief.", input=given)
    assert events(service, recorder) == CONVERSATION


def test_equal_replies_to_separate_questions(
    service: StubService, recorder: Recorder, stub: StubProvider
) -> None:
    """The second call has no history, the third one repeats the second."""
    stub.queue(answer("ok"), answer("ok"), answer("ok"))
    with OpenAI(base_url=stub.openai_url, api_key="k") as real:
        client = record_openai(real)
        with hansei.trace("t", recorder=recorder):
            client.responses.create(model="m", input="a")
            client.responses.create(model="m", input="b")
            history: Any = [("user", "b"), ("assistant", "ok"), ("user", "c")]
            messages: Any = [{"role": role, "content": text} for role, text in history]
            client.chat.completions.create(model="m", messages=messages)
    texts = [content for _, _, content in events(service, recorder)]
    assert texts == ["a", "ok", "b", "ok", "c", "ok"]


def test_anthropic(service: StubService, recorder: Recorder, stub: StubProvider) -> None:
    stub.queue(answer("I look it up."), answer("It is here."))
    use = {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"id": 1}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "here"}
    with Anthropic(base_url=stub.anthropic_url, api_key="k") as real:
        client = record_anthropic(real)
        messages: list[Any] = [{"role": "user", "content": "Where is it?"}]
        with hansei.trace("t", recorder=recorder):
            first = client.messages.create(
                model="m", max_tokens=99, system="Be brief.", messages=messages
            )
            messages += [
                {"role": "assistant", "content": [*first.content, use]},
                {"role": "user", "content": [result]},
            ]
            client.messages.create(model="m", max_tokens=99, system="Be brief.", messages=messages)
    assert events(service, recorder) == CONVERSATION


def test_failed_call_and_call_outside_a_trace(
    service: StubService, recorder: Recorder, stub: StubProvider
) -> None:
    stub.queue(bad_request())
    with OpenAI(base_url=stub.openai_url, api_key="k", max_retries=0) as real:
        client = record_openai(real, tools=False)
        user: list[Any] = [{"role": "user", "content": "hello"}]
        with hansei.trace("t", recorder=recorder), pytest.raises(BadRequestError):
            client.chat.completions.create(model="m", messages=user)
        client.chat.completions.create(model="m", messages=user)  # outside a trace
    found = events(service, recorder)
    assert [kind for kind, _, _ in found] == ["user_message", "error_event"]
    assert "BadRequestError" in found[1][2]
