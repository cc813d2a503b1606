"""Evaluations against the real service: rendering, learning, resuming, and a service that dies."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

import hansei
from hansei import Hansei
from hansei.cli.main import app
from hansei.errors import NotFoundError
from hansei.evaluation.runner import Stopped
from memory_api.runtime import Runtime
from tests.conftest import TestTenant
from tests.support.paths import ROOT
from tests.support.stub_provider import StubProvider

TASKS = [
    {"id": f"t{n}", "task": f"Refund order {n}", "expected": f"lock {n}, refund {n}"}
    for n in range(12)
]


def agent(request: dict[str, Any]) -> dict[str, Any]:
    """Locks an order only if the advice says so, and cites it."""
    number = request["task"].rsplit(" ", 1)[1]
    if "Lock the order" not in request["advice"]:
        return {"answer": f"refund {number}", "events": []}
    key = re.search(r"[a-z]+-\d{5}", request["advice"])
    assert key
    said = {"event_type": "llm_response", "content": f"I lock it first [{key.group()}]."}
    return {"answer": f"lock {number}, refund {number}", "events": [said]}


@pytest.fixture
async def client(live: str, tenant: TestTenant) -> AsyncIterator[Hansei]:
    with Hansei(live, tenant.keys["admin"]) as opened:
        yield opened


@pytest.fixture
def run(
    client: Hansei, tenant: TestTenant, drain: Callable[..., Awaitable[int]]
) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Evaluate while a worker works."""

    async def evaluate(*arguments: Any, **options: Any) -> dict[str, Any]:
        task = asyncio.create_task(
            asyncio.to_thread(hansei.evaluate, *arguments, client=client, **options)
        )
        while not task.done():
            await drain(tenant.id)
            await asyncio.sleep(0.05)
        return await task

    return evaluate


def make_playbook(client: Hansei) -> None:
    client.playbooks.replace("support", {"bullets": []})
    client.playbooks.bullets.create(
        "support", "Lock the order before a refund.", section="MISTAKES TO AVOID"
    )


async def test_advice_of_a_copied_playbook_is_rendered_cited_and_learned_from(
    client: Hansei, run: Any
) -> None:
    await asyncio.to_thread(make_playbook, client)
    report = await run(
        agent, TASKS, folder="out", arms=["none", "hansei", "full"], playbook="support", held_out=4
    )
    by_arm = {row["arm"]: row["mean"] for row in report["accuracy"] if row["phase"] == "primary"}
    assert by_arm == {"none": 0, "hansei": 1, "full": 1}
    assert report["primary"] == "held-out tasks"
    for row in report["advice"]:
        assert row["calls"] == row["rendered"] == row["cited"] == 8 + 8 + 4
    learning = report["learning"]
    assert learning["traces"] == 8
    assert learning["bullets"] >= 1
    assert learning["calls"] == 0  # the rules engine
    [project] = learning["projects"]
    traces = await asyncio.to_thread(lambda: list(client.traces.list(project_id=project)))
    assert len(traces) == 8
    assert {trace.outcome for trace in traces} == {"success"}
    source = await asyncio.to_thread(client.playbooks.get, "support")
    assert source.version == 2  # the evaluation did not change it


async def test_empty_memory_is_said_loudly(run: Any) -> None:
    report = await run(agent, TASKS, folder="out")
    assert any("NO ADVICE: the arm `hansei`" in note for note in report["notes"])
    assert report["learning"]["traces"] == 12


async def test_service_that_is_lost_stops_the_run_and_resume_sends_no_trace_twice(
    client: Hansei, run: Any
) -> None:
    asked: list[str] = []

    def counting(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["task_id"])
        if len(asked) == 9:
            client._settings._base_url = "http://127.0.0.1:9"
        return agent(request)

    url = client._settings._base_url
    with pytest.raises(Stopped, match=r"127\.0\.0\.1"):
        await run(counting, TASKS, folder="out", window=6, parallel=1)
    saved = Path("out/answers.jsonl").read_text().count("\n")
    assert saved == len(asked) >= 9
    client._settings._base_url = url
    Path("out/learning.jsonl").unlink(missing_ok=True)
    report = await run(counting, TASKS, folder="out", window=6, parallel=1)
    assert len(asked) == report["calls"]["planned"] == report["calls"]["done"]
    [project] = report["learning"]["projects"]
    traces = await asyncio.to_thread(lambda: list(client.traces.list(project_id=project)))
    assert len(traces) == 12
    assert len({trace.external_id for trace in traces}) == 12


