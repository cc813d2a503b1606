"""The chain with a model that fails in every way: Hansei learns from each trace, or a run states
why not, and nothing is requested or counted twice.

HANSEI_LONG=1 takes 200 traces in place of 24; with -s it prints what they cost in tokens.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest
from fastapi import FastAPI
from sqlalchemy import select, update

from memory_api.curation.step import EXHAUSTED_REASON
from memory_api.curation.tables import CuratedLessonRow
from memory_api.learning import RUN_STEPS
from memory_api.llm.circuit_breaker import CircuitBreakers
from memory_api.maintenance.upkeep import enqueue_missing_curations
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.tables import BulletVerdictRow, InboxLessonRow
from memory_api.run_queue.port import Ticket
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.worker import process_ticket
from tests.conftest import TestTenant
from tests.support.live_service import with_runtime
from tests.support.model_service import Clock, Service, with_model
from tests.support.stub_provider import (
    Call,
    Reply,
    StubProvider,
    answer,
    fenced,
    hang,
    max_tokens,
    prose,
    rate_limited,
    refusal,
)
from tests.support.tickets import waiting_tickets

TRACES = 200 if os.environ.get("HANSEI_LONG") == "1" else 24
AT_ONCE = 8
SEED = "Ask who the report is for before it is written."

VERBS = ("Confirm", "Recount", "Archive", "Translate", "Postpone", "Measure", "Sketch", "Invite",
         "Unplug", "Label", "Rinse", "Compare", "Sign")  # fmt: skip
THINGS = ("the customs form", "every invoice", "the spare battery", "an older backup",
          "the seating plan", "both contracts", "the tide table", "a second witness",
          "the cooling pump", "the guest list", "the harvest log")  # fmt: skip
MOMENTS = ("before the ferry leaves", "when the auditor calls", "after a power cut",
           "once the snow melts", "if the printer jams", "while the choir rehearses",
           "unless the warden objects")  # fmt: skip

Given = Callable[[dict[str, Any]], Reply]
"""How a good answer is handed over, or what comes in its place."""


def cut(value: dict[str, Any]) -> Reply:
    """JSON that breaks off in the middle of a sentence although the model says it was done."""
    return answer(json.dumps(value)[:40])


def busy(_: dict[str, Any]) -> Reply:
    return rate_limited(retry_after=1)


def silent(_: dict[str, Any]) -> Reply:
    return hang()


def refused(_: dict[str, Any]) -> Reply:
    return refusal()


@dataclass(frozen=True)
class Plan:
    """What the model does on a trace: the replies before the good one, by purpose; `always` keeps
    the last of them up. `code` is the cause that the dead run must show.
    """

    reflect: Sequence[Given] = ()
    curate: Sequence[Given] = ()
    always: bool = False
    code: str | None = None
    good: Given = answer


PLANS = (
    Plan(),
    Plan(reflect=[busy]),
    Plan(reflect=[silent]),
    Plan(good=fenced),
    Plan(good=prose),
    Plan(reflect=[cut]),
    Plan(reflect=[max_tokens], curate=[max_tokens]),
    Plan(reflect=[refused], always=True, code="llm_refused"),
    Plan(curate=[busy, busy]),
    Plan(curate=[silent, cut]),
    Plan(curate=[refused], always=True, code="llm_refused"),
    Plan(reflect=[cut], always=True, code="llm_unparseable"),
)


def strategy(number: int) -> str:
    """Advice like no other's: neighbours have no word of weight in common."""
    picks = (words[number % len(words)] for words in (VERBS, THINGS, MOMENTS))
    return " ".join(picks) + "."


STRATEGIES = {strategy(number): number for number in range(TRACES)}


