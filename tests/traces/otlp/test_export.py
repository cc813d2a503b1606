"""Spans over HTTP: the real exporter, repeated and late requests, tenants, damaged bodies."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest
from httpx2 import AsyncClient, Response
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode

from memory_api.traces.otlp import router
from tests.support.api_calls import list_events
from tests.support.problems import assert_problem

TRACE_ID = "5b8efff798038103d269b633813fc60c"


def span(
    span_id: int, parent: int | None = None, *, status: int = 0, **given: Any
) -> dict[str, Any]:
    """A span in the JSON encoding. `given` are attributes, with `__` for a dot."""
    attributes = [
        {"key": name.replace("__", "."), "value": {"stringValue": value}}
        for name, value in given.items()
        if name not in ("trace_id", "message")
    ]
    return {
        "traceId": given.get("trace_id", TRACE_ID),
        "spanId": f"{span_id:016x}",
        "parentSpanId": "" if parent is None else f"{parent:016x}",
        "name": "a span",
        "startTimeUnixNano": str(1_700_000_000_000_000_000 + span_id * 10**9),
        "endTimeUnixNano": str(1_700_000_000_000_000_000 + (span_id + 1) * 10**9),
        "status": {"code": status, "message": given.get("message", "")},
        "attributes": attributes,
    }


def request(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def tool(span_id: int, call_id: str, **more: Any) -> dict[str, Any]:
    given = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": "get_order"}
    return span(span_id, 1, **given, gen_ai__tool__call__id=call_id, **more)


def root(**more: Any) -> dict[str, Any]:
    return span(1, gen_ai__operation__name="invoke_agent", **more)


async def send(api: AsyncClient, *spans: dict[str, Any], query: str = "") -> Response:
    answer = await api.post(f"/v1/traces{query}", json=request(*spans))
    assert answer.status_code == 200, answer.text
    return answer


async def stored(api: AsyncClient) -> list[dict[str, Any]]:
    return (await api.get("/api/v1/traces")).json()["items"]


async def test_real_exporter(live: str, tenant: Any, api: AsyncClient) -> None:
    """The exporter of the OpenTelemetry SDK: protobuf, gzip, the key in a header."""
    exporter = OTLPSpanExporter(
        f"{live}/v1/traces?playbook=support",
        headers=tenant.auth(),
        compression=Compression.Gzip,
    )
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("agent")
    messages = [{"role": "user", "parts": [{"type": "text", "content": "Refund order W1"}]}]
    call = {"type": "tool_call", "id": "c1", "name": "refund", "arguments": {"id": "W1"}}
    answer = [{"role": "assistant", "parts": [call], "finish_reason": "tool_call"}]

    def run_agent() -> None:
        with tracer.start_as_current_span("GET /"), tracer.start_as_current_span("invoke") as agent:
            agent.set_attribute("gen_ai.operation.name", "invoke_agent")
            agent.set_attribute("gen_ai.conversation.id", "conversation-1")
            with tracer.start_as_current_span("chat") as chat:
                chat.set_attribute("gen_ai.operation.name", "chat")
                chat.set_attribute("gen_ai.request.model", "a-model")
                chat.set_attribute("gen_ai.input.messages", json.dumps(messages))
                chat.set_attribute("gen_ai.output.messages", json.dumps(answer))
            with tracer.start_as_current_span("execute_tool refund") as refund:
                refund.set_attribute("gen_ai.operation.name", "execute_tool")
                refund.set_attribute("gen_ai.tool.name", "refund")
                refund.set_attribute("gen_ai.tool.call.id", "c1")
                refund.set_attribute("gen_ai.tool.call.result", "done")
                refund.set_status(Status(StatusCode.ERROR, "no such order"))

    await asyncio.to_thread(run_agent)
    (trace,) = await stored(api)
    assert trace["state"] == "closed"  # the root "GET /" was ignored and still ends the run
    assert (trace["session_id"], trace["playbook"]) == ("conversation-1", "support")
    assert trace["task_description"] == "Refund order W1"
    events = await list_events(api, trace["id"])
    assert [(event["event_type"], event["tool_name"], event["content"]) for event in events] == [
        ("user_message", None, "Refund order W1"),
        ("tool_call", "refund", '{"id": "W1"}'),
        ("tool_response", "refund", "done"),
    ]
    assert events[-1]["error"] == {"message": "no such order"}


async def test_status_ok_is_no_outcome(api: AsyncClient) -> None:
    """Instrumentations set it when nothing was raised."""
    await send(api, tool(2, "c1", gen_ai__tool__call__result="ok"), root(status=1))
    (trace,) = await stored(api)
    assert (trace["state"], trace["outcome"]) == ("closed", None)


async def test_request_that_is_sent_again_changes_nothing(api: AsyncClient) -> None:
    for _ in range(2):
        stated = root(status=1, hansei__outcome="success")
        await send(api, tool(2, "c1", gen_ai__tool__call__result="ok"), stated)
    (trace,) = await stored(api)
    assert (trace["event_count"], trace["outcome"]) == (2, "success")
    runs = (await api.get(f"/api/v1/runs?trace_id={trace['id']}")).json()["items"]
    assert len(runs) == 1


async def test_late_spans_and_root_in_any_order(api: AsyncClient) -> None:
    await send(api, tool(2, "c1"))
    assert [trace["state"] for trace in await stored(api)] == ["open"]
    await send(api, root(status=2, message="It broke", hansei__task_key="t1"))
    await send(api, tool(3, "c2"))  # late
    (trace,) = await stored(api)
    assert (trace["state"], trace["outcome"], trace["task_key"]) == ("closed", "error", "t1")
    assert trace["error"]["error_message"] == "It broke"
    calls = [event["metadata"].get("call_id") for event in await list_events(api, trace["id"])]
    assert calls == ["c1", "c1", None, "c2", "c2"]


async def test_calls_without_parent_are_grouped_by_conversation(api: AsyncClient) -> None:
    history: list[dict[str, Any]] = []
    for turn, text in enumerate(("hello", "yes", "yes")):
        history.append({"role": "user", "content": text})
        output = [{"role": "assistant", "content": f"answer {turn}"}]
        chat = span(
            turn + 1,
            trace_id=f"{turn + 1:032x}",
            gen_ai__operation__name="chat",
            gen_ai__conversation__id="c-7",
            gen_ai__input__messages=json.dumps(history),
            gen_ai__output__messages=json.dumps(output),
        )
        await send(api, chat)
        history += output
    (trace,) = await stored(api)
    contents = [event["content"] for event in await list_events(api, trace["id"])]
    assert contents == ["hello", "answer 0", "yes", "answer 1", "yes", "answer 2"]
    assert (trace["state"], trace["session_id"]) == ("open", "c-7")


async def test_other_spans_are_ignored_and_counted(api: AsyncClient) -> None:
    plain = span(7, http__method="GET", trace_id="ab" * 16)
    answer = await send(api, plain, tool(2, "c1"))
    assert answer.json()["partialSuccess"]["rejectedSpans"] == "1"
    assert len(await stored(api)) == 1
    assert "partialSuccess" not in (await send(api, tool(4, "c2"))).json()


async def test_trace_id_of_another_tenant(api: AsyncClient, make_tenant: Any) -> None:
    await send(api, tool(2, "c1"))
    (before,) = await stored(api)
    other = await make_tenant()
    answer = await api.post(
        "/v1/traces", json=request(tool(3, "c2"), root(status=2)), headers=other.auth()
    )
    assert answer.status_code == 200
    assert await stored(api) == [before]


async def test_same_trace_in_simultaneous_requests(api: AsyncClient) -> None:
    await asyncio.gather(*(send(api, tool(n, f"c{n}"), tool(2, "c2")) for n in range(2, 6)))
    (trace,) = await stored(api)
    events = await list_events(api, trace["id"])
    assert sorted(event["metadata"]["call_id"] for event in events) == [
        *("c2", "c2", "c3", "c3", "c4", "c4", "c5", "c5")
    ]
    assert [event["seq"] for event in events] == list(range(8))


async def test_invalid_values_do_not_lose_the_span(api: AsyncClient) -> None:
    content = json.dumps([{"role": "user", "content": "NUL \0 and half of a pair \ud800"}])
    chat = span(
        2,
        1,
        gen_ai__operation__name="chat",
        gen_ai__input__messages=content,
        hansei__retrieval_id="not-a-uuid",
        hansei__playbook="sup\0port",
    )
    await send(api, chat)
    (trace,) = await stored(api)
    assert "retrieval_id" in trace["metadata"]["invalid_attributes"]
    (event,) = await list_events(api, trace["id"])
    assert event["content"] == "NUL \ufffd and half of a pair \ufffd"


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"\xff\xff", {"Content-Type": "application/x-protobuf"}, 422),
        (b"{", {"Content-Type": "application/json"}, 400),
        (b'{"resourceSpans": 7}', {"Content-Type": "application/json"}, 422),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"xyz"}]}]}]}', {}, 422),
        (b"abc", {"Content-Type": "application/json", "Content-Encoding": "gzip"}, 422),
        (gzip.compress(b"{}" * 99, mtime=0)[:-9], {"Content-Encoding": "gzip"}, 422),
        (gzip.compress(bytes(70 * 2**20)), {"Content-Encoding": "gzip"}, 413),
        (b"{}", {"Content-Encoding": "br"}, 422),
        (b"{}", {"Content-Type": "text/plain"}, 415),
    ],
)
async def test_damaged_body(
    api: AsyncClient, content: bytes, headers: dict[str, str], status: int
) -> None:
    given = {"Content-Type": "application/json"} | headers
    answer = await api.post("/v1/traces", content=content, headers=given)
    assert_problem(answer, status)


async def test_empty_request_in_protobuf(api: AsyncClient) -> None:
    headers = {"Content-Type": "application/x-protobuf"}
    answer = await api.post("/v1/traces", content=b"", headers=headers)
    assert answer.status_code == 200
    assert ExportTraceServiceResponse.FromString(answer.content) == ExportTraceServiceResponse()


async def test_back_pressure(api: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "MAX_CONCURRENT_REQUESTS", 0)
    answer = await api.post("/v1/traces", json=request(root()))
    assert_problem(answer, 429)
    assert answer.headers["retry-after"] == "1"
