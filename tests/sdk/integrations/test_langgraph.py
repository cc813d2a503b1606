"""The reflection workflow as a graph of the real LangGraph, against the stub service."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from hansei import Hansei
from hansei.integrations.langgraph import build_reflection_graph
from tests.sdk.stub_service import Call, Reply, StubService, refusal, run

BULLET = {"id": "str-00001", "section": "s", "content": "Check the order's state."}
HIT = {
    "bullet": BULLET,
    "vector_score": 1,
    "bm25_score": 1,
    "combined_score": 1,
    "match": "strong",
    "explain": None,
}
INSIGHT = {"key_insight": "Ask for the order number."}


def route(service: StubService, *, exists: bool) -> list[Call]:
    """Give the stub the routes of the graph. Returns the calls that reflect."""
    known, reflections = service._route, list[Call]()  # pyright: ignore[reportPrivateUsage]

    def respond(call: Call) -> Reply:
        if call.path == "/api/v1/playbooks/support":
            body = {"name": "support", "bullets": [BULLET]}
            return (200, body) if exists else refusal(404, "not_found", "Not found.")
        if call.path == "/api/v1/playbooks/support/search":
            return 200, {"results": [HIT], "version": 1, "retrieval_id": "r1"}
        if call.path == "/api/v1/trajectories/reflect":
            reflections.append(call)
            service.runs["c1"] = run("c1", "t1", {})
            learned = {"insights": [INSIGHT], "bullet_evaluations": [], "next_run_id": "c1"}
            return 200, {"run_id": "r", "trace_id": "t1", **learned}
        return known(call)

    service._route = respond  # pyright: ignore[reportPrivateUsage]
    return reflections


def test_all_nodes(service: StubService, hansei: Hansei) -> None:
    reflections = route(service, exists=True)
    model = GenericFakeChatModel(messages=iter([AIMessage(content="Yes.")]))
    graph = build_reflection_graph(hansei, model)
    asked: Any = {"query": "May I refund?", "dataset": "support", "ground_truth": "No."}
    steps = [next(iter(step)) for step in graph.stream(asked, stream_mode="updates")]
    assert steps == ["load_playbook", "search", "generate", "reflect", "curate"]
    (sent,) = reflections
    assert sent.json["ground_truth"] == "No."
    assert sent.json["retrieval_id"] == "r1"
    assert sent.json["trajectory"]["generated_answer"] == "Yes."
    assert sent.json["trajectory"]["used_bullet_ids"] == ["str-00001"]
    assert service.runs["c1"]["state"] == "done"


def test_without_a_playbook_and_without_learning(service: StubService, hansei: Hansei) -> None:
    reflections = route(service, exists=False)
    prompts: list[str] = []

    def model(prompt: str) -> str:
        prompts.append(prompt)
        return "{Yes}"

    graph = build_reflection_graph(hansei, model)
    first = graph.invoke({"query": "{x}?", "dataset": "support"})
    assert [each.model_dump() for each in first["insights"]] == [INSIGHT]
    assert [each.state for each in first["curation_runs"]] == ["done"]
    short = build_reflection_graph(hansei, model, learns=False)
    state = short.invoke({"query": "{x}?", "dataset": "support"})
    assert state["llm_response"] == "{Yes}"
    assert prompts == ["Context:\n\n\nQuery: {x}?\n\nAnswer:"] * 2
    assert len(reflections) == 1
