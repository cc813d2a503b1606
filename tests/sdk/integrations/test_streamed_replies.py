"""Streamed replies of the real OpenAI and Anthropic clients as events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI, Stream

import hansei
from hansei.integrations.model_clients import record_anthropic, record_openai
from hansei.integrations.streamed_replies import StreamedReply
from hansei.recording.recorder import Recorder
from tests.sdk.stub_service import KEY, StubService
from tests.support.stub_provider import StubProvider, answer

USER: list[Any] = [{"role": "user", "content": "Say ok."}]
REPLY = ("llm_response", "ok it is")
ONCE = [("user_message", "Say ok."), REPLY]


@pytest.fixture
def recorder(service: StubService, tmp_path: Path) -> Iterator[Recorder]:
    opened = Recorder(service.url, KEY, spool_dir=tmp_path / "spool")
    yield opened
    opened.close(0)


def events(service: StubService, recorder: Recorder) -> list[tuple[str, str]]:
    assert recorder.flush() == 0
    (trace,) = service.traces.values()
    return [(e["event_type"], e["content"]) for e in trace["events"]]


def test_openai_chat(service: StubService, recorder: Recorder, stub: StubProvider) -> None:
    """The second call repeats the first reply and receives the same text again."""
    stub.queue(answer("ok it is"), answer("ok it is"))
    with OpenAI(base_url=stub.openai_url, api_key="k") as real:
        client = record_openai(real)
        with hansei.trace("t", recorder=recorder):
            messages = list(USER)
            for _ in range(2):
                stream = client.chat.completions.create(model="m", messages=messages, stream=True)
                assert isinstance(stream, Stream)
                text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
                messages.append({"role": "assistant", "content": text})
    assert messages[-1]["content"] == "ok it is"
    assert events(service, recorder) == [*ONCE, REPLY]


def test_anthropic(service: StubService, recorder: Recorder, stub: StubProvider) -> None:
    stub.queue(answer("ok it is"))
    with Anthropic(base_url=stub.anthropic_url, api_key="k") as real:
        client = record_anthropic(real)
        with hansei.trace("t", recorder=recorder):
            stream = client.messages.create(model="m", max_tokens=9, messages=USER, stream=True)
            assert [event.type for event in stream][-1] == "message_stop"
    assert events(service, recorder) == ONCE


async def test_async_clients(service: StubService, recorder: Recorder, stub: StubProvider) -> None:
    stub.queue(answer("ok it is"), answer("ok it is"))
    async with (
        AsyncOpenAI(base_url=stub.openai_url, api_key="k") as openai,
        AsyncAnthropic(base_url=stub.anthropic_url, api_key="k") as anthropic,
    ):
        first, second = record_openai(openai), record_anthropic(anthropic)
        async with hansei.trace("t", recorder=recorder):
            stream = await first.responses.create(model="m", input="Say ok.", stream=True)
            assert [event.type async for event in stream][-1] == "response.completed"
            messages: list[Any] = [*USER, {"role": "assistant", "content": "ok it is"}]
            reply = await second.messages.create(
                model="m", max_tokens=9, messages=messages, stream=True
            )
            assert [event.type async for event in reply][-1] == "message_stop"
    assert events(service, recorder) == [*ONCE, REPLY]


def test_pieces_of_tool_calls() -> None:
    """In the form that OpenAI's and Anthropic's API references document."""

    def chunk(call_id: str | None, name: str | None, arguments: str) -> Any:
        function = SimpleNamespace(name=name, arguments=arguments)
        call = SimpleNamespace(index=0, id=call_id, function=function)
        delta = SimpleNamespace(content=None, tool_calls=[call])
        return SimpleNamespace(choices=[SimpleNamespace(index=0, delta=delta)])

    reply = StreamedReply()
    reply.add(chunk("c1", "look_up", '{"id"'))
    reply.add(chunk(None, None, ": 1}"))
    reply.add(object())
    call = {"id": "c1", "function": {"name": "look_up", "arguments": '{"id": 1}'}}
    assert reply.messages() == [{"role": "assistant", "content": "", "tool_calls": [call]}]
