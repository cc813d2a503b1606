"""Strategies are applied (S5.53): the next prompt holds them, and how that run ends flows back to
them. Reflections and strategies have a history as bullets have (S5.54).
"""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient

from memory_api.runtime import Runtime
from tests.reflection.credit.test_outcome_contrast import Task
from tests.support.playbook_api import Book

FAILED = {
    "outcome": "failure",
    "error": {"error_category": "permission_error", "error_message": "permission denied"},
    "task_description": "Refund order 7",
    "events": [
        {"event_type": "user_message", "content": "Please refund order 7"},
        {"event_type": "tool_call", "tool_name": "send_refund", "content": '{"id": "7"}'},
        {
            "event_type": "error_event",
            "tool_name": "send_refund",
            "content": "permission denied: the order was not looked up",
            "error": {"message": "permission denied: the order was not looked up"},
        },
    ],
}


@pytest.fixture
async def learnt(api: AsyncClient) -> dict[str, Any]:
    """A reflection and its strategy, out of a failed run."""
    answer = await api.post("/api/v1/reflections/generate", json=FAILED)
    assert answer.status_code == 200, answer.text
    assert answer.json()["strategy_id"]
    return answer.json()


async def test_strategy_reaches_next_prompt_and_gets_its_outcome(
    learnt: dict[str, Any], api: AsyncClient, app: FastAPI, runtime: Runtime, tenant: Any
) -> None:
    book = Book(api)
    noise = [f"Water the plants on day {n}" for n in range(30)]
    strategy = {"type": "ADD", "section": "mis", "content": learnt["strategy_text"]}
    await book.deltas(strategy, *({"type": "ADD", "section": "oth", "content": x} for x in noise))
    asked = {"query_text": "refund order 9: send_refund says permission denied", "top_k": 3}
    task = Task(book, runtime, tenant.id)
    for _ in range(4):
        block = (await book.post("render", **asked)).json()
        assert "mis-00001" in block["bullet_keys"]
        assert learnt["strategy_text"] in block["text"]
        await task.attempt("success", "", playbook=book.name, retrieval_id=block["retrieval_id"])
        await task.attempt("failure", "")
    bullet = (await api.get(f"{book.url}/bullets/mis-00001")).json()
    assert (bullet["helpful"], bullet["harmful"]) == (1, 0)
    verdicts = (await api.get(f"{book.url}/bullets/mis-00001/verdicts")).json()["items"]
    assert {(v["judge"], v["tag"]) for v in verdicts} == {("outcome", "helpful")}
    assert [v["confirmed"] for v in verdicts].count(True) == 1
    assert verdicts[0]["evidence"] == {"outcome": "success", "how": "served"}
    assert len(verdicts) == 4
    (effect,) = [
        item
        for item in (await api.get(f"{book.url}/effects")).json()["items"]
        if item["key"] == "mis-00001"
    ]
    assert effect["observational"]["with"] == {"runs": 4, "successes": 4, "rate": 1.0}


@pytest.mark.parametrize("which", ["reflection", "strategy"])
async def test_learned_memory_has_history(
    learnt: dict[str, Any], api: AsyncClient, which: str
) -> None:
    url = f"/api/v1/memories/{learnt[f'{which}_id']}"
    first = (await api.get(url)).json()["content"]
    for n in (1, 2):
        change = {"content": f"Other words, no. {n}", "reason": f"clearer {n}"}
        (await api.patch(url, json=change)).raise_for_status()
    (await api.patch(url, json={"importance": 0.2})).raise_for_status()
    (await api.delete(url)).raise_for_status()
    kept = (await api.get(f"{url}/revisions")).json()["items"]
    kept.sort(key=lambda revision: revision["revision"])
    said = [revision["content"] for revision in kept]
    assert said[:3] == [first, "Other words, no. 1", "Other words, no. 2"]
    assert [r["reason"] for r in kept[1:3]] == ["clearer 1", "clearer 2"]
    assert kept[3]["importance"] == pytest.approx(0.2)
    assert kept[-1]["status"] == "deleted"
    assert kept[0]["actor"] != kept[1]["actor"], "who wrote it first and who changed it"
