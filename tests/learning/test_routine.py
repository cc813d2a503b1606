"""What a stream of traces costs: routine successes are skipped, short runs share a call."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import select

from memory_api.run_queue.port import Ticket
from memory_api.runs.tables import RunRow
from memory_api.worker import process_ticket
from tests.support.model_service import GOOD, Serve, Service
from tests.support.stub_provider import Call, Reply, answer

ORDER = ["evaluate", "reflect", "curate", "apply"]
"""Lessons and short runs wait for those of traces that are evaluated or reflected on."""
PATHS = (("find", "book"), ("find", "pay", "close"), ("cancel",))


def run(number: int, *, tools: tuple[str, ...], outcome: str = "success") -> dict[str, Any]:
    events: list[dict[str, Any]] = [
        {"event_type": "user_message", "content": f"Serve customer {number} at the desk"}
    ]
    for tool in tools:
        events += [
            {"event_type": "tool_call", "tool_name": tool, "content": f'{{"customer": {number}}}'},
            {"event_type": "tool_response", "tool_name": tool, "content": f"done for {number}"},
        ]
    if outcome == "failure":
        events.append({"event_type": "error_event", "content": f"refused {number}"})
    task = f"Serve customer {number}"
    return {"events": events, "outcome": outcome, "task_description": task, "playbook": "desk"}


def reply(call: Call) -> Reply:
    if "Run R1" in call.user:
        names = [f"R{n}" for n in range(1, 9) if f"# Run R{n}\n" in call.user]
        runs = [
            {"run": name, "root_cause": f"Cause of {name}.", "importance": 0.4} for name in names
        ]
        rule = {"when": "Before `pay`", "do": f"read limit {call.user.count('refused')}."}
        return answer({"runs": runs, "rules": [rule | {"runs": names}]})
    if "root_cause" in (call.schema or {})["properties"]:
        return answer(GOOD)
    numbers = [int(n) for n in re.findall(r"^(\d+)\. \(strategy\)", call.user, re.MULTILINE)]
    reject = {"type": "REJECT", "lessons": numbers, "reasoning": "It is no rule."}
    return answer({"operations": [reject]})


async def all_runs(service: Service) -> list[RunRow]:
    """Oldest first."""
    async with service.runtime.sessions.for_tenant(service.tenant.id) as session:
        rows = await session.scalars(
            select(RunRow).where(RunRow.tenant_id == service.tenant.id).order_by(RunRow.id)
        )
        return list(rows)


async def learn(service: Service, traces: list[dict[str, Any]]) -> None:
    for trace in traces:
        sent = await service.api.post("/api/v1/traces", json=trace)
        assert sent.status_code == 201, sent.text
    for _ in range(200):
        queued = [run for run in await all_runs(service) if run.state == "queued"]
        if not queued:
            return
        first = min(queued, key=lambda run: (ORDER.index(run.kind), run.id))
        await process_ticket(service.background, Ticket(service.tenant.id, first.id))
    raise AssertionError("The runs do not end.")


async def reflected(service: Service) -> Counter[str]:
    """REFLECT runs by the outcome of their trace."""
    runs = [run for run in await all_runs(service) if run.kind == "reflect"]
    return Counter(run.input["outcome"] for run in runs)


async def test_routine_is_skipped_and_the_reason_is_stated(serve: Serve) -> None:
    service = await serve("openai", reflection_batch_size=1, routine_reflection_share=0.0)
    await learn(service, [run(n, tools=PATHS[0]) for n in range(6)])
    assert await reflected(service) == {"success": 3}
    evaluated = [r.result for r in await all_runs(service) if r.kind == "evaluate" and r.result]
    skipped = [result["reason"] for result in evaluated if not result["reflect"]]
    assert (
        skipped == ["Routine success: earlier successes of the playbook made the same calls."] * 3
    )
    await learn(service, [run(9, tools=PATHS[1])])
    await learn(service, [run(10, tools=PATHS[0], outcome="failure")])
    await learn(service, [run(11, tools=PATHS[0]) | {"playbook": "other"}])
    assert await reflected(service) == {"success": 5, "failure": 1}


@pytest.mark.parametrize("batch_size", [1, 8])
async def test_stream_with_70_percent_success(serve: Serve, batch_size: int) -> None:
    """At most half a model call per trace; longer runs pay for each failure."""
    service = await serve("openai", reflection_batch_size=batch_size)
    service.stub.behave = reply
    stream = [
        run(n, tools=PATHS[n % 3], outcome="failure" if n % 10 >= 7 else "success")
        for n in range(60)
    ]
    for start in range(0, len(stream), 10):
        await learn(service, stream[start : start + 10])
    counts = await reflected(service)
    assert counts["failure"] == 18
    assert 9 <= counts["success"] <= 9 + 12
    calls = Counter(call.purpose for call in await service.calls())
    per_trace = sum(calls.values()) / len(stream)
    assert per_trace <= (0.3 if batch_size == 8 else 0.7), calls
