"""What the tools of the MCP server take and answer. Each model is the output schema of its tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.types import CallToolResult, InputRequiredResult
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hansei.models import EventType, Match


class RecordedEvent(BaseModel):
    """One event of an agent run."""

    model_config = ConfigDict(extra="forbid")

    event_type: EventType
    content: str = Field(default="", description="Text, arguments or response.")
    tool_name: str | None = None
    error: str | None = Field(default=None, description="Message of an error.")


class ToolResult(BaseModel):
    """Read from the attributes of the client's models."""

    model_config = ConfigDict(from_attributes=True)


class ListedPlaybook(ToolResult):
    name: str
    project_id: str
    version: int
    active_bullet_count: int


class ListedPlaybooks(ToolResult):
    items: list[ListedPlaybook]


class FoundBullet(ToolResult):
    id: str = Field(description="Key of the bullet. Cite it as `[mis-00001]`.")
    section: str
    content: str
    when_to_use: str | None
    helpful: int
    harmful: int
    combined_score: float
    match: Match | None = Field(description="How well the bullet fits the query, if there is one.")


class FoundBullets(ToolResult):
    results: list[FoundBullet] = Field(description="Best first.")
    retrieval_id: str | None = Field(description="Send it with the trace.")


class Advice(ToolResult):
    text: str = Field(description="The key points; empty if nothing was learned yet.")
    bullet_keys: list[str]
    retrieval_id: str | None = Field(description="Send it with the trace.")
    version: int


class RecordedVerdict(ToolResult):
    key: str
    counted: bool
    quarantined: bool = Field(description="Whether this verdict put the bullet into quarantine.")


class StoredTrace(ToolResult):
    trace_id: str
    run_id: str | None = Field(description="The first learning run; null if there is none.")
    duplicate: bool = Field(description="Whether the trace was stored before.")


class OpenQuestion(ToolResult):
    message: str
    options: list[str] = Field(description="What answer_intervention accepts as `action`.")


class AgentAnswer(ToolResult):
    agent_run_id: str
    state: str = Field(description="`queued`, `running`, `waiting`, `done`, `failed`, `cancelled`.")
    answer: str | None
    confidence: float | None = Field(description="0 to 1.")
    sources: list[dict[str, Any]] = Field(description="The passages that the answer cites.")
    error: Any
    intervention: OpenQuestion | None = Field(description="In state `waiting`: ask your user.")


class ToolServer(MCPServer):
    def add_tool(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Add a tool that refuses unknown arguments. The SDK would ignore them."""
        super().add_tool(fn, *args, **kwargs)
        tool = self._tool_manager.list_tools()[-1]
        arguments = tool.fn_metadata.arg_model
        arguments.model_config["extra"] = "forbid"
        arguments.model_rebuild(force=True)
        tool.parameters["additionalProperties"] = False

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. Errors are the sentences of the HTTP API, without the SDK's prefix; invalid
        arguments are named as it names fields.
        """
        try:
            return await super().call_tool(name, arguments, context)
        except UnexpectedToolError:
            raise
        except ToolError as error:
            cause = error.__cause__
            tool = self._tool_manager.get_tool(name)
            if isinstance(cause, ValidationError) and tool is not None:
                raise ToolError(describe_arguments(cause, tool.parameters)) from error
            if isinstance(cause, ToolError):
                raise ToolError(str(cause)) from error
            raise


def describe_arguments(error: ValidationError, schema: Mapping[str, Any]) -> str:
    """One line for each argument that is missing, invalid or unknown. `schema` is that of the
    arguments.
    """
    lines: list[str] = []
    for each in error.errors(include_url=False, include_context=True, include_input=False):
        message = each["msg"].removeprefix("Input should be ")
        if each["type"] == "missing":
            message = "This argument is required."
        elif each["type"] == "extra_forbidden":
            is_argument = len(each["loc"]) == 1
            names = schema["properties"] if is_argument else RecordedEvent.model_fields
            message = f"Unknown argument. Allowed: {', '.join(names)}."
        elif message != each["msg"]:
            message = f"Must be {message}."
        lines.append(f"{'.'.join(map(str, each['loc']))}: {message}")
    return "\n".join(lines)
