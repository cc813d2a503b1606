"""`ask_user`: asks a person. The executor turns the step into an intervention and waits (S3.32)."""

from __future__ import annotations

from memory_api.grace.tools.port import Tool, ToolContext, ToolFailed, ToolInput, ToolResult


class AskUserTool(Tool):
    name = "ask_user"
    description = "Ask the person who asked the question, if information is missing."

    async def run(self, context: ToolContext, given: ToolInput) -> ToolResult:
        raise ToolFailed("`ask_user` is carried out by an intervention.")
