"""300 events through each wrapper of the SDK while the service is killed and started again.

`python -m bench sdk_restart [WRAPPER...]`. A wrapper whose library is not installed is skipped by
name. After a third of the run, `kill -9` ends `hansei up` with its API, worker and PostgreSQL;
after two thirds, it starts again with the same data. Then each event must be stored once.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil

import hansei
from bench.report import Report
from bench.startup import free_port
from hansei import Hansei
from hansei.recording.recorder import Recorder
from tests.support.stub_provider import Answer, StubProvider

ROUNDS = 100
"""Rounds of a run: an answer of the model, a tool call, its result."""
TASK = "Work in steps."


class Service:
    """`hansei up` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: psutil.Popen | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "hansei", "up", "--json", "--port", str(self.port)]
        self._process = psutil.Popen(
            command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(600):
            try:
                if httpx2.get(f"{self.url}/health/ready", timeout=2).is_success:
                    return
            except httpx2.HTTPError:
                pass
            time.sleep(0.1)
        raise TimeoutError("The service did not start.")

    def kill(self) -> None:
        """kill -9 of all its processes."""
        if self._process is None:
            return
        for process in [self._process, *self._process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._process = None

    @property
    def key(self) -> str:
        credentials = (self.folder / ".hansei/credentials.json").read_text(encoding="utf-8")
        return json.loads(credentials)["api_key"]


class Run:
    """One run of an agent: what its wrapper needs, and the tool of the agent."""

    def __init__(self, name: str, service: Service, stub: StubProvider, folder: str) -> None:
        self.name, self.service, self.stub = name, service, stub
        self.recorder = Recorder(service.url, service.key, spool_dir=Path(folder) / name)
        self.starting = threading.Thread(target=service.start)
        numbers = itertools.count()

        def reply(_: Any) -> Answer:
            n = next(numbers)
            calls = (("work", {"n": n}),) if n < ROUNDS else ()
            return Answer(f"Step {n}.", tool_calls=calls)

        stub.behave = reply

    def work(self, n: int) -> str:
        """The tool. Kills the service in round 33, and starts it in round 66."""
        if n == ROUNDS // 3:
            self.service.kill()
        if n == ROUNDS * 2 // 3:
            self.starting.start()
        return f"Result {n}."


def run_trace(run: Run) -> None:
    with hansei.trace(TASK, playbook=run.name, recorder=run.recorder) as t:
        for n in range(ROUNDS):
            t.message("assistant", f"Step {n}.")
            t.tool_call("work", {"n": n}, result=run.work(n))


def run_many_traces(run: Run) -> None:
    """A trace for each round: the service is killed while traces are sent."""
    for n in range(ROUNDS):
        with hansei.trace(TASK, playbook=run.name, recorder=run.recorder) as t:
            t.message("assistant", f"Step {n}.")
            t.tool_call("work", {"n": n}, result=run.work(n))
        time.sleep(0.01)


def run_openai(run: Run) -> None:
    from openai import OpenAI  # noqa: PLC0415 - each wrapper imports its own library

    from hansei.integrations.model_clients import record_openai  # noqa: PLC0415

    client = record_openai(OpenAI(base_url=run.stub.openai_url, api_key="k"))
    messages: list[Any] = [{"role": "user", "content": TASK}]
    with hansei.trace(TASK, playbook=run.name, recorder=run.recorder):
        while True:
            message = (
                client.chat.completions.create(model="m", messages=messages).choices[0].message
            )
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return
            for call in message.tool_calls:
                result = run.work(json.loads(call.function.arguments)["n"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def run_anthropic(run: Run) -> None:
    from anthropic import Anthropic  # noqa: PLC0415

    from hansei.integrations.model_clients import record_anthropic  # noqa: PLC0415

    client = record_anthropic(Anthropic(base_url=run.stub.anthropic_url, api_key="k"))
    messages: list[Any] = [{"role": "user", "content": TASK}]
    with hansei.trace(TASK, playbook=run.name, recorder=run.recorder):
        while True:
            reply = client.messages.create(model="m", max_tokens=99, messages=messages)
            messages.append({"role": "assistant", "content": reply.content})
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": each.id,
                    "content": run.work(each.input["n"]),
                }
                for each in reply.content
                if each.type == "tool_use"
            ]
            if not results:
                return
            messages.append({"role": "user", "content": results})


def run_langchain(run: Run) -> None:
    from langchain_core.language_models.fake_chat_models import (  # noqa: PLC0415
        GenericFakeChatModel,
    )
    from langchain_core.messages import AIMessage  # noqa: PLC0415
    from langchain_core.tools import tool  # noqa: PLC0415
    from langgraph.graph import START, MessagesState, StateGraph  # noqa: PLC0415
    from langgraph.prebuilt import ToolNode, tools_condition  # noqa: PLC0415

    from hansei.integrations.langchain import HanseiCallbackHandler  # noqa: PLC0415

    calls = [[{"name": "work", "args": {"n": n}, "id": f"c{n}"}] for n in range(ROUNDS)]
    replies = [AIMessage(f"Step {n}.", tool_calls=calls[n]) for n in range(ROUNDS)]
    model = GenericFakeChatModel(messages=iter([*replies, AIMessage(f"Step {ROUNDS}.")]))
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([tool("work", description="Work.")(run.work)]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    config: Any = {"callbacks": [HanseiCallbackHandler()], "recursion_limit": 10 * ROUNDS}
    with hansei.trace(TASK, playbook=run.name, recorder=run.recorder):
        graph.compile().invoke({"messages": [("user", TASK)]}, config=config)


def run_openai_agents(run: Run) -> None:
    """Each call sends the whole conversation, and the `openai` client converts all of it again: 14
    seconds of CPU in 100 rounds, also without Hansei.
    """
    from agents import (  # noqa: PLC0415
        Agent,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_trace_processors,
    )
    from openai import AsyncOpenAI  # noqa: PLC0415

    from hansei.integrations.openai_agents import HanseiTracingProcessor  # noqa: PLC0415

    set_trace_processors([HanseiTracingProcessor(playbook=run.name, recorder=run.recorder)])
    client = AsyncOpenAI(base_url=run.stub.openai_url, api_key="k")
    model = OpenAIResponsesModel(model="m", openai_client=client)
    tool = function_tool(run.work, name_override="work")
    agent = Agent(name="a", model=model, tools=[tool])
    Runner.run_sync(agent, TASK, max_turns=2 * ROUNDS)


def run_pydantic_ai(run: Run) -> None:
    """OpenTelemetry: the exporter has no spool, but sends a request again for 60 seconds."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from pydantic_ai import Agent, InstrumentationSettings, UsageLimits  # noqa: PLC0415
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415

    endpoint = f"{run.service.url}/v1/traces?playbook={run.name}"
    headers = {"Authorization": f"Bearer {run.service.key}"}
    exporter = OTLPSpanExporter(endpoint, headers=headers, timeout=60)
    provider = TracerProvider()
    provider.add_span_processor(
        BatchSpanProcessor(exporter, schedule_delay_millis=100, max_export_batch_size=20)
    )
    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=run.stub.openai_url, api_key="k"))
    settings = InstrumentationSettings(tracer_provider=provider)
    Agent.instrument_all(settings)
    agent = Agent(model)
    agent.tool_plain(run.work, name="work")
    agent.run_sync(TASK, usage_limits=UsageLimits(request_limit=None))
    run.starting.join()
    provider.force_flush(60_000)
    provider.shutdown()


WRAPPERS: dict[str, tuple[str, Callable[[Run], None]]] = {
    "trace": ("hansei", run_trace),
    "many-traces": ("hansei", run_many_traces),
    "openai": ("openai", run_openai),
    "anthropic": ("anthropic", run_anthropic),
    "langchain": ("langgraph", run_langchain),
    "openai-agents": ("agents", run_openai_agents),
    "pydantic-ai": ("pydantic_ai", run_pydantic_ai),
}


def stored_events(service: Service, playbook: str) -> tuple[int, Counter[str]]:
    """The number of traces, and how often each answer, call and result of the rounds is stored."""
    found = Counter[str]()
    with Hansei(service.url, service.key) as client:
        traces = list(client.list_traces(playbook=playbook))
        for trace in traces:
            for event in client.list_trace_events(trace["id"]):
                kind = event["event_type"]
                if kind in ("llm_response", "tool_call", "tool_response"):
                    found[f"{kind} {event['content'].replace(' ', '')}"] += 1
    return len(traces), found


def expected_events() -> set[str]:
    events = ("llm_response Step{0}.", 'tool_call {{"n":{0}}}', "tool_response Result{0}.")
    return {event.format(n) for n in range(ROUNDS) for event in events}


def main() -> None:
    report = Report(
        "sdk_restart",
        f"A run of {3 * ROUNDS} events through each wrapper. `kill -9` of the whole service after "
        f"a third of the run, start after two thirds. {platform.machine()}, {os.cpu_count()} "
        f"cores, Python {platform.python_version()}.",
    )
    columns = ("wrapper", "traces", "events", "lost", "stored twice", "seconds after the start")
    report.table("wrappers", "Each wrapper", *columns)
    is_complete = True
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hansei-bench-"))
        stub = stack.enter_context(StubProvider())
        service = Service(Path(folder))
        stack.callback(service.kill)
        service.start()
        for name in sys.argv[1:] or WRAPPERS:
            module, execute = WRAPPERS[name]
            if importlib.util.find_spec(module) is None:
                report.row("wrappers", name, *[f"`{module}` is not installed"] + [""] * 4)
                continue
            run = Run(name, service, stub, folder)
            execute(run)
            run.starting.join()
            since = time.monotonic()
            assert run.recorder.flush(60) == 0, f"{name}: not sent"
            seconds = time.monotonic() - since
            run.recorder.close()
            traces, found = stored_events(service, name)
            lost = len(expected_events() - found.keys())
            twice = sum(count - 1 for count in found.values())
            is_complete &= not lost and not twice
            report.row("wrappers", name, traces, sum(found.values()), lost, twice, f"{seconds:.1f}")
    report.finish(write=not sys.argv[1:])
    sys.exit(not is_complete)


if __name__ == "__main__":
    main()