@dataclass
class Model:
    """Knows from the prompt which trace it is asked about, and counts what it did."""

    asked: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    failed: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    beginnings: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def __call__(self, call: Call) -> Reply:
        purpose = "reflect" if "root_cause" in (call.schema or {})["properties"] else "curate"
        number, value = getattr(self, purpose)(call)
        self.beginnings[purpose].add(call.system)
        plan = PLANS[number % len(PLANS)]
        failures: Sequence[Given] = getattr(plan, purpose)
        told = self.asked[purpose, number]
        self.asked[purpose, number] += 1
        if failures and (plan.always or told < len(failures)):
            self.failed[purpose, number] += 1
            return failures[min(told, len(failures) - 1)](value)
        return plan.good(value)

    def reflect(self, call: Call) -> tuple[int, dict[str, Any]]:
        number = int(re.findall(r"Case (\d+)", call.user)[0])
        verdicts = [{"key": key, "tag": "harmful", "reason": "Asking cost the agent its only turn."}
                    for key in re.findall(r"\[(\w+-\d{5})\]", call.user)]  # fmt: skip
        return number, {
            "reflection": f"The agent overlooked a step in case {number} and stopped early.",
            "strategy": strategy(number),
            "importance": 0.7,
            "confidence": 0.8,
            "tags": ["step"],
            "source_event_ids": [],
            "verdicts": verdicts[:1],
        }

    def curate(self, call: Call) -> tuple[int, dict[str, Any]]:
        """Numbered after the lesson of the batch that the model has most trouble with."""
        texts = re.findall(r"^\d+\. \(strategy\) (.+)$", call.user, re.MULTILINE)
        adds = [
            {"type": "ADD", "lessons": [n], "content": text, "reasoning": "It is new."}
            for n, text in enumerate(texts, start=1)
        ]
        numbers = [STRATEGIES[text] for text in texts]
        worst = max(numbers, key=lambda n: (PLANS[n % len(PLANS)].always, self._failures_left(n)))
        return worst, {"reasoning": "All are new.", "operations": adds}

    def _failures_left(self, number: int) -> int:
        return len(PLANS[number % len(PLANS)].curate) - self.asked["curate", number]


@pytest.fixture
async def service(app: FastAPI, runtime: Runtime, tenant: TestTenant) -> AsyncIterator[Service]:
    """The API and a worker; 1.5 s is far more than the stub needs on a busy machine."""
    clock = Clock()
    with StubProvider() as stub:
        front = with_model(runtime, stub, "anthropic", CircuitBreakers(clock), attempts=1)
        front = replace(
            front,
            settings=front.settings.model_copy(
                update={"llm_timeout": 1.5, "reflection_batch_size": 1}
            ),
        )
        transport = httpx2.ASGITransport(with_runtime(app, front), raise_app_exceptions=False)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://hansei", headers=tenant.auth()
        ) as api:
            yield Service(front, front, clock, stub, tenant, api)
        assert front.llm is not None
        await front.llm.aclose()


def trace(number: int, seed: str) -> dict[str, Any]:
    return {
        "external_id": f"case-{number}",
        "task_description": f"Case {number}: bring the report",
        "playbook": "desk",
        "used_bullet_keys": [seed],
        "outcome": "failure",
        "events": [
            {"event_type": "user_message", "content": f"Bring the report of case {number}"},
            {"event_type": "tool_call", "tool_name": "fetch", "content": f"fetch({number})"},
            {"event_type": "error_event", "tool_name": "fetch", "content": "timed out after 30 s"},
        ],
    }


async def send(service: Service, lines: str) -> list[dict[str, Any]]:
    kind = {"Content-Type": "application/x-ndjson"}
    answered = await service.api.post("/api/v1/traces", content=lines, headers=kind)
    return answered.json()["items"]


async def settle(service: Service) -> None:
    """Work as a worker does, `AT_ONCE` runs at a time, until none waits; a minute passes between
    the rounds.
    """
    tickets = await waiting_tickets(service.runtime, service.tenant.id)
    for _ in range(200):
        if not tickets:
            return
        late: list[Ticket] = []
        seats = asyncio.Semaphore(AT_ONCE)

        async def deliver(
            ticket: Ticket, seats: asyncio.Semaphore = seats, late: list[Ticket] = late
        ) -> None:
            async with seats:
                if await process_ticket(service.background, ticket) is not None:
                    late.append(ticket)

        await asyncio.gather(*map(deliver, tickets))
        service.clock.now += 60
        tickets = [*late, *await waiting_tickets(service.runtime, service.tenant.id)]
    left = [
        (run.kind, run.state, run.attempt_count, run.error)
        for run in await rows(service, RunRow, RunRow.state.in_(("queued", "running")))
    ]
    raise AssertionError(f"some runs never end: {left}")


async def rows(service: Service, table: Any, *where: Any) -> list[Any]:
    async with service.runtime.sessions.for_tenant(service.tenant.id) as session:
        mine = select(table).where(table.tenant_id == service.tenant.id, *where)
        return list(await session.scalars(mine))


