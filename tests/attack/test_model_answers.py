"""Answers of a model provider that need much time or memory to read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator

import pytest

from memory_api.core.isolated_work import ISOLATION
from memory_api.llm.errors import LLMUnparseable
from memory_api.llm.port import LLM, LLMRequest, Message
from memory_api.llm.registry import open_llm
from memory_api.llm.structured_output import request_structured
from memory_api.reflection.model_output import ModelReflection
from tests.support.stub_provider import StubProvider, answer

MAX_WAIT_SECONDS = 1.0
QUESTION = LLMRequest(messages=(Message("user", "What did the run show?"),))


@pytest.fixture
def stub() -> Generator[StubProvider]:
    with StubProvider() as provider:
        yield provider


@pytest.fixture
async def llm(stub: StubProvider) -> AsyncGenerator[LLM]:
    opened = open_llm("openai", model="stub", api_key="stub", base_url=stub.openai_url)
    assert opened is not None
    yield opened
    await opened.aclose()


async def longest_wait() -> float:
    """The longest time, in seconds, that another task of this process waits for its turn."""
    longest = 0.0
    while True:
        before = time.monotonic()
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            return longest
        longest = max(longest, time.monotonic() - before)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{'a'" * 3_000 + "}", id="an object that takes quadratic time to repair"),
        pytest.param(
            '{"explanation": "x", "tags": "[' + "1," * 1_000_000 + ']"}', id="a printed list"
        ),
    ],
)
async def test_answer_does_not_stop_other_tasks(
    llm: LLM, stub: StubProvider, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ISOLATION, "is_enabled", True)
    monkeypatch.setattr(ISOLATION, "_limiter", None)
    stub.queue(answer(text), answer(text))
    waiting = asyncio.create_task(longest_wait())
    await asyncio.sleep(0)
    with pytest.raises(LLMUnparseable):
        await request_structured(llm, ModelReflection, QUESTION)
    waiting.cancel()
    assert await waiting < MAX_WAIT_SECONDS
