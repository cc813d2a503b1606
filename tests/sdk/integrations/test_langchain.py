"""A graph of the real LangGraph with a tool, as events of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import hansei
from hansei.integrations.langchain import HanseiCallbackHandler
from hansei.recording.recorder import Recorder
from tests.sdk.stub_service import KEY, StubService


@tool
def look_up(number: int) -> str:
    """Find an order."""
    if number == 2:
        raise ValueError("no such order")
    return "here"


def build_graph(replies: list[AIMessage]) -> Any:
    model = GenericFakeChatModel(messages=iter(replies))
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([look_up], handle_tool_errors=True))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


def call(number: int) -> AIMessage:
    calls = [{"name": "look_up", "args": {"number": number}, "id": f"c{number}"}]
    return AIMessage(content="", tool_calls=calls)


def test_graph_with_tools(service: StubService, tmp_path: Path) -> None:
    recorder = Recorder(service.url, KEY, spool_dir=tmp_path / "spool")
    graph = build_graph([call(1), call(2), AIMessage(content="It is here.")])
    with hansei.trace("t", recorder=recorder):
        config: Any = {"callbacks": [HanseiCallbackHandler()]}
        graph.invoke({"messages": [("user", "Where is it?")]}, config=config)
    assert recorder.flush() == 0
    recorder.close(0)
    (trace,) = service.traces.values()
    found = [(e["event_type"], e.get("tool_name")) for e in trace["events"]]
    assert found == [
        ("user_message", None),
        ("tool_call", "look_up"),
        ("tool_response", "look_up"),
        ("tool_call", "look_up"),
        ("tool_response", "look_up"),
        ("llm_response", None),
    ]
    assert trace["events"][2]["content"] == "here"
    assert "no such order" in trace["events"][4]["error"]["message"]
    assert trace["events"][1]["metadata"] == {"call_id": "c1"}
