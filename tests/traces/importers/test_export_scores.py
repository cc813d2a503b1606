"""Outcome, user and tool results of exported records: none is dropped or given to another call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from httpx2 import AsyncClient

from memory_api.core.errors import InvalidRequest
from memory_api.traces.importers.formats import convert_record, document_records
from memory_api.traces.schemas import CreateTraceRequest
from tests.support.api_calls import NDJSON, ndjson
from tests.support.cases import each_case

OBSERVATION = {"id": "o", "type": "EVENT", "input": "Hello"}
LANGFUSE = {"id": "t", "observations": [OBSERVATION], "userId": "u-7"}
LANGSMITH = {"id": "r", "run_type": "llm", "inputs": {"input": "Hello"}}
MESSAGES = {"messages": [{"role": "user", "content": "Hello"}]}


def score(value: Any, **more: Any) -> dict[str, Any]:
    return LANGFUSE | {"scores": [{"name": "good", "value": value, **more}]}


def feedback(**stats: Any) -> dict[str, Any]:
    return LANGSMITH | {"feedback_stats": {"good": stats}}


@each_case(
    ("kind", "record", "outcome"),
    [
        ("langfuse", score(1), "success"),
        ("langfuse", score(0.0), "failure"),
        ("langfuse", score(0.5), "partial"),
        ("langfuse", score(0, dataType="CATEGORICAL", stringValue="Timeout"), "timeout"),
        ("langfuse", score(1, stringValue="True", dataType="BOOLEAN"), "success"),
        ("langfuse", score(1, observationId="o"), None),
        ("langfuse", LANGFUSE, None),
        ("langsmith", feedback(n=2, avg=0.5), "partial"),
        ("langsmith", feedback(n=1, avg=None, values={"failure": 1}), "failure"),
        ("langsmith", feedback(n=1, avg=1.0) | {"error": "Boom"}, "success"),
        ("openai", MESSAGES | {"metadata": {"good": False}}, "failure"),
        ("hansei", {"events": [], "metadata": {"good": True}}, "success"),
    ],
)
def test_outcome_of_a_score(kind: Any, record: dict[str, Any], outcome: str | None) -> None:
    (trace,) = convert_record(record, kind, "good")
    assert trace.get("outcome") == outcome


@each_case("value", [4, -1, "thumbs up"])
def test_score_that_is_no_outcome_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest, match=rf"The score `good` is {value}\. An outcome is 1 or"):
        convert_record(score(value), "langfuse", "good")


@each_case("record", [LANGFUSE, LANGSMITH, MESSAGES])
def test_outcome_of_a_record_is_its_own(record: dict[str, Any]) -> None:
    (trace,) = convert_record(record | {"outcome": "failure"}, "auto")
    assert trace["outcome"] == "failure"


async def test_outcome_over_http(api: AsyncClient) -> None:
    records = [score(0), score(4, id="x") | {"id": "b"}, MESSAGES | {"outcome": "bad"}]
    sent = await api.post(
        "/api/v1/traces?format=auto&outcome_from=good&reflect=never",
        content=ndjson(records),
        headers=NDJSON,
    )
    stored, *refused = sent.json()["items"]
    shown = await api.get(f"/api/v1/traces/{stored['trace_id']}")
    assert shown.json()["outcome"] == "failure"
    assert shown.json()["metadata"]["subject"] == "u-7"
    assert [item["error"]["field"] for item in refused] == ["outcome_from", "outcome"]


@each_case(
    ("kind", "record"),
    [
        ("langfuse", LANGFUSE),
        ("langsmith", LANGSMITH | {"extra": {"metadata": {"user_id": "u-7"}}}),
        ("openai", MESSAGES | {"user": "u-7"}),
        ("anthropic", MESSAGES | {"metadata": {"user_id": "u-7"}}),
    ],
)
def test_user_is_the_subject(kind: Any, record: dict[str, Any]) -> None:
    (trace,) = convert_record(record, kind)
    assert trace["metadata"]["subject"] == "u-7"


def test_user_of_an_observation() -> None:
    items = [{**OBSERVATION, "traceId": "t"}, {**OBSERVATION, "traceId": "t", "userId": "u-7"}]
    (record,) = document_records(items)
    assert convert_record(record, "langfuse")[0]["metadata"]["subject"] == "u-7"


def tools(*executed: dict[str, Any]) -> list[tuple[str, Any, str]]:
    """The calls and results of a trace: the model calls `pay(7)`, then these tools are executed."""
    call = {"id": "c1", "function": {"name": "pay", "arguments": '{"id": 7}'}}
    generation = {
        "id": "g", "type": "GENERATION", "startTime": "1",
        "output": {"role": "assistant", "content": None, "tool_calls": [call]},
    }  # fmt: skip
    observations = [
        {"id": f"o{n}", "type": "TOOL", "name": "pay", "startTime": str(n), **each}
        for n, each in enumerate(executed, start=2)
    ]
    record = {"id": "t", "observations": [generation, *observations]}
    (trace,) = convert_record(record, "langfuse")
    events = CreateTraceRequest.model_validate(trace).events
    return [(e.event_type.value, e.metadata["call_id"], e.content) for e in events]


def test_result_is_of_the_call_with_its_arguments() -> None:
    own = [("tool_call", "o2", '{"id": 8}'), ("tool_response", "o2", "paid 8")]
    first = ("tool_call", "c1", '{"id": 7}')
    assert tools({"input": {"id": 8}, "output": "paid 8"}) == [first, *own]
    for given in ({"id": 7}, {"id": 7, "user": "u"}, {"input": "{'id': 7}"}, None):
        assert tools({"input": given, "output": "paid"}) == [first, ("tool_response", "c1", "paid")]


def test_result_without_arguments_is_of_no_call_if_several_wait() -> None:
    second = {"id": "c2", "function": {"name": "pay", "arguments": '{"id": 8}'}}
    generation = {
        "id": "h", "type": "GENERATION", "name": None, "output": {
            "role": "assistant", "content": None, "tool_calls": [second]},
    }  # fmt: skip
    found = tools(generation, {"output": "paid"})
    assert [(kind, call) for kind, call, _ in found] == [
        ("tool_call", "c1"),
        ("tool_call", "c2"),
        ("tool_response", "o3"),
    ]


def test_langchain_message_with_its_type_in_the_class_only() -> None:
    message = {"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"]}
    inputs = {"messages": [[message | {"kwargs": {"content": "Hello"}}]]}
    (trace,) = convert_record(LANGSMITH | {"inputs": inputs}, "langsmith")
    assert json.dumps(trace["events"]).count("Hello") == 1
    assert trace["events"][0]["content"] == "Hello"
