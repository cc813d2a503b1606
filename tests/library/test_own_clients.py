"""`ReflectorAgent` with an own client and with an own evaluation, as its document prints them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from memory_api.library.llm_client import LLMClient, create_chat_model
from memory_api.library.playbook_store import PlaybookStore
from memory_api.library.reflector_agent import ReflectorAgent
from memory_api.library.reflector_prompt import ReflectorPromptBuilder
from memory_api.reflection.trajectories.schemas import BulletEvaluation, Trajectory
from tests.library.test_reflector_agent import store
from tests.support.stub_provider import Call, Reply, StubProvider, answer
from tests.support.trajectories import ASKED, BOTH, TRAJECTORY, insight, said

__all__ = ["store"]

REPLY = said(insight(), verdicts=BOTH).text


class Prompts:
    """What a client was asked."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def answer(self, template: str, variables: Mapping[str, str]) -> str:
        self.prompts.append(template.format_map(dict(variables)))
        return REPLY


class PlainClient(Prompts):
    """Has only the methods of the document."""

    def invoke(self, messages: Any) -> Any:
        raise NotImplementedError

    def invoke_with_template(self, template: str, variables: Mapping[str, str]) -> str:
        return self.answer(template, variables)


class OwnClient(LLMClient, Prompts):
    def __init__(self) -> None:
        LLMClient.__init__(self, None)  # type: ignore[arg-type]
        Prompts.__init__(self)

    def invoke_with_template(self, template: str, variables: Mapping[str, str]) -> str:
        return self.answer(template, variables)


@pytest.mark.parametrize("kind", [PlainClient, OwnClient])
def test_own_client_is_asked(kind: type[Any], store: PlaybookStore) -> None:
    client = kind()
    result = ReflectorAgent(client, ReflectorPromptBuilder(), store).run(*ASKED)
    assert [each.key_insight for each in result.insights] == [insight()["key_insight"]]
    assert [each.tag for each in result.bullet_evaluations] == ["helpful", "neutral"]
    (prompt,) = client.prompts
    assert TRAJECTORY.generated_answer in prompt
    assert prompt.startswith("# A reflector")


async def test_own_client_is_asked_inside_an_event_loop(store: PlaybookStore) -> None:
    client = PlainClient()
    agent = ReflectorAgent(client, ReflectorPromptBuilder(), store)
    assert len((await agent.arun(*ASKED)).insights) == 1
    assert agent.llm_client is client


class HelpfulOnly(ReflectorAgent):
    """Overrides the evaluation as the document prints it."""

    def _evaluate_bullets(
        self, trajectory: Trajectory, ground_truth: str, used_bullets: Any
    ) -> list[BulletEvaluation]:
        default: Any = super()._evaluate_bullets(trajectory, ground_truth, used_bullets)
        return [each for each in default if each.tag == "helpful"]


def evaluate(call: Call) -> Reply:
    if "Steps of reasoning" in call.text and "Test report" in call.text:
        return said(insight())
    tag = "helpful" if "Read small files" in call.text else "harmful"
    return answer({"tag": tag, "reason": "Nothing else was done."})


@pytest.mark.parametrize("inside_loop", [False, True])
async def test_own_evaluation_uses_the_default(
    inside_loop: bool, store: PlaybookStore, stub: StubProvider
) -> None:
    stub.behave = evaluate
    client = LLMClient(create_chat_model("openai", "stub", base_url=stub.openai_url))
    agent = HelpfulOnly(client, ReflectorPromptBuilder(), store)
    if inside_loop:
        result = await agent.arun(*ASKED)
    else:
        result = await asyncio.to_thread(agent.run, *ASKED)
    await asyncio.to_thread(client.close)
    assert [each.bullet_id for each in result.bullet_evaluations] == ["pat-00001"]
    assert len(result.insights) == 1


def test_own_evaluation_without_a_model_has_no_verdicts(store: PlaybookStore) -> None:
    result = HelpfulOnly(None, ReflectorPromptBuilder(), store).run(*ASKED)
    assert result.bullet_evaluations == []
