"""The hold-out of all advice: who gets none, what is recorded, and what the comparison says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from httpx2 import ASGITransport, AsyncClient

from memory_api.analytics.improvement import MIN_RUNS, improvement_of
from memory_api.playbooks.effects.holdout import is_advice_held_out
from memory_api.playbooks.tables import RetrievalRow
from memory_api.runtime import Runtime
from tests.conftest import TestTenant
from tests.support.cases import each_case
from tests.support.live_service import with_runtime
from tests.support.playbook_api import Book

SECRET = b"s" * 32


def test_share_of_sessions_is_drawn_once() -> None:
    sessions = [f"session {n}" for n in range(4_000)]
    drawn = [is_advice_held_out(SECRET, 1, each, 0.2) for each in sessions]
    assert 700 < sum(drawn) < 900
    assert drawn == [is_advice_held_out(SECRET, 1, each, 0.2) for each in sessions]
    assert drawn != [is_advice_held_out(b"t" * 32, 1, each, 0.2) for each in sessions]
    assert not any(is_advice_held_out(SECRET, 1, each, 0.0) for each in sessions)
    assert all(is_advice_held_out(SECRET, 1, each, 1.0) for each in sessions)


@pytest.fixture
async def book(app: FastAPI, runtime: Runtime, tenant: TestTenant) -> Any:
    settings = runtime.settings.model_copy(update={"advice_holdout_share": 0.5})
    transport = ASGITransport(with_runtime(app, replace(runtime, settings=settings)))
    async with AsyncClient(
        transport=transport, base_url="http://hansei", headers=tenant.auth()
    ) as api:
        book = Book(api)
        await book.deltas({"type": "ADD", "content": "Never close a ticket early."})
        yield book


async def test_withheld_block_is_recorded(book: Book, runtime: Runtime, tenant: TestTenant) -> None:
    sides: set[bool] = set()
    for number in range(40):
        session = f"session {number}"
        first, again = [
            (await book.post("render", query_text="ticket", session_id=session)).json()
            for _ in range(2)
        ]
        held_out = first["advice_held_out"]
        assert again["advice_held_out"] is held_out, "the same in the whole session"
        assert (first["text"] == "") is held_out
        assert (first["bullet_keys"] == []) is held_out
        async with runtime.sessions.for_tenant(tenant.id) as db:
            row = await db.get(RetrievalRow, (tenant.id, UUID(first["retrieval_id"])))
        assert row is not None
        assert row.advice_held_out is held_out
        sides.add(held_out)
    assert sides == {True, False}
    whole = [(await book.post("render", holdout_share=0)).json() for _ in range(20)]
    assert all(block["text"] for block in whole), "such a render takes part in no hold-out"
    none = (await book.post("render", sections=["no such section"])).json()
    async with runtime.sessions.for_tenant(tenant.id) as db:
        row = await db.get(RetrievalRow, (tenant.id, UUID(none["retrieval_id"])))
    assert row is not None
    assert row.advice_held_out is None, "without advice there is nothing to withhold"


async def test_improvement_compares_both_sides(book: Book) -> None:
    counts = {True: 0, False: 0}
    for number in range(24):
        block = (await book.post("render", session_id=f"s{number}")).json()
        held_out = block["advice_held_out"]
        counts[held_out] += 1
        outcome = "failure" if held_out else "success"
        await book.trace(
            playbook=book.url.rpartition("/")[2],
            retrieval_id=block["retrieval_id"],
            outcome=outcome,
        )
    await book.trace(playbook=book.url.rpartition("/")[2], outcome="partial")
    await book.trace(outcome="failure")
    answer = await book.api.get("/api/v1/analytics/improvement")
    rows = answer.json()["rows"]
    (total,) = [row for row in rows if row["playbook"] is None and row["week"] is None]
    assert (total["runs"], total["successes"]) == (24, counts[False])
    assert (total["with_runs"], total["with_successes"]) == (counts[False], counts[False])
    assert (total["without_runs"], total["without_successes"]) == (counts[True], 0)
    assert total["difference"] == 1.0
    assert 0 < total["low"] < 1
    assert total["high"] == pytest.approx(1.0)
    weeks = [row for row in rows if row["playbook"] is None and row["week"]]
    assert sum(row["runs"] for row in weeks) == 24
    assert {row["playbook"] for row in rows} == {None, book.url.rpartition("/")[2]}


def row(
    with_runs: int, without_runs: int, low: float | None = -0.2, high: float | None = 0.3
) -> dict[str, Any]:
    return {
        "playbook": None,
        "week": None,
        "runs": with_runs + without_runs + 5,
        "rate": 0.5,
        "with_runs": with_runs,
        "without_runs": without_runs,
        "with_rate": 0.6,
        "without_rate": 0.5,
        "low": low,
        "high": high,
    }


@each_case(
    ("total", "share", "answer"),
    [
        (None, 0.1, "no_runs"),
        (row(0, 0), 0.0, "no_holdout"),
        (row(0, 0), 0.1, "more_runs"),
        (row(50, 3), 0.1, "more_runs"),
        (row(MIN_RUNS - 1, 90, 0.1, 0.4), 0.1, "more_runs"),
        (row(200, 200, 0.01, 0.2), 0.5, "better"),
        (row(200, 200, -0.2, -0.01), 0.5, "worse"),
        (row(200, 20), 0.1, "more_runs"),
        (row(5_000, 5_000, -0.01, 0.01), 0.5, "same"),
    ],
)
def test_answer_and_missing_runs(total: Any, share: float, answer: str) -> None:
    improvement = improvement_of([total] if total else [], share)
    assert improvement.answer == answer
    if answer == "more_runs":
        assert 1 <= improvement.missing_runs < 20_000


def test_missing_runs_become_fewer() -> None:
    missing = [improvement_of([row(9 * n, n)], 0.1).missing_runs for n in range(1, 400, 20)]
    assert missing == sorted(missing, reverse=True)
    assert missing[-1] == 0