async def make_old(service: Service) -> None:
    async with service.runtime.sessions.for_tenant(service.tenant.id) as session:
        old = datetime.now(UTC) - timedelta(minutes=10)
        mine = InboxLessonRow.tenant_id == service.tenant.id
        await session.execute(update(InboxLessonRow).where(mine).values(created_at=old))


def step_of(run: RunRow) -> int:
    return list(RUN_STEPS).index(run.kind)


@pytest.mark.timeout(600)
async def test_every_trace_is_learned_from_or_reports_reason(service: Service) -> None:
    service.stub.behave = model = Model()
    made = await service.api.post("/api/v1/playbooks/desk/bullets", json={"content": SEED})
    seed = made.json()["bullet"]["id"]
    sent = "\n".join(json.dumps(trace(n, seed)) for n in range(TRACES))
    taken = await send(service, sent)
    numbers = {UUID(one["trace_id"]): n for n, one in enumerate(taken)}
    await settle(service)
    again = await send(service, sent)
    assert all(one["duplicate"] for one in again)
    await settle(service)

    chains: dict[int, dict[str, RunRow]] = defaultdict(dict)
    reflecting = RunRow.kind.in_(("evaluate", "reflect"))
    for run in sorted(await rows(service, RunRow, reflecting), key=step_of):
        kinds = chains[numbers[run.trace_id]]
        assert run.kind not in kinds, "one run a step"
        kinds[run.kind] = run
    assert set(chains) == set(range(TRACES))
    for number, chain in chains.items():
        plan = PLANS[number % len(PLANS)]
        assert [*chain] == ["evaluate", "reflect"]
        if plan.code is not None and plan.reflect:
            assert (chain["reflect"].state, chain["reflect"].error["code"]) == ("dead", plan.code)
        else:
            assert {run.state for run in chain.values()} == {"done"}

    for _ in range(100):  # the lessons of a dead curation: upkeep, and then smaller batches
        if not await rows(service, InboxLessonRow):
            break
        await make_old(service)
        await enqueue_missing_curations(service.background, service.tenant.id)
        await settle(service)
    assert await rows(service, InboxLessonRow) == []
    for number, chain in chains.items():
        good = chain["reflect"].state == "done"
        tried = model.asked["reflect", number]
        assert tried == model.failed["reflect", number] + good, number
    assert {purpose: len(seen) for purpose, seen in model.beginnings.items()} == {
        "reflect": 1,
        "curate": 1,
    }, "what is fixed in a prompt comes first"

    lessons = await rows(service, MemoryRow, MemoryRow.kind == "strategy")
    thought = [n for n, chain in chains.items() if chain["reflect"].state == "done"]
    assert sorted(numbers[one.trace_id] for one in lessons) == sorted(thought)
    assert {one.observation_count for one in lessons} == {1}
    refused_ones = [n for n in thought if PLANS[n % len(PLANS)].code is not None]
    learned = [strategy(n) for n in thought if n not in refused_ones]
    bullets = await rows(service, MemoryRow, MemoryRow.kind == "bullet")
    assert sorted(one.content for one in bullets) == sorted([SEED, *learned])
    decided = await rows(service, CuratedLessonRow, CuratedLessonRow.decision == "rejected")
    assert len(decided) == len(refused_ones), "with the reason"
    assert {one.reason for one in decided} == {EXHAUSTED_REASON}
    verdicts = await rows(service, BulletVerdictRow, BulletVerdictRow.judge == "llm")
    assert sorted(numbers[one.trace_id] for one in verdicts) == sorted(thought)
    (first,) = (one for one in bullets if one.content == SEED)
    assert (first.helpful, first.harmful) == (0, len(thought))
    tell_cost(await service.calls())


def tell_cost(calls: Sequence[Any]) -> None:
    """Tokens as the stub counts them (characters / 4), everything that was asked again included."""
    for purpose in ("reflect", "curate"):
        mine = [c for c in calls if c.purpose == purpose]
        spent = {
            name: sum(getattr(c, name) or 0 for c in mine) / TRACES
            for name in ("input_tokens", "cached_tokens", "output_tokens")
        }
        assert spent["cached_tokens"] > 0
        shown = ", ".join(f"{value:.0f} {name}" for name, value in spent.items())
        print(f"\n{purpose}: {len(mine) / TRACES:.2f} exchanges a trace, {shown} a trace", end="")  # noqa: T201
