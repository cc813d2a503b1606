"""`python -m tests.recordings.exports.record`: records of real SDKs for the importers.

Needs langchain, langchain-openai, langsmith and langfuse in an environment of its own (versions:
tests/recordings/README.md). The model is the stub provider. LangSmith's own client sends runs to a
stub of its service and reads them again. Langfuse's service cannot run here: its record is made
with the models of its client.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
import re
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from anthropic import Anthropic
from langchain_core.tracers.langchain import LangChainTracer
from langfuse.api import ObservationV2
from langsmith import Client
from openai import OpenAI

from tests.recordings.spans.record import QUESTION, SCHEMA, SYSTEM, run_langchain_agent, script
from tests.support.stub_provider import StubProvider

HERE = Path(__file__).parent
CHANGING = re.compile(r"127\.0\.0\.1:\d+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def openai_responses(stub: StubProvider) -> Any:
    """The input of the last request, and the real `Response` object."""
    client = OpenAI(base_url=stub.openai_url, api_key="k")
    given: list[Any] = [{"role": "user", "content": QUESTION}]
    tool: Any = {"type": "function", "name": "get_order", "parameters": SCHEMA, "strict": False}

    def create() -> Any:
        return client.responses.create(
            model="gpt-5", instructions=SYSTEM, input=given, tools=[tool]
        )

    first = create()
    given += [item.model_dump(mode="json") for item in first.output]
    (call,) = [item for item in first.output if item.type == "function_call"]
    given.append({"type": "function_call_output", "call_id": call.call_id, "output": "sent"})
    return {"input": given, **create().model_dump(mode="json")}


def anthropic(stub: StubProvider) -> Any:
    """The messages of the last request, and the real `Message` object."""
    client = Anthropic(base_url=stub.anthropic_url, api_key="k")
    messages: list[Any] = [{"role": "user", "content": QUESTION}]

    def create() -> Any:
        return client.messages.create(
            model="claude-haiku-5-5", max_tokens=99, system=SYSTEM, messages=messages,
            tools=[{"name": "get_order", "input_schema": SCHEMA}],
        )  # fmt: skip

    first = create().model_dump(mode="json")
    messages.append({"role": "assistant", "content": first["content"]})
    result = {"type": "tool_result", "tool_use_id": first["content"][0]["id"], "content": "sent"}
    messages.append({"role": "user", "content": [result]})
    response = create().model_dump(mode="json")
    return {"system": SYSTEM, "messages": messages, "response": response}


class LangSmithStub(ThreadingHTTPServer):
    """Stores the runs of `POST /runs/batch` and serves them to `read_run` and `list_runs`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _LangSmithHandler)
        self.runs: dict[str, dict[str, Any]] = {}


class _LangSmithHandler(BaseHTTPRequestHandler):
    server: LangSmithStub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(self.server.runs.get(self.path.rpartition("/")[2].partition("?")[0], {}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/runs/query"):
            runs = [run for run in self.server.runs.values() if run.get("parent_run_id")]
            self._send({"runs": runs, "cursors": {}})
            return
        for run in [*body.get("post", ()), *body.get("patch", ())]:
            known = self.server.runs.setdefault(run["id"], {"session_id": run["trace_id"]})
            known |= {key: value for key, value in run.items() if value is not None}
        self._send({})

    def _send(self, value: Any) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def langsmith(stub: StubProvider) -> Any:
    """`read_run(load_child_runs=True)` of LangSmith's client, after an agent of LangChain."""
    with LangSmithStub() as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        limits = {
            "use_multipart_endpoint": False, "size_limit": 100, "size_limit_bytes": 2**20,
            "scale_up_nthreads_limit": 1, "scale_up_qsize_trigger": 1000,
            "scale_down_nempty_trigger": 4,
        }  # fmt: skip
        client = Client(
            api_url=f"http://127.0.0.1:{service.server_port}",
            api_key="k",
            info={"batch_ingest_config": limits},
        )
        tracer = LangChainTracer(client=client)
        run_langchain_agent(stub, callbacks=[tracer])
        client.flush()
        (root,) = [key for key, run in service.runs.items() if not run.get("parent_run_id")]
        run = client.read_run(root, load_child_runs=True)
        service.shutdown()
        return json.loads(run.model_dump_json(exclude_none=True))


def langfuse(stub: StubProvider) -> Any:
    """A page of the observations API in the models of Langfuse's client. The contents are from the
    SDK of OpenAI.
    """
    client = OpenAI(base_url=stub.openai_url, api_key="k")
    time = datetime(2026, 11, 1, tzinfo=UTC)
    messages: list[Any] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": QUESTION},
    ]
    observations: list[Any] = []

    def observe(kind: str, name: str, given: Any, returned: Any, **more: Any) -> None:
        number = len(observations)
        model = ObservationV2(
            id=f"o{number}", trace_id="lf-1", project_id="p", type=kind, name=name,
            start_time=time.replace(second=number), session_id="s-1", trace_name="support",
            input=given, output=returned, **more,
        )  # fmt: skip
        observations.append(json.loads(model.json(by_alias=True, exclude_none=True)))

    observe("SPAN", "support", QUESTION, "It is on its way.", is_root_observation=True)
    for _ in range(2):
        reply = client.chat.completions.create(model="gpt-5", messages=messages)
        message = reply.choices[0].message.model_dump(mode="json", exclude_none=True)
        given = list(messages)
        observe("GENERATION", "OpenAI-generation", given, message, parent_observation_id="o0")
        messages.append(message)
        for call in message.get("tool_calls", ()):
            observe("TOOL", "get_order", {"id": "W1"}, "sent", parent_observation_id="o0")
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "sent"})
    return {"data": observations, "meta": {}}


def replace_changing(text: str) -> str:
    """Numbered UUIDs, and one port."""
    numbers: dict[str, str] = {}
    for found in CHANGING.findall(text):
        number = f"00000000-0000-7000-8000-{len(numbers):012d}"
        numbers.setdefault(found, "127.0.0.1:8999" if ":" in found else number)
    return CHANGING.sub(lambda match: numbers[match[0]], text)


def main() -> None:
    with StubProvider() as stub:
        for name, make in {
            "openai-responses": openai_responses,
            "anthropic": anthropic,
            "langsmith": langsmith,
            "langfuse": langfuse,
        }.items():
            script(stub)
            text = json.dumps(make(stub), indent=1, sort_keys=True)
            text = replace_changing(text)
            (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
