"""What a judge may call supported: the words of a claim must be in a source."""

from __future__ import annotations

from typing import Any

import pytest

from memory_api.grace.tools import reasoning
from memory_api.grace.tools.port import Source
from memory_api.grace.tools.reasoning import SourceWords
from memory_api.text.terms import document_weights
from tests.grace.conftest import Agent
from tests.grace.test_agent_with_model import QUERY, Model, judgment, model, planned
from tests.support.cases import each_case

__all__ = ["model"]


@each_case(
    ("claim", "expected"),
    [
        ("The Heron saw is repaired in Bergen.", True),
        ("The Falcon is sold in Oslo.", False),
        ("ヘロン鋸はベルゲンで12日以内に修理されます。", None),
        ("Heron のこぎりは Bergen の倉庫で修理されます。", None),
        ("Heron のこぎりは Oslo の倉庫で修理されます。", False),
        ("ベルゲンで36日以内に修理されます。", False),
    ],
)
def test_words_are_compared_in_the_scripts_of_the_source(claim: str, expected: bool | None) -> None:
    """In another script, a claim is undecided, but its names and numbers are compared."""
    text = "The Heron saw is repaired in the depot at Bergen within 12 days."
    assert SourceWords([Source("handbook.md", text, 0.9)]).are_in(claim) is expected


async def test_answer_in_another_script_is_never_silent(agent: Agent, model: Model) -> None:
    """A judge calls it supported, but nobody can compare its words with the source."""
    claim = "保留中の注文は返金できません。"
    model.answers["plan"] = [planned(("rag_search", []), ("reasoning", [1]))]
    model.answers["answer"] = [{"answer": f"{claim} [1]", "sufficient": True}]
    model.answers["judge"] = [judgment("supported", claim=claim)]
    run = await agent.ask(QUERY)
    step = run["steps"][-1]
    assert (run["state"], step["level"], step["breakdown"]["support"]) == ("done", "notify", 1)


def test_sources_are_read_once_for_all_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sentence of an answer read them again."""
    read: list[str] = []

    def watch(text: str) -> Any:
        read.append(text)
        return document_weights(text)

    monkeypatch.setattr(reasoning, "document_weights", watch)
    source = Source("handbook.md", "A return takes 30 days.", 0.9)
    found = reasoning.judge_by_rules("It takes 30 days. " * 50, [source])
    assert found.supported == 50
    assert sum("A return" in text for text in read) == 1
