"""The rules engine over the real traces, when they lie beside the repository."""

from __future__ import annotations

import pytest

from bench.rules import DEFAULT, Case, load
from memory_api.reflection.schemas import ReflectionResult

pytestmark = pytest.mark.skipif(not DEFAULT.exists(), reason="shared/data/traces.jsonl is absent")


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return load(DEFAULT)


@pytest.fixture(scope="module")
def results(cases: list[Case]) -> list[ReflectionResult | None]:
    return [case.reflect() for case in cases]


def test_no_fact_is_contradicted_by_the_events(cases: list[Case]) -> None:
    false = [(c.raw["id"], s) for c in cases for s in c.statements() if not s.is_true]
    assert false == []


def test_scores_are_distributed(results: list[ReflectionResult | None]):
    assert len({r.importance for r in results if r}) >= 20
    assert len({r.confidence for r in results if r}) >= 20


def test_strategy_does_not_repeat_the_reflection(results: list[ReflectionResult | None]):
    for result in results:
        if result and result.strategy_text:
            assert result.strategy_text not in result.reflection_text


def test_japanese_traces_get_japanese_text(
    cases: list[Case], results: list[ReflectionResult | None]
):
    languages = {
        (c.raw.get("language", "en"), r.metadata["language"])
        for c, r in zip(cases, results, strict=True)
        if r
    }
    assert languages == {("en", "en"), ("ja", "ja")}
