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

from memory_api.reflection.bullet_usage import load_bullet_usage
from memory_api.reflection.credit.outcome_contrast import (
    MIN_ATTEMPTS_PER_SIDE,
    MIN_CERTAINTY,
    AttemptCounts,
    outcome_tag,
    probability_better,
    record_and_compare,
)
from memory_api.reflection.credit.verdicts import PreparedVerdicts, outcome_verdicts
from memory_api.runtime import Runtime
from memory_api.traces.queries import get_trace, list_events, to_events
from memory_api.traces.schemas import OutcomeType
from tests.support.playbook_api import Book


@st.composite
def sides(draw: st.DrawFn) -> AttemptCounts:
    n1, n0 = draw(st.integers(0, 60)), draw(st.integers(0, 60))
    return AttemptCounts(n1, draw(st.integers(0, n1)), n0, draw(st.integers(0, n0)))


def turned(s: AttemptCounts) -> AttemptCounts:
    return AttemptCounts(s.without_count, s.without_successes, s.with_count, s.with_successes)


def failing(s: AttemptCounts) -> AttemptCounts:
    return AttemptCounts(
        s.with_count,
        s.with_count - s.with_successes,
        s.without_count,
        s.without_count - s.without_successes,
    )


@given(sides())
@settings(max_examples=100)
def test_contrast_is_symmetric(s: AttemptCounts) -> None:
    assert 0 <= probability_better(s) <= 1
    assert probability_better(s) + probability_better(turned(s)) == pytest.approx(1, abs=1e-9)
    assert probability_better(s) + probability_better(failing(s)) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(("s", "chance"), [((2, 2, 2, 0), 0.95), ((0, 0, 0, 0), 0.5)])
def test_probability_matches_hand_calculation(s: tuple[int, int, int, int], chance: float) -> None:
    # Beta(3, 1) over Beta(1, 3): the integral of 3x^2 (1 - (1 - x)^3) over 0..1 is 19/20
    assert probability_better(AttemptCounts(*s)) == pytest.approx(chance)


@given(sides())
@settings(max_examples=100)
def test_only_certain_contrast_counts(s: AttemptCounts) -> None:
    tag = outcome_tag(s)
    mirrored = {"helpful": "harmful", "harmful": "helpful", None: None}
    assert outcome_tag(failing(s)) == mirrored[tag]
    assert outcome_tag(turned(s)) == mirrored[tag]
    if tag is None:
        return
    assert min(s.with_count, s.without_count) >= MIN_ATTEMPTS_PER_SIDE
    ahead = s.with_successes / s.with_count - s.without_successes / s.without_count
    assert ahead > 0 if tag == "helpful" else ahead < 0
    assert max(probability_better(s), 1 - probability_better(s)) >= MIN_CERTAINTY


def test_single_attempt_per_side_does_not_count() -> None:
    assert outcome_tag(AttemptCounts(1, 1, 50, 0)) is None
    assert outcome_tag(AttemptCounts(50, 50, 1, 0)) is None
    assert outcome_tag(AttemptCounts(0, 0, 9, 0)) is None
    assert outcome_tag(AttemptCounts(4, 4, 4, 0)) == "helpful"
    assert outcome_tag(AttemptCounts(2, 2, 40, 40)) is None


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
            "used_bullet_keys": [f"pat-{n}" for n in keys],
            "events": [{"event_type": "user_message", "content": "Do it"}],
        }
        if keys:
            body["playbook"] = self.book.name
        sent = await self.book.api.post("/api/v1/traces?reflect=never", json=body | more)
        assert sent.status_code == 201, sent.text
        return UUID(sent.json()["trace_id"])

    async def count(self, trace_id: UUID) -> None:
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            trace = await get_trace(session, trace_id)
            assert trace is not None
            use = await load_bullet_usage(
                session, trace, to_events(await list_events(session, trace_id))
            )
            outcome = OutcomeType(trace.outcome or "partial")
            verdicts = outcome_verdicts(use.bullets, outcome, trace_id=trace_id)
            await record_and_compare(session, trace, PreparedVerdicts(use.playbook, verdicts))

    async def attempt(self, outcome: str, keys: str, **more: Any) -> UUID:
        trace_id = await self.send(outcome, keys, **more)
        await self.count(trace_id)
        return trace_id

    async def counters(self) -> list[tuple[int, int, int]]:
        return [(b["helpful"], b["harmful"], b["neutral"]) for b in await self.book.bullets()]


@pytest.fixture
def task(book: Book, runtime: Runtime, tenant: Any) -> Task:
    return Task(book, runtime, tenant.id)


async def test_outcomes_of_one_side_do_not_count(task: Task) -> None:
    for n in range(6):
        await task.attempt("failure", "1", task_key=f"t{n}")
        await task.attempt("failure", "12", task_key="one")
    assert await task.counters() == [(0, 0, 0), (0, 0, 0)]


async def test_late_attempt_makes_earlier_outcomes_count(task: Task) -> None:
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


async def test_harm_is_confirmed_and_can_be_withdrawn(task: Task) -> None:
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


async def test_runs_with_other_playbook_count_as_without_bullet(task: Task) -> None:
    other = Book(task.book.api, "other")
    await other.deltas({"type": "ADD", "section": "pat", "content": "elsewhere"})
    for _ in range(4):
        await task.attempt("success", "1")
        await task.attempt("failure", "1", playbook="other")
    assert await task.counters() == [(1, 0, 0), (0, 0, 0)]
    (bullet,) = await other.bullets()
    assert (bullet["helpful"], bullet["harmful"]) == (0, 1)


async def test_verdict_with_evidence_wins_over_outcome(task: Task) -> None:
    for trace_id in [await task.attempt("success", "1") for _ in range(4)]:
        await task.book.post("bullets/pat-00001/verdicts", tag="neutral", trace_id=str(trace_id))
    for _ in range(4):
        await task.attempt("failure", "")
    assert await task.counters() == [(0, 0, 4), (0, 0, 0)]


@pytest.mark.parametrize("seed", [1, 2])
async def test_order_of_arrival_does_not_matter(
    task: Task, runtime: Runtime, tenant: Any, seed: int
) -> None:
    attempts = [("success", "1")] * 3 + [("success", "12"), ("failure", "2")]
    attempts += [("failure", "")] * 4
    random.Random(seed).shuffle(attempts)
    ids = [await task.send(outcome, keys) for outcome, keys in attempts]
    await asyncio.gather(*(task.count(trace_id) for trace_id in ids))
    assert await task.counters() == [(1, 0, 0), (0, 0, 0)]
