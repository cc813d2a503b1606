"""The answer without a model quotes the best source."""

from __future__ import annotations

from memory_api.grace.tools.port import Source
from memory_api.grace.tools.reasoning import extract_answer


def test_repeated_sentence_is_quoted_once() -> None:
    rule = "A refund of a train ticket takes ten days."
    text = f"{rule} {rule} Call the office for a refund of a train ticket by card. {rule}"
    question = "How long does a refund of a train ticket take?"
    result = extract_answer(question, [Source("doc", text, 0.8)])
    assert result.output.count(rule) == 1
    assert "by card" in result.output
