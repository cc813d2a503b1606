"""What is sent while things break, by a client that does not give up, and what must come of it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.support.installation import PATIENCE, Installation, Tenant

COUNTED = (
    "select 'traces', '', count(*), sum(event_count) from traces where tenant_id = $1",
    "select 'events', '', count(*), 0 from trace_events where tenant_id = $1",
    "select 'runs', kind || ' ' || state, case when kind in ('curate', 'apply') then 0"
    " else count(*) end, 0 from runs where tenant_id = $1"  # traces share curations
    " and kind not in ('upkeep', 'cleanup') group by kind, state",  # these depend on the time
    "select 'memories', kind || ' ' || status, count(*), sum(observation_count) from memories"
    " where tenant_id = $1 group by 2",
    "select 'votes', '', sum(helpful), sum(harmful) from memories where tenant_id = $1",
    "select 'evaluations', evaluator, count(*), 0 from trace_evaluations where tenant_id = $1"
    " group by 2",
    "select 'verdicts', judge || ' ' || tag, count(*), 0 from bullet_verdicts"
    " where tenant_id = $1 group by 2",
    "select 'curated', '', count(*), 0 from curated_lessons where tenant_id = $1",
    "select 'vectors', '', count(*), 0 from memory_vectors where tenant_id = $1",
    "select 'words', '', sum(delta), 0 from scope_stats where tenant_id = $1",
    "select 'versions', '', 0, max(active_count) from playbook_versions where tenant_id = $1",
    "select 'inbox', '', count(*), 0 from inbox_lessons where tenant_id = $1",
)
"""Name, of what, and two figures."""

TASKS = {
    "Refund the order of a customer": ("billing.refund", "403 permission denied", "role"),
    "Render the quarterly chart": ("plot", "ValueError: shapes do not match", "axis"),
    "Migrate the users table": ("psql", "ERROR: column email does not exist", "column"),
    "Upload the backup archive": ("s3.put", "Connection reset by peer", "part_size"),
    "Translate the privacy notice": ("translate", "429 too many requests", "language"),
    "Deploy the mail gateway": ("kubectl", "ImagePullBackOff: manifest unknown", "image"),
    "Book a flight to Osaka": ("flights.book", "invalid date", "date"),
    "Parse the supplier's invoice": ("pdf.read", "file is encrypted", "password"),
}
"""Goal, tool, what its first call answers, and the argument with which the second call works."""


ADVICE = "Before billing.refund call account.role and stop when it is clerk"


def traces(advice: str) -> list[dict[str, Any]]:
    """Tasks that have nothing to do with each other, so that order changes nothing; two of them
    twice, whose lessons must become one with two observations; two that used `advice`."""
    made = [_trace(goal, *call) for goal, call in TASKS.items()]
    again = [dict(made[0]), dict(made[3])]
    advised = [one | {"used_bullet_keys": [advice]} for one in (made[0], made[2])]
    return [one | {"external_id": f"run-{n}"} for n, one in enumerate([*made, *again, *advised])]


def _trace(goal: str, tool: str, error: str, argument: str) -> dict[str, Any]:
    return {
        "task_description": goal,
        "outcome": "failure",
        "playbook": "desk",
        "events": [
            {"event_type": "user_message", "content": goal},
            {"event_type": "tool_call", "tool_name": tool, "content": f'{tool}({argument}="a")'},
            {"event_type": "error_event", "tool_name": tool, "content": error},
            {"event_type": "tool_call", "tool_name": tool, "content": f'{tool}({argument}="b")'},
            {"event_type": "tool_response", "tool_name": tool, "content": "done"},
        ],
    }


@dataclass
class Sender:
    """Sends until everything is acknowledged: half of it one by one, half as lines."""

    installation: Installation
    tenant: Tenant
    advice: str = ""
    acknowledged: dict[str, dict[str, Any]] = field(default_factory=dict)
    statuses: set[int] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def prepare(self) -> None:
        """A playbook with one bullet, before anything breaks."""
        answer = httpx2.post(
            f"{self.installation.url}/api/v1/playbooks/desk/bullets",
            json={"content": ADVICE},
            headers={"Authorization": f"Bearer {self.tenant.key}"},
            timeout=10,
        )
        answer.raise_for_status()
        self.advice = answer.json()["bullet"]["id"]

    def send_all(self) -> None:
        sent = traces(self.advice)
        half = len(sent) // 2
        for trace in sent[:half]:
            self._keep(trace, self._insist(json.dumps(trace).encode(), "application/json"))
        left = sent[half:]
        while left:
            body = b"\n".join(json.dumps(trace).encode() for trace in left)
            items = self._insist(body, "application/x-ndjson")["items"]
            refused = [item["line"] - 1 for item in items if "error" in item]
            for item in items:
                if "error" not in item:
                    self._keep(left[item["line"] - 1], item)
            left = [left[place] for place in refused]

    def _keep(self, trace: dict[str, Any], answer: dict[str, Any]) -> None:
        self.acknowledged[trace["external_id"]] = answer

    def _insist(self, body: bytes, kind: str) -> Any:
        headers = {"Authorization": f"Bearer {self.tenant.key}", "Content-Type": kind}
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                answer = httpx2.post(
                    f"{self.installation.url}/api/v1/traces?reflect=always",
                    content=body,
                    headers=headers,
                    timeout=10,
                )
            except httpx2.HTTPError:
                time.sleep(0.1)
                continue
            self.statuses.add(answer.status_code)
            if answer.is_success:
                return answer.json()
            self.problems.append(answer.text)
            time.sleep(0.1)
        raise AssertionError(f"the service did not take it: {self.problems[-3:]}")

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Sends beside the block; at the end everything is acknowledged."""
        self.prepare()
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(self.send_all)
            yield
            sending.result(PATIENCE)


