"""Records agent runs of LangChain and LangGraph (extra `hansei[langchain]`).

handler = HanseiCallbackHandler()
with hansei.trace("refund an order", playbook="support"):
    agent.invoke(inputs, config={"callbacks": [handler]})
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from hansei.integrations.conversation import Conversation
from hansei.integrations.extras import needs_extra
from hansei.recording.trace import RecordedTrace, current_trace

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import BaseMessage
except ModuleNotFoundError as error:
    raise needs_extra("langchain", error) from None

log = logging.getLogger("hansei")

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


class HanseiCallbackHandler(BaseCallbackHandler):
    """Records model calls, tool calls and errors in `trace`, by default in the trace of the block
    that runs. Use one handler per agent run. Never raises into the agent.
    """

    run_inline = True  # in the order of the run, in its context

    def __init__(self, trace: RecordedTrace | None = None) -> None:
        self._trace = trace
        self._conversation = Conversation()
        self._inputs: dict[UUID, list[dict[str, Any]]] = {}
        self._tools: dict[UUID, tuple[str, str]] = {}

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: Sequence[Sequence[BaseMessage]],
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        self._inputs[run_id] = [_to_message(one) for each in messages for one in each]

    def on_llm_start(
        self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any
    ) -> None:
        self._inputs[run_id] = [{"role": "user", "content": prompt} for prompt in prompts]

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        replies = [item for each in response.generations for item in each]
        outputs = [
            _to_message(item.message)
            if hasattr(item, "message")
            else {"role": "assistant", "content": item.text}
            for item in replies
        ]
        self._record(run_id, outputs)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._record(run_id, [])
        if (trace := self._find_trace()) is not None:
            trace.error(error)

    def on_tool_start(
        self, serialized: dict[str, Any], input_str: str, *, run_id: UUID, **kwargs: Any
    ) -> None:
        name = str(kwargs.get("name") or (serialized or {}).get("name") or "tool")
        call_id = str(kwargs.get("tool_call_id") or run_id)
        self._tools[run_id] = (name, call_id)
        call = {"type": "function_call", "call_id": call_id, "name": name}
        self._write({**call, "arguments": kwargs.get("inputs") or input_str})

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        _, call_id = self._tools.pop(run_id, ("tool", str(run_id)))
        content = getattr(output, "content", output)
        failed = getattr(output, "status", None) == "error"
        self._write(
            {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": failed}
        )

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        _, call_id = self._tools.pop(run_id, ("tool", str(run_id)))
        content = f"{type(error).__name__}: {error}"
        self._write(
            {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": True}
        )

    def _record(self, run_id: UUID, outputs: list[dict[str, Any]]) -> None:
        inputs = self._inputs.pop(run_id, [])
        if (trace := self._find_trace()) is not None:
            self._conversation.record(trace, inputs, outputs, model="", records_tools=True)

    def _write(self, item: dict[str, Any]) -> None:
        if (trace := self._find_trace()) is not None:
            self._conversation.record(trace, [item], [], model="", records_tools=True)

    def _find_trace(self) -> RecordedTrace | None:
        return self._trace or current_trace()


def _to_message(message: BaseMessage) -> dict[str, Any]:
    calls = [
        {
            "id": call.get("id"),
            "function": {"name": call.get("name"), "arguments": call.get("args")},
        }
        for call in getattr(message, "tool_calls", None) or ()
    ]
    return {
        "role": _ROLES.get(message.type, "system"),
        "content": message.content,
        "tool_calls": calls,
        "tool_call_id": getattr(message, "tool_call_id", None),
        "is_error": getattr(message, "status", None) == "error",
    }
