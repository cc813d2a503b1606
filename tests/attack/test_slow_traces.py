"""Large but allowed traces: they are analyzed in another process, within a time budget."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient

from memory_api.core import isolated_work
from memory_api.core.isolated_work import (
    ISOLATION,
    MAX_INLINE_SIZE,
    MAX_PROCESSES,
    WorkTimeout,
    run_isolated,
)
from memory_api.runtime import Runtime
from memory_api.trace_analysis.analyze import ReflectionContext, analyze_trace
from memory_api.traces import event_cache
from memory_api.traces.schemas import Event, EventType, OutcomeType
from tests.support.api_calls import event, new_trace
from tests.support.cases import each_case
from tests.support.growth import grows_faster_than_input

LARGE = MAX_INLINE_SIZE + 1
TENANT = UUID(int=1)


@pytest.fixture
def isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ISOLATION, "is_enabled", True)
    monkeypatch.setattr(ISOLATION, "_limiter", None)


async def test_large_input_leaves_the_process(isolation: None) -> None:
    assert await run_isolated(os.getpid, LARGE, TENANT) != os.getpid()
    assert await run_isolated(os.getpid, 10, TENANT) == os.getpid()


@each_case(
    "module",
    [
        "collections.chunking",
        "collections.extraction",
        "evaluation.evaluators.deterministic",
        "reflection.rules",
        "text.quotations",
        "trace_analysis.analyze",
        "traces.redaction",
    ],
)
def test_process_for_large_inputs_imports_little(module: str) -> None:
    """Each process imports the module of its function. With SQLAlchemy and numpy it has 76 MB,
    without them at most 30, and a worker may have 8 of them.
    """
    check = (
        f"import sys, memory_api.{module};"
        "print({'asyncpg', 'numpy', 'sqlalchemy'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", check], text=True) == "set()\n"


async def test_loop_is_free_while_a_large_input_is_analyzed(isolation: None) -> None:
    await run_isolated(os.getpid, LARGE, TENANT)  # the process exists
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await run_isolated(partial(time.sleep, 0.3), LARGE, TENANT)
    ticking.cancel()
    assert ticks >= 5


async def test_slow_inputs_of_one_tenant_delay_no_other(isolation: None) -> None:
    """They had all processes, so that large traces of others waited 28 s, or were refused."""

    async def read_slowly() -> None:
        await run_isolated(partial(time.sleep, 600), LARGE, "attacker")

    attacks = [asyncio.create_task(read_slowly()) for _ in range(MAX_PROCESSES)]
    await asyncio.sleep(0.1)
    try:
        assert await run_isolated(os.getpid, LARGE, "other") != os.getpid()
    finally:
        for attack in attacks:
            attack.cancel()
        await asyncio.gather(*attacks, return_exceptions=True)


async def test_input_past_its_time_budget_is_stopped(
    isolation: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run_isolated(os.getpid, LARGE, TENANT)
    monkeypatch.setattr(isolated_work, "WORK_SECONDS", 0.2)
    with pytest.raises(WorkTimeout, match="took too long"):
        await run_isolated(partial(time.sleep, 600), LARGE, TENANT)
    monkeypatch.undo()
    monkeypatch.setattr(ISOLATION, "is_enabled", True)
    with pytest.raises(WorkTimeout, match="ended early"):
        await run_isolated(partial(os._exit, 1), LARGE, TENANT)
    assert await run_isolated(os.getpid, LARGE, TENANT) != os.getpid(), (
        "the next input is not affected"
    )


async def test_stopped_run_fails_with_a_clear_error(
    api: AsyncClient, drain: Any, tenant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated_work, "WORK_SECONDS", 0.0)
    large = [event("x " * 150_000), event("No such file", event_type="error_event")]
    trace_id = await new_trace(api, reflect="always", events=large)
    await drain(tenant.id)
    runs = (await api.get("/api/v1/runs", params={"trace_id": trace_id})).json()["items"]
    failed = [run for run in runs if run["state"] == "failed"]
    assert [run["attempt_count"] for run in failed] == [1], "it is not tried again by itself"
    assert "took too long" in failed[0]["error"]["message"]


async def test_trace_past_its_size_budget_is_not_read(
    api: AsyncClient, drain: Any, tenant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_cache, "MAX_TRACE_BYTES", 50_000)
    trace_id = await new_trace(api, state="open", outcome=None, events=[event("x " * 15_000)])
    path = f"/api/v1/traces/{trace_id}"
    added = await api.post(f"{path}/events", json={"events": [event("y " * 15_000)]})
    assert added.status_code == 200, added.text
    end = {"outcome": "failure", "reflect": "always"}
    closed = await api.post(f"{path}/close", json=end)
    assert closed.is_success, closed.text
    await drain(tenant.id)
    (run,) = (await api.get("/api/v1/runs", params={"trace_id": trace_id})).json()["items"]
    assert (run["state"], run["attempt_count"]) == ("failed", 1)
    assert run["error"]["code"] == "trace_too_large"
    assert "several smaller traces" in run["error"]["message"]


async def test_run_past_its_time_budget_fails(
    api: AsyncClient, drain: Any, tenant: Any, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime.settings, "run_timeout", 0.0001)
    trace_id = await new_trace(api, reflect="always")
    await drain(tenant.id)
    runs = (await api.get("/api/v1/runs", params={"trace_id": trace_id})).json()["items"]
    (failed,) = [run for run in runs if run["state"] != "done"]  # evaluating this trace never waits
    assert (failed["state"], failed["attempt_count"]) == ("failed", 1)
    assert "HANSEI_RUN_TIMEOUT" in failed["error"]["message"]


PATHOLOGICAL = {
    "line breaks": "\n" * 1_000_000,
    "open parentheses": "(" * 300_000,
    "spaces": " " * 300_000,
    "letters": "a" * 300_000,
    "digits": "1" * 300_000,
    "commas": "1," * 150_000,
    "quotes": "\"'" * 150_000,
    "brackets": "[{" * 150_000,
    "error lines": "Error: x\n" * 30_000,
    "frames": '  File "a.py", line 1, in f\n' * 10_000,
    "kana": "あ、" * 150_000,
    "dots": "a." * 150_000,
    "dashes": "-" * 300_000,
    "capitals": "Aa " * 100_000,
    "failed tests": "FAILED a::b - x\n" * 20_000,
    "equals": "=" * 300_000,
    "underscores": "_ " * 150_000,
}


@pytest.mark.slow
@each_case("text", PATHOLOGICAL.values())
def test_pathological_text_is_analyzed_in_linear_time(text: str) -> None:
    """Quadratic work takes minutes."""
    assert not grows_faster_than_input(partial(analyze_everywhere, text), 2)


def analyze_everywhere(whole_text: str, share: float) -> None:
    """Analyze a trace with this share of a text in every field."""
    text = whole_text[: int(len(whole_text) * share)]
    events = [
        Event(event_type=EventType.USER_MESSAGE, content=text),
        Event(event_type=EventType.TOOL_CALL, tool_name="shell", content=text),
        Event(event_type=EventType.TOOL_RESPONSE, tool_name="shell", content=text),
        Event(event_type=EventType.ERROR_EVENT, content=text),
        Event(event_type=EventType.LLM_RESPONSE, content=text),
    ]
    context = ReflectionContext(
        events=events,
        outcome=OutcomeType.FAILURE,
        tenant_id="t",
        project_id="p",
        task_description=text,
    )
    for truth, report in ((text, None), ("42", text), ({"answer": text}, text)):
        analyze_trace(context, attempts=[], ground_truth=truth, test_report=report)
