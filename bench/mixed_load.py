"""A client that sends requests of all kinds for many tenants at a steady rate."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from bench.data import failure
from bench.harness import MeasuredServer, new_tenant

MAX_IN_FLIGHT = 64
"""Requests at one time. Above it, the load waits, and the report says how often."""
LARGE_BODY_BYTES = 30 * 2**20
NOT_ERRORS = {200, 201, 202, 204}
PLAYBOOK = "desk"
MIX = {"search": 30, "render": 15, "read": 30, "trace": 16, "lines": 3, "reflect": 6}
"""Requests of each kind in 100."""


@dataclass
class Client:
    """Sends requests and counts what comes of them."""

    http: httpx2.AsyncClient
    statuses: Counter[tuple[str, int | str]] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: Counter[str] = field(default_factory=Counter)
    """Traces by tenant."""
    problems: list[str] = field(default_factory=list)

    async def ask(
        self, name: str, key: str, method: str, path: str, **content: Any
    ) -> httpx2.Response | None:
        """One request; None if there was no response."""
        since = time.perf_counter()
        headers = {"Authorization": f"Bearer {key}", **content.pop("headers", {})}
        try:
            answer = await self.http.request(method, path, headers=headers, **content)
        except httpx2.HTTPError as error:
            self.statuses[name, type(error).__name__] += 1
            self.problems.append(f"{name}: {error!r}")
            return None
        self.seconds[name].append(time.perf_counter() - since)
        self.statuses[name, answer.status_code] += 1
        if answer.status_code not in {*NOT_ERRORS, 429}:
            self.problems.append(f"{name}: {answer.status_code} {answer.text[:300]}")
        return answer

    def failed(self) -> int:
        return sum(n for (_, status), n in self.statuses.items() if status not in NOT_ERRORS)


@dataclass
class Tenants:
    """API keys by slug. A few tenants send most requests: the weight of the n-th is 1/n."""

    keys: dict[str, str]
    randomly: random.Random
    weights: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.weights = list(itertools.accumulate(1 / n for n in range(1, len(self.keys) + 1)))

    def pick(self) -> tuple[str, str]:
        return self.randomly.choices(list(self.keys.items()), cum_weights=self.weights)[0]


async def create_tenants(server: MeasuredServer, count: int) -> dict[str, str]:
    return {f"soak-{n}": await new_tenant(server, f"soak-{n}") for n in range(count)}


@dataclass
class Load:
    """Requests at a steady rate, of the kinds in `MIX`, by tenants in turn."""

    client: Client
    tenants: Tenants
    rate: float
    traces: Sequence[dict[str, Any]]
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    waits: int = 0

    async def run(self, until: float) -> None:
        """Send requests until `time.monotonic()` reaches `until`, then wait for their answers."""
        room = asyncio.Semaphore(MAX_IN_FLIGHT)
        kinds, weights = list(MIX), list(MIX.values())
        due = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            while due < until:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                self.waits += room.locked()
                await room.acquire()
                kind = self.tenants.randomly.choices(kinds, weights)[0]
                task = tasks.create_task(getattr(self, kind)(*self.tenants.pick()))
                task.add_done_callback(lambda _: room.release())
                due = max(due + self.tenants.randomly.expovariate(self.rate), time.monotonic() - 1)

    def _trace(self) -> dict[str, Any]:
        number = next(self.numbers)
        trace = self.traces[number % len(self.traces)]
        return trace | {"external_id": f"soak-{number}", "playbook": PLAYBOOK}

    def _query(self) -> str:
        return str(self._trace().get("task_description") or "cancel an order")[:300]

    async def search(self, _slug: str, key: str) -> None:
        body = {"query_text": self._query(), "top_k": 10}
        await self.client.ask("search", key, "POST", "/search", json=body)

    async def render(self, _slug: str, key: str) -> None:
        path = f"/playbooks/{PLAYBOOK}/render"
        await self.client.ask("render", key, "POST", path, json={"query_text": self._query()})

    async def read(self, _slug: str, key: str) -> None:
        lists = (f"/playbooks/{PLAYBOOK}/bullets", "/traces", "/runs", "/memories")
        path = self.tenants.randomly.choice(lists)
        await self.client.ask("read", key, "GET", f"{path}?limit=50")

    async def trace(self, slug: str, key: str) -> None:
        path = "/traces?reflect=always"
        answer = await self.client.ask("trace", key, "POST", path, json=self._trace())
        self.client.acknowledged[slug] += answer is not None and answer.is_success

    async def lines(self, slug: str, key: str) -> None:
        body = b"".join(json.dumps(self._trace()).encode() + b"\n" for _ in range(5))
        answer = await self.client.ask(
            *("lines", key, "POST", "/traces?reflect=auto"),
            content=body,
            headers={"Content-Type": "application/x-ndjson"},
        )
        if answer is not None and answer.is_success:
            self.client.acknowledged[slug] += answer.json()["stored_count"]

    async def reflect(self, slug: str, key: str) -> None:
        number = next(self.numbers)
        body = failure(number) | {"external_id": f"soak-{number}"}
        answer = await self.client.ask("reflect", key, "POST", "/reflections/generate", json=body)
        self.client.acknowledged[slug] += answer is not None and answer.is_success


async def send_large_bodies(load: Load) -> None:
    """Two traces of 30 MB, one after the other."""
    count = 2_000
    text = "x " * (LARGE_BODY_BYTES // count // 2 - 40)
    events = [{"event_type": "tool_response", "content": f"{n} {text}"} for n in range(count)]
    slug, key = load.tenants.pick()
    for name in ("large-1", "large-2"):
        body = {"external_id": name, "outcome": "success", "events": events}
        path = "/traces?reflect=always"
        answer = await load.client.ask("large body", key, "POST", path, json=body)
        load.client.acknowledged[slug] += answer is not None and answer.is_success