@dataclass
class Watch:
    """Asks /health/ready all the time. `answers`: when it was asked, when answered, and what."""

    installation: Installation
    answers: list[tuple[float, float, int]] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        stop = threading.Event()

        def look() -> None:
            while not stop.wait(0.02):
                since = time.monotonic()
                with suppress(httpx2.HTTPError):  # no answer is no lie
                    status = self.installation.ready().status_code
                    self.answers.append((since, time.monotonic(), status))

        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(look)
            try:
                yield self
            finally:
                stop.set()
                looking.result(PATIENCE)

    def between(self, since: float, until: float) -> set[int]:
        """What was asked and answered in a time."""
        return {status for a, b, status in self.answers if a > since and b < until}


Census = dict[tuple[str, str], tuple[int, int]]


def census(installation: Installation, tenant: Tenant) -> Census:
    """How much of everything a tenant has."""
    return {
        (name, of): (int(first or 0), int(second or 0))
        for statement in COUNTED
        for name, of, first, second in installation.rows(statement, tenant.id)
    }


def lost(installation: Installation, sender: Sender) -> list[str]:
    """What was acknowledged and is not there."""
    there = installation.rows(
        "select t.external_id, t.id::text, r.id::text from traces t"
        " left join runs r on r.tenant_id = t.tenant_id and r.trace_id = t.id"
        " and r.parent_id is null and r.state = 'done' where t.tenant_id = $1",
        sender.tenant.id,
    )
    told = [
        (name, answer["trace_id"], answer["run_id"]) for name, answer in sender.acknowledged.items()
    ]
    return [str(one) for one in told if one not in there]


def assert_same_census(installation: Installation, sender: Sender, expected: Census) -> None:
    """All work ends; nothing acknowledged is lost, nothing counted twice, nobody met a 500."""
    installation.await_drained(sender.tenant)
    assert len(sender.acknowledged) == len(traces(sender.advice))
    assert lost(installation, sender) == []
    found = census(installation, sender.tenant)
    assert found == expected, dict(found.items() ^ expected.items())
    assert sender.statuses <= {200, 201, 503}, sender.problems
