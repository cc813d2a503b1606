"""`python -m tests.recordings.spans.record`: record the spans of real instrumentations.

Needs pydantic-ai-slim, langchain, langchain-openai and the instrumentations below, in an
environment of its own (versions: tests/recordings/README.md). The model is the stub provider: it
calls `get_order`, then it answers. Writes one OTLP request in JSON for each instrumentation. IDs
and times are replaced.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anthropic import Anthropic
from google.protobuf.json_format import MessageToDict
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from openai import OpenAI
from openinference.instrumentation.anthropic import (
    AnthropicInstrumentor as OpenInferenceAnthropic,
)
from openinference.instrumentation.langchain import LangChainInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor as OpenInferenceOpenAI
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor
from opentelemetry.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent, InstrumentationSettings
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.support.stub_provider import Answer, StubProvider

HERE = Path(__file__).parent
SYSTEM, QUESTION, ANSWER = "Be brief.", "Where is W1?", "It is on its way."
SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}


def get_order(id: str) -> str:
    """Find an order."""
    return "sent"


def script(stub: StubProvider) -> None:
    stub.clear()
    stub.queue(Answer("", tool_calls=(("get_order", {"id": "W1"}),)), Answer(ANSWER))


def call_chat(stub: StubProvider) -> None:
    client = OpenAI(base_url=stub.openai_url, api_key="k")
    function = {"name": "get_order", "parameters": SCHEMA}
    messages: list[Any] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": QUESTION},
    ]
    for _ in range(2):
        reply = client.chat.completions.create(
            model="gpt-5", messages=messages, tools=[{"type": "function", "function": function}]
        )
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or []:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "sent"})


def call_responses(stub: StubProvider) -> None:
    client = OpenAI(base_url=stub.openai_url, api_key="k")
    given: list[Any] = [{"role": "user", "content": QUESTION}]
    tool: Any = {"type": "function", "name": "get_order", "parameters": SCHEMA, "strict": False}
    for _ in range(2):
        reply = client.responses.create(
            model="gpt-5", instructions=SYSTEM, input=given, tools=[tool]
        )
        given += [item.model_dump(exclude_none=True) for item in reply.output]
        for item in reply.output:
            if item.type == "function_call":
                given.append(
                    {"type": "function_call_output", "call_id": item.call_id, "output": "sent"}
                )


def call_anthropic(stub: StubProvider) -> None:
    client = Anthropic(base_url=stub.anthropic_url, api_key="k")
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    for _ in range(2):
        reply = client.messages.create(
            model="claude-haiku-5-5", max_tokens=99, system=SYSTEM, messages=messages,
            tools=[{"name": "get_order", "input_schema": SCHEMA}],
        )  # fmt: skip
        messages.append(
            {"role": "assistant", "content": [each.model_dump() for each in reply.content]}
        )
        results = [
            {"type": "tool_result", "tool_use_id": each.id, "content": "sent"}
            for each in reply.content
            if each.type == "tool_use"
        ]
        messages += [{"role": "user", "content": results}] if results else []


def run_langchain_agent(stub: StubProvider, callbacks: Any = None) -> None:
    model = ChatOpenAI(model="gpt-5", base_url=stub.openai_url, api_key="k", temperature=0)
    agent = create_agent(model, tools=[get_order], system_prompt=SYSTEM)
    agent.invoke({"messages": [("user", QUESTION)]}, config={"callbacks": callbacks})


def run_pydantic_agent(make_model: Callable[[StubProvider], Any]) -> Callable[[StubProvider], None]:
    def run(stub: StubProvider) -> None:
        agent = Agent(make_model(stub), system_prompt=SYSTEM, tools=[get_order], name="support")
        assert agent.run_sync(QUESTION).output == ANSWER

    return run


def chat_model(stub: StubProvider) -> Any:
    return OpenAIChatModel("gpt-5", provider=OpenAIProvider(base_url=stub.openai_url, api_key="k"))


def responses_model(stub: StubProvider) -> Any:
    provider = OpenAIProvider(base_url=stub.openai_url, api_key="k")
    return OpenAIResponsesModel("gpt-5", provider=provider)


def anthropic_model(stub: StubProvider) -> Any:
    provider = AnthropicProvider(base_url=stub.anthropic_url, api_key="k")
    return AnthropicModel("claude-haiku-5-5", provider=provider)


@contextmanager
def pydantic_spans(provider: TracerProvider) -> Iterator[None]:
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    yield
    Agent.instrument_all(False)


def instrumented(instrumentor: Any) -> Callable[[TracerProvider], Any]:
    @contextmanager
    def instrument(provider: TracerProvider) -> Iterator[None]:
        instrumentor.instrument(tracer_provider=provider)
        yield
        instrumentor.uninstrument()

    return instrument


SCENARIOS: dict[str, tuple[Callable[[TracerProvider], Any], Callable[[StubProvider], None]]] = {
    "openllmetry-openai-chat": (instrumented(OpenAIInstrumentor()), call_chat),
    "openllmetry-openai-responses": (instrumented(OpenAIInstrumentor()), call_responses),
    "openllmetry-anthropic": (instrumented(AnthropicInstrumentor()), call_anthropic),
    "openinference-openai-chat": (instrumented(OpenInferenceOpenAI()), call_chat),
    "openinference-openai-responses": (instrumented(OpenInferenceOpenAI()), call_responses),
    "openinference-anthropic": (instrumented(OpenInferenceAnthropic()), call_anthropic),
    "openinference-langchain": (instrumented(LangChainInstrumentor()), run_langchain_agent),
    "pydantic-ai-openai-chat": (pydantic_spans, run_pydantic_agent(chat_model)),
    "pydantic-ai-openai-responses": (pydantic_spans, run_pydantic_agent(responses_model)),
    "pydantic-ai-anthropic": (pydantic_spans, run_pydantic_agent(anthropic_model)),
}


def record(name: str, stub: StubProvider) -> dict[str, Any]:
    """The OTLP request of one agent run with a root span `agent`, as in an instrumented program."""
    instrument, run = SCENARIOS[name]
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    script(stub)
    with instrument(provider):
        if name.startswith(("pydantic", "openinference-langchain")):
            run(stub)
        else:
            with provider.get_tracer("program").start_as_current_span("handle request"):
                run(stub)
    request = MessageToDict(encode_spans(exporter.get_finished_spans()))
    return replace_changing(request, stub)


def replace_changing(request: dict[str, Any], stub: StubProvider) -> dict[str, Any]:
    """IDs in hexadecimal, numbered; times in steps of a second; no port."""
    text = json.dumps(request).replace(stub.url, "http://127.0.0.1:8999")
    made: dict[str, Any] = json.loads(text)
    spans = [s for r in made["resourceSpans"] for scope in r["scopeSpans"] for s in scope["spans"]]
    times = sorted({int(s[key]) for s in spans for key in ("startTimeUnixNano", "endTimeUnixNano")})
    numbers: dict[str, int] = {}
    for span in spans:
        for key, digits in (("traceId", 32), ("spanId", 16), ("parentSpanId", 16)):
            if key in span:
                number = numbers.setdefault(span[key], len(numbers) + 1)
                assert len(base64.b64decode(span[key])) * 2 == digits
                span[key] = f"{number:0{digits}x}"
        for key in ("startTimeUnixNano", "endTimeUnixNano"):
            span[key] = str((1_790_000_000 + times.index(int(span[key]))) * 10**9)
        for event in span.get("events", []):
            event["timeUnixNano"] = span["endTimeUnixNano"]
    for resource in made["resourceSpans"]:
        resource["resource"] = {"attributes": []}
    return made


def main() -> None:
    """Each scenario runs in a process of its own: OpenLLMetry writes no spans of the Responses API
    when it is switched on a second time.
    """
    if not sys.argv[1:]:
        for name in SCENARIOS:
            subprocess.run(
                [sys.executable, "-m", "tests.recordings.spans.record", name], check=True
            )
        return
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "true"
    for name in sys.argv[1:]:
        with StubProvider() as stub:
            request = record(name, stub)
        path = HERE / f"{name}.json"
        path.write_text(json.dumps(request, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
