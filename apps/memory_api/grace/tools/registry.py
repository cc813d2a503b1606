"""The tools of this installation: those of Hansei and those of entry points."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import entry_points

import structlog

from memory_api.grace.config import GraceConfig
from memory_api.grace.tools.port import Tool, ToolContext, ToolFailed, ToolInput, ToolResult
from memory_api.grace.tools.rag_search import RAGSearchTool
from memory_api.grace.tools.react_loop import LegacyAgentTool
from memory_api.grace.tools.reasoning import ReasoningTool
from memory_api.grace.tools.web_search import WebSearchTool

log = structlog.get_logger()

ENTRY_POINT_GROUP = "hansei.grace_tools"


class AskUserTool(Tool):
    """Asks a person. The executor turns the step into an intervention and waits (S3.32)."""

    name = "ask_user"
    description = "Ask the person who asked the question, if information is missing."

    async def run(self, context: ToolContext, given: ToolInput) -> ToolResult:
        raise ToolFailed("`ask_user` is carried out by an intervention.")


BUILTIN_TOOLS: tuple[type[Tool], ...] = (
    RAGSearchTool,
    ReasoningTool,
    AskUserTool,
    LegacyAgentTool,
    WebSearchTool,
)


@lru_cache(1)
def load_tools() -> Mapping[str, Tool]:
    """All tools by name. An entry point that fails to load is logged and left out; it cannot
    replace a tool of Hansei.
    """
    tools = {tool.name: tool() for tool in BUILTIN_TOOLS}
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            tool: Tool = entry_point.load()()
            tools.setdefault(tool.name, tool)
        except Exception as error:
            log.error("grace_tool_not_loaded", name=entry_point.name, error=str(error))
    return tools


def available_tools(config: GraceConfig, *, has_model: bool) -> dict[str, Tool]:
    """The tools that a plan may use now."""
    return {
        name: tool
        for name, tool in load_tools().items()
        if tool.is_available(config) and (has_model or not tool.needs_model)
    }