async def test_worker_that_does_not_run_stops_the_run_in_time(
    client: Hansei, tenant: TestTenant
) -> None:
    with pytest.raises(Stopped, match=r"not learned from 3 of 3 traces within 0\.5 s"):
        await asyncio.to_thread(
            hansei.evaluate, agent, TASKS, folder="out", client=client, learn_timeout=0.5
        )


async def test_model_that_refuses_the_key_stops_the_run_which_continues_later(
    client: Hansei, tenant: TestTenant, runtime: Runtime, run: Any
) -> None:
    error = json.dumps({"code": "llm_auth", "message": "invalid key", "postponements": 1})
    refused = text("update runs set error = cast(:error as jsonb)").bindparams(error=error)
    task = asyncio.create_task(
        asyncio.to_thread(hansei.evaluate, agent, TASKS, folder="out", client=client)
    )
    while not task.done():
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await session.execute(refused)
        await asyncio.sleep(0.05)
    with pytest.raises(Stopped, match=r"its model refuses to answer: invalid key \(llm_auth\)"):
        await task
    report = await run(agent, TASKS, folder="out")
    assert report["calls"]["done"] == report["calls"]["planned"]


async def test_playbook_that_does_not_exist(run: Any) -> None:
    with pytest.raises(NotFoundError, match="nothing"):
        await run(agent, TASKS, folder="out", playbook="nothing")
    assert not Path("out").exists()


async def test_page_for_users_can_be_followed(
    live: str,
    tenant: TestTenant,
    stub: StubProvider,
    drain: Callable[..., Awaitable[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The agent, the tasks and the commands of docs/evaluating.md, with a stub as the model."""
    page = (ROOT / "docs/evaluating.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```python\n(.*?)```", page, re.S)
    [tasks] = re.findall(r"```\n(\{.*?)```", page, re.S)
    [console] = re.findall(r"```console\n(.*?)```", page, re.S)
    Path("my_agent.py").write_text(program)
    documented = [json.loads(line) for line in tasks.splitlines()]
    twenty = [{**task, "id": f"{task['id']}-{n}"} for n in range(10) for task in documented]
    Path("tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in twenty))
    values = {
        "HANSEI_URL": live, "HANSEI_API_KEY": tenant.keys["admin"], "MODEL": "gpt-5-mini",
        "OPENAI_BASE_URL": stub.openai_url, "OPENAI_API_KEY": "k",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    commands = [line.removeprefix("$ ") for line in console.splitlines()]
    assert [command.split()[0] for command in commands] == ["export", *["hansei"] * 4]

    def follow() -> str:
        for command in commands[1:3]:
            result = CliRunner().invoke(app, shlex.split(command)[1:])
            assert result.exit_code == 0, result.output
        [folder] = Path("hansei-eval").iterdir()
        publish = ["eval", "publish", str(folder), "--project"]
        project = f"eval-{folder.name}-1"
        refused = CliRunner().invoke(app, [*publish, project + "1"])
        assert refused.exit_code == 1
        assert f"most similar first: {project}, default." in " ".join(refused.output.split())
        published = CliRunner().invoke(app, [*publish, project])
        assert f"{live}/console/evaluations/" in published.stdout, published.output
        return CliRunner().invoke(app, ["eval", "report", str(folder), "--json"]).stdout

    work = asyncio.create_task(asyncio.to_thread(follow))
    while not work.done():
        await drain(tenant.id)
        await asyncio.sleep(0.05)
    report = json.loads(await work)
    assert report["calls"] == {"done": 50, "planned": 50}
    assert report["primary"] == "held-out tasks"
    assert report["failures"] == []
    assert all(row["usd"] > 0 for row in report["costs"])
    [project] = report["learning"]["projects"]
    with Hansei(live, tenant.keys["read"]) as client:
        [published] = await asyncio.to_thread(
            lambda: list(client.evaluation_reports.list(project_id=project))
        )
        stored = await asyncio.to_thread(client.evaluation_reports.get, published.id)
    assert stored.report == report
