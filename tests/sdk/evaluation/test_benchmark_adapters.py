"""The adapters for benchmarks of others, with stand-ins for the few names that they import."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hansei import Hansei
from tests.conftest import TestTenant
from tests.support.paths import ROOT


class Base:
    """A system or a memory of a benchmark."""

    def __init__(self, *, clear: bool = False, readonly: bool = False) -> None:
        self.readonly = readonly

    def record_usage_event(self, event: Any) -> None:
        raise AssertionError("The stand-in model has no usage.")


def is_complete(observation: SimpleNamespace) -> bool:
    return observation.instance_complete


def register(name: str) -> Callable[[type], type]:
    return lambda registered: registered


class Action(SimpleNamespace):
    def model_dump_json(self) -> str:
        return '{"channel": 7}'


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, client: Hansei) -> Callable[..., Any]:
    def load_adapter(path: str, modules: dict[str, dict[str, Any]]) -> Any:
        for name, content in modules.items():
            module = ModuleType(name)
            vars(module).update(content)
            monkeypatch.setitem(sys.modules, name, module)
        spec = importlib.util.spec_from_file_location("adapter", ROOT / "examples" / path)
        assert spec
        assert spec.loader
        adapter = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(adapter)
        monkeypatch.setattr(adapter, "Hansei", lambda: client)
        return adapter

    return load_adapter


@pytest.fixture
async def client(live: str, tenant: TestTenant) -> AsyncIterator[Hansei]:
    with Hansei(live, tenant.keys["admin"]) as opened:
        yield opened


@pytest.fixture
def work(tenant: TestTenant, drain: Callable[..., Awaitable[int]]) -> Callable[..., Awaitable[Any]]:
    """Call a function in a thread while a worker works."""

    async def work(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        task = asyncio.create_task(asyncio.to_thread(function, *arguments, **options))
        while not task.done():
            await drain(tenant.id)
            await asyncio.sleep(0.05)
        return await task

    return work


async def test_continual_learning_bench(client: Hansei, load: Any, work: Any) -> None:
    prompts: list[list[dict[str, str]]] = []

    def complete(model: str, messages: list[dict[str, str]], response_schema: Any) -> Any:
        prompts.append(list(messages))
        return Action(), None

    interface: dict[str, Any] = {
        "ContinualLearningSystem": Base,
        "Observation": SimpleNamespace,
        "Query": SimpleNamespace,
        "Response": SimpleNamespace,
        "observation_marks_instance_complete": is_complete,
    }
    adapter = load(
        "continual_learning_bench/system.py",
        {
            "src.interface": interface,
            "src.registry": {"register_system": register},
            "src.systems.utils": {"completion_with_structured_output": complete},
        },
    )
    system = await work(adapter.HanseiSystem, focus="The channels of this band.")
    project = system._project
    query = SimpleNamespace(prompt="Which channel is free?", response_schema=None)
    await work(system.respond, query)
    await work(
        system.observe, SimpleNamespace(content="Channel 7 is busy.", instance_complete=False)
    )
    await work(system.respond, query)
    assert [message["role"] for message in prompts[1]] == ["user", "assistant", "user", "user"]
    await work(system.observe, SimpleNamespace(content="", instance_complete=True))
    [trace] = await work(lambda: list(client.traces.list(project_id=project)))
    assert trace.outcome is None
    assert trace.task_description == "Which channel is free?"
    events = await work(lambda: list(client.traces.events.list(trace.id)))
    assert events[2].content == "FEEDBACK: Channel 7 is busy."
    bullet = {"content": "Report channel 7.", "section": "OTHERS"}
    await work(client.playbooks.bullets.create, adapter.PLAYBOOK, **bullet, project_id=project)
    await work(system.respond, query)
    assert "Report channel 7." in prompts[-1][0]["content"]
    assert (await work(system.get_run_artifacts))["bullets"] == ["Report channel 7."]
    await work(system.reset)
    await work(system.respond, query)
    assert "Report channel 7." not in str(prompts[-1])


async def test_evomembench(client: Hansei, load: Any, work: Any, tmp_path: Path) -> None:
    adapter = load("evomembench/hansei_backend.py", {"bfcl_eval.memory.base": {"Memory": Base}})
    memory = await work(adapter.HanseiMemory, tmp_path / "bank", clear=True, ark_api_key="unused")
    assert await work(memory.utilize, "You book flights.") == ""
    call = {"id": "c1", "function": {"name": "book", "arguments": '{"flight": 7}'}}
    messages = [
        {"role": "system", "content": "You book flights."},
        {"role": "user", "content": "Book flight 7."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "booked"},
        {"role": "assistant", "content": "Done."},
    ]
    await work(memory.update, messages)
    [trace] = await work(lambda: list(client.traces.list(project_id=memory._project)))
    assert trace.outcome is None
    assert trace.event_count == 4
    await work(
        client.playbooks.bullets.create,
        adapter.PLAYBOOK,
        "Check the seat first.",
        section="OTHERS",
        project_id=memory._project,
    )
    copy = await work(
        adapter.HanseiMemory.load_from_disk, storage_dir=tmp_path / "bank", readonly=True
    )
    assert "Check the seat first." in await work(copy.utilize, "You book flights.")
    await work(copy.update, messages)
    assert len(await work(lambda: list(client.traces.list(project_id=memory._project)))) == 1
