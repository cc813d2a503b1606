"""A model reflects: what it is shown, what becomes of its answer, what the rows say of it."""

from __future__ import annotations

import pytest

from tests.reflection.conftest import GOOD, Service


@pytest.mark.parametrize("outcome", ["failure", "success", "partial"])
async def test_what_the_model_learnt_is_stored(service: Service, outcome: str) -> None:
    body = await service.learn(outcome=outcome)
    assert body["reflection_text"] == GOOD["reflection"]
    assert body["strategy_text"] == GOOD["strategy"]
    assert (body["importance"], body["confidence"]) == (0.8, 0.9)
    assert body["tags"] == ["fetch", "paging"]
    assert body["source_event_ids"] == ["e0001"]
    assert (body["engine"], body["degraded"], body["result"]) == ("llm", False, "stored")
    strategy = await service.memory(body["strategy_id"])
    assert strategy["content"] == GOOD["strategy"]
    assert "strategy" in strategy["tags"]
    assert strategy["importance"] == pytest.approx(0.88)
    assert strategy["metadata"]["outcome"] == outcome
