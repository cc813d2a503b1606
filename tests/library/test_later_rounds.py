"""A later round that fails for any reason keeps what the earlier rounds brought."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from memory_api.library.reflector_prompt import ReflectorPromptBuilder
from memory_api.library.reflector_rounds import analyze_trajectory, trajectory_input
from memory_api.llm.errors import LLMError
from memory_api.llm.model_session import ModelSession
from memory_api.llm.port import LLM, LLMReply, LLMRequest
from memory_api.llm.registry import open_llm
from memory_api.llm.wrappers import LLMWrapper
from memory_api.reflection.trajectories.schemas import Trajectory
from tests.support.stub_provider import StubProvider, answer

INSIGHT = {
    "reasoning": "The test expects 3.",
    "error_identification": "It returns 4.",
    "root_cause_analysis": "It counts from 1.",
    "correct_approach": "Count from 0.",
    "key_insight": "When counting items, start at 0.",
}


class BrokenLedgerLLM(LLMWrapper):
    """A wrapper whose own work fails after the first call, as a ledger without a database does."""

    def __init__(self, inner: LLM, allowed_calls: int) -> None:
        super().__init__(inner)
        self.allowed_calls = allowed_calls

    async def complete(self, request: LLMRequest) -> LLMReply:
        if not self.allowed_calls:
            raise OSError("the ledger is not reachable")
        self.allowed_calls -= 1
        return await super().complete(request)


@pytest.fixture
def stub() -> Iterator[StubProvider]:
    with StubProvider() as running:
        running.behave = lambda call: answer(
            json.dumps({"insights": [INSIGHT], "bullet_evaluations": []})
        )
        yield running


@pytest.fixture
async def llm(stub: StubProvider) -> AsyncIterator[LLM]:
    opened = open_llm("openai", model="stub", api_key="test", base_url=stub.openai_url)
    assert opened is not None
    yield opened
    await opened.aclose()


async def analyze(llm: LLM, allowed_calls: int) -> Any:
    input = await trajectory_input(Trajectory(query="How many?", generated_answer="4"), "3")
    session = ModelSession(BrokenLedgerLLM(llm, allowed_calls))
    return await analyze_trajectory(input, ReflectorPromptBuilder(), session, max_iterations=3)


async def test_round_2_that_fails_keeps_round_1(llm: LLM) -> None:
    analysis = await analyze(llm, allowed_calls=1)
    assert [i.key_insight for i in analysis.result.insights] == [INSIGHT["key_insight"]]
    assert analysis.result.iteration_count == 1
    assert isinstance(analysis.failure, LLMError)
    assert str(analysis.failure) == "Round 2 failed: OSError."


async def test_round_1_that_fails_is_an_error(llm: LLM) -> None:
    with pytest.raises(OSError, match="ledger"):
        await analyze(llm, allowed_calls=0)
