"""When an outcome counts: the rule as arithmetic, and over rows as attempts come in."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.memory_api.reflection.contrast import LEAST, SURE, Sides, chance_better, contrast
from apps.memory_api.reflection.count import count
from apps.memory_api.reflection.judge import outcome_verdict
from apps.memory_api.reflection.used import use_of
from apps.memory_api.runtime import Runtime
from apps.memory_api.traces.queries import get_trace, list_events
from apps.memory_api.traces.schemas import OutcomeType
from tests.playbook.rows import Book


@st.composite
def sides(draw: st.DrawFn) -> Sides:
    n1, n0 = draw(st.integers(0, 60)), draw(st.integers(0, 60))
    return Sides(n1, draw(st.integers(0, n1)), n0, draw(st.integers(0, n0)))


def turned(s: Sides) -> Sides:
    return Sides(s.without_n, s.without_won, s.with_n, s.with_won)


def failing(s: Sides) -> Sides:
    return Sides(s.with_n, s.with_n - s.with_won, s.without_n, s.without_n - s.without_won)


@given(sides())
@settings(max_examples=300)
def test_either_is_better(s: Sides) -> None:
    assert 0 <= chance_better(s) <= 1
    assert chance_better(s) + chance_better(turned(s)) == pytest.approx(1, abs=1e-9)
    assert chance_better(s) + chance_better(failing(s)) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(("s", "chance"), [((2, 2, 2, 0), 0.95), ((0, 0, 0, 0), 0.5)])
def test_the_chance_by_hand(s: tuple[int, int, int, int], chance: float) -> None:
    # Beta(3, 1) over Beta(1, 3): the integral of 3x^2 (1 - (1 - x)^3) over 0..1 is 19/20
    assert chance_better(Sides(*s)) == pytest.approx(chance)


@given(sides())
@settings(max_examples=300)
def test_what_counts_is_sure_and_was_seen(s: Sides) -> None:
    tag = contrast(s)
    mirrored = {"helpful": "harmful", "harmful": "helpful", None: None}
    assert contrast(failing(s)) == mirrored[tag]
    assert contrast(turned(s)) == mirrored[tag]
    if tag is None:
        return
    assert min(s.with_n, s.without_n) >= LEAST
    ahead = s.with_won / s.with_n - s.without_won / s.without_n
    assert ahead > 0 if tag == "helpful" else ahead < 0
    assert max(chance_better(s), 1 - chance_better(s)) >= SURE


def test_one_attempt_on_a_side_says_nothing() -> None:
    assert contrast(Sides(1, 1, 50, 0)) is None
    assert contrast(Sides(50, 50, 1, 0)) is None
    assert contrast(Sides(0, 0, 9, 0)) is None
    assert contrast(Sides(4, 4, 4, 0)) == "helpful"
    assert contrast(Sides(2, 2, 40, 40)) is None


@pytest.fixture
async def book(api: AsyncClient) -> Book:
    book = Book(api)
    await book.deltas(*({"type": "ADD", "section": "pat", "content": f"no. {n}"} for n in (1, 2)))
    return book


class Task:
    """Attempts of one task, sent and counted."""

    def __init__(self, book: Book, runtime: Runtime, tenant_id: UUID) -> None:
        self.book, self.runtime, self.tenant_id = book, runtime, tenant_id

    async def send(self, outcome: str, keys: str, task_key: str = "task", **more: Any) -> UUID:
        body = {
            "task_key": task_key,
            "outcome": outcome,
            "used_keys": [f"pat-{n}" for n in keys],
            "events": [{"event_type": "user_message", "content": "Do it"}],
        }
        if keys:
            body["playbook"] = self.book.name
        sent = await self.book.api.post("/api/v1/traces?reflect=never", json=body | more)
        assert sent.status_code == 201, sent.text
        return UUID(sent.json()["trace_id"])

    async def count(self, trace_id: UUID) -> None:
        async with self.runtime.sessions.tenant(self.tenant_id) as session:
            trace = await get_trace(session, trace_id)
            assert trace is not None
            use = await use_of(session, trace, await list_events(session, trace_id))
            outcome = OutcomeType(trace.outcome or "partial")
            verdicts = [outcome_verdict(bullet, outcome, trace_id) for bullet in use.bullets]
            await count(session, use.place, trace, verdicts, {})

    async def attempt(self, outcome: str, keys: str, **more: Any) -> UUID:
        trace_id = await self.send(outcome, keys, **more)
        await self.count(trace_id)
        return trace_id

    async def counters(self) -> list[tuple[int, int, int]]:
        return [(b["helpful"], b["harmful"], b["neutral"]) for b in await self.book.bullets()]


@pytest.fixture
def task(book: Book, runtime: Runtime, tenant: Any) -> Task:
    return Task(book, runtime, tenant.id)


async def test_outcomes_alone_count_nothing(task: Task) -> None:
    for n in range(6):
        await task.attempt("failure", "1", task_key=f"t{n}")
        await task.attempt("failure", "12", task_key="one")
    assert await task.counters() == [(0, 0, 0), (0, 0, 0)]


async def test_a_late_attempt_makes_earlier_outcomes_count(task: Task) -> None:
    for _ in range(3):
        await task.attempt("success", "1")
        await task.attempt("failure", "")
    assert await task.counters() == [(0, 0, 0), (0, 0, 0)]
    last = await task.attempt("failure", "")
    assert await task.counters() == [(1, 0, 0), (0, 0, 0)]
    for _ in range(3):
        await task.count(last)
    assert await task.counters() == [(1, 0, 0), (0, 0, 0)]
    assert (await task.book.now())[0] == 1, "votes raise no version"
    assert await task.book.problems() == []


async def test_harm_is_confirmed_the_same_way_and_can_be_taken_back(task: Task) -> None:
    for _ in range(4):
        await task.attempt("success", "2")
        await task.attempt("timeout", "1")
    assert await task.counters() == [(0, 1, 0), (1, 0, 0)]
    for _ in range(4):
        await task.attempt("success", "1")
        await task.attempt("failure", "2")
    assert await task.counters() == [(0, 0, 0), (0, 0, 0)]


async def test_other_tasks_projects_and_unfinished_runs_do_not_compare(task: Task) -> None:
    for _ in range(4):
        await task.attempt("success", "1")
    for more in ({"task_key": "other"}, {"project_id": "other"}, {"outcome": "partial"}):
        for _ in range(5):
            await task.attempt(**{"outcome": "failure", "keys": "", **more})
    assert await task.counters() == [(0, 0, 0), (0, 0, 0)]


async def test_runs_of_another_playbook_are_without_the_bullet(task: Task) -> None:
    other = Book(task.book.api, "other")
    await other.deltas({"type": "ADD", "section": "pat", "content": "elsewhere"})
    for _ in range(4):
        await task.attempt("success", "1")
        await task.attempt("failure", "1", playbook="other")
    assert await task.counters() == [(1, 0, 0), (0, 0, 0)]
    (bullet,) = await other.bullets()
    assert (bullet["helpful"], bullet["harmful"]) == (0, 1)


async def test_a_verdict_that_saw_the_run_stands_before_its_outcome(task: Task) -> None:
    for trace_id in [await task.attempt("success", "1") for _ in range(4)]:
        await task.book.post("bullets/pat-00001/evaluations", tag="neutral", trace_id=str(trace_id))
    for _ in range(4):
        await task.attempt("failure", "")
    assert await task.counters() == [(0, 0, 4), (0, 0, 0)]


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_order_of_arrival_does_not_matter(
    task: Task, runtime: Runtime, tenant: Any, seed: int
) -> None:
    attempts = [("success", "1")] * 3 + [("success", "12"), ("failure", "2")]
    attempts += [("failure", "")] * 4
    random.Random(seed).shuffle(attempts)
    ids = [await task.send(outcome, keys) for outcome, keys in attempts]
    await asyncio.gather(*(task.count(trace_id) for trace_id in ids))
    assert await task.counters() == [(1, 0, 0), (0, 0, 0)]
