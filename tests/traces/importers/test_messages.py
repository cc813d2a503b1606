"""Messages of chat APIs become events."""

from __future__ import annotations

from typing import Any

from memory_api.traces.importers.messages import (
    MESSAGE_NUMBER_KEY,
    message_text,
    messages_to_events,
)
from tests.support.cases import each_case
from tests.support.transcripts import call_of, result_of


def test_chat_messages_become_events() -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}, {"type": "image"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "function": {"name": "weather", "arguments": '{"city": "Kyoto"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "assistant", "content": "It rains."},
    ]
    told = [(e.event_type.value, e.tool_name, e.content) for e in messages_to_events(messages)]
    assert told == [
        ("system_event", None, "Be kind."),
        ("user_message", None, "Weather?"),
        ("tool_call", "weather", '{"city": "Kyoto"}'),
        ("tool_response", "weather", "rain"),
        ("llm_response", None, "It rains."),
    ]
    assert [e.metadata[MESSAGE_NUMBER_KEY] for e in messages_to_events(messages)] == [1, 2, 3, 4, 5]


@each_case(
    ("fields", "error"),
    [
        ({"content": "Error: no such file"}, None),
        ({"content": '{"success": false, "is_error": true}'}, None),
        ({"content": "gone", "is_error": True}, "gone"),
        ({"content": "gone", "status": "error"}, "gone"),
        ({"content": "there", "status": "success"}, None),
        ({"content": {"content": [{"type": "text", "text": "gone"}], "isError": True}}, "gone"),
        ({"content": {"content": [{"type": "text", "text": "Error"}], "isError": False}}, None),
    ],
)
def test_envelope_of_a_result_becomes_the_error_of_its_event(
    fields: dict[str, Any], error: str | None
) -> None:
    (event,) = messages_to_events([{"role": "tool", "tool_call_id": "c1", **fields}])
    assert event.error == ({"message": error} if error else None)
    assert event.content.strip("{") != ""


def test_content_blocks_become_events() -> None:
    messages = [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Use [pat-001]."},
                call_of("Write", {"path": "a"}),
            ],
        },
        {"role": "user", "content": [result_of([{"type": "text", "text": "no"}], is_error=True)]},
    ]
    said, called, back = messages_to_events(messages)
    assert (said.content, called.tool_name, called.content) == (
        "Use [pat-001].",
        "Write",
        '{"path": "a"}',
    )
    assert (back.tool_name, back.content, back.error) == ("Write", "no", {"message": "no"})


@each_case("content", [None, 7, [], [None, 7], {"type": "text"}, [[]]])
def test_unknown_content_is_ignored(content: Any) -> None:
    assert message_text(content) == ""
    assert messages_to_events([{"role": "user", "content": content}]) == []


@each_case(
    ("block", "content"),
    [
        ({"type": "resource", "resource": {"uri": "x", "text": "pay first"}}, "pay first"),
        ({"type": "json", "json": {"note": "pay first"}}, "pay first"),
        ({"type": "document", "source": {"type": "text", "data": "pay first"}}, "pay first"),
        ({"type": "search_result", "content": [{"type": "text", "text": "支払う"}]}, "支払う"),
        ({"type": "image", "source": {"type": "base64", "data": "iVBOR/w0KG" * 99}}, ""),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A1" * 200}}, ""),
    ],
)
def test_block_with_words_is_text_and_a_picture_is_none(
    block: dict[str, Any], content: str
) -> None:
    """Text that is in no event would not count as outside text."""
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [block]}
    (event,) = messages_to_events([{"role": "user", "content": [result]}])
    assert content in event.content
    assert bool(event.content) is bool(content)


def test_tools_of_the_provider_become_calls_with_results() -> None:
    page = {"type": "web_fetch_result", "content": {"type": "document", "title": "Pay first"}}
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_fetch", "input": {"url": "x"}},
        {"type": "web_fetch_tool_result", "tool_use_id": "s", "content": page},
        {"type": "mcp_tool_use", "id": "m", "name": "read", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "m", "is_error": True, "content": "gone"},
    ]
    called, fetched, read, failed = messages_to_events([{"role": "assistant", "content": blocks}])
    assert (called.event_type.value, called.tool_name) == ("tool_call", "web_fetch")
    assert (fetched.event_type.value, fetched.tool_name) == ("tool_response", "web_fetch")
    assert "Pay first" in fetched.content
    assert (read.tool_name, failed.content, failed.error) == ("read", "gone", {"message": "gone"})
