"""Tools that an agent could call, as a trace lists them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from memory_api.core.schemas import MAX_NAME_LENGTH, Name

MAX_TOOLS = 1_000
MAX_DESCRIPTION_LENGTH = 4_000
"""Characters that are stored of a tool's description. The rest is cut off."""


class ToolDefinition(BaseModel):
    """A tool that the agent could call. A string is read as its name.

    The forms of OpenAI (`{"type": "function", "function": {…}}`), Anthropic and MCP are accepted.
    Their schemas of arguments are not stored. MCP's `annotations` give `writes`: false for
    `readOnlyHint: true`, true for `readOnlyHint: false` or `destructiveHint: true`.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Name
    description: str | None = Field(
        default=None, description="The first 4,000 characters are stored."
    )
    writes: bool | None = Field(
        default=None,
        description="Whether a call can change anything outside the agent. Null: unknown.",
    )

    @model_validator(mode="before")
    @classmethod
    def _lenient(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"name": data}
        if not isinstance(data, dict):
            return data
        body = cast("dict[str, Any]", data)
        function = body.get("function")
        if isinstance(function, dict):
            body = {**body, **cast("dict[str, Any]", function)}
        known = {name: body[name] for name in ("name", "description", "writes") if name in body}
        if isinstance(description := known.get("description"), str):
            known["description"] = description[:MAX_DESCRIPTION_LENGTH] or None
        if "name" not in known and body.get("type") not in (None, "function", "custom"):
            known["name"] = body["type"]  # a built-in tool of OpenAI, such as `web_search`
        if known.get("writes") is None:
            known["writes"] = _writes_by_annotations(body.get("annotations"))
        return known


def _writes_by_annotations(annotations: Any) -> bool | None:
    """`writes` by MCP's tool annotations. `destructiveHint` has a meaning only for tools that are
    not read-only, and its default says nothing about this tool.
    """
    if not isinstance(annotations, dict):
        return None
    hints = cast("dict[str, Any]", annotations)
    if isinstance(read_only := hints.get("readOnlyHint"), bool):
        return not read_only
    return True if hints.get("destructiveHint") is True else None


def merge_tools(tools: Iterable[ToolDefinition]) -> list[ToolDefinition]:
    """The tools, each name once, in order of their first occurrence. What a later definition states
    replaces what an earlier one stated.
    """
    merged: dict[str, ToolDefinition] = {}
    for tool in tools:
        earlier = merged.get(tool.name)
        stated = tool.model_dump(exclude_none=True)
        merged[tool.name] = earlier.model_copy(update=stated) if earlier else tool
    return list(merged.values())


def recorded_tools(names: Iterable[str]) -> list[ToolDefinition]:
    """The tools of recorded calls, each once. Nothing is known but their names."""
    unique = dict.fromkeys(name[:MAX_NAME_LENGTH] for name in names if name)
    return [ToolDefinition(name=name) for name in unique]


def to_tools(stored: Any) -> list[ToolDefinition]:
    """Converts the column `traces.tools` without validation."""
    items = cast("Sequence[dict[str, Any]]", stored or ())
    return [ToolDefinition.model_construct(**item) for item in items]


def _none_to_empty(value: Any) -> Any:
    return [] if value is None else value


_AnyTool = Annotated[
    ToolDefinition,
    BeforeValidator(
        lambda data: data, json_schema_input_type=ToolDefinition | str | dict[str, Any]
    ),
]
"""The schema of a request states the other forms too, for the types of clients."""
Tools = Annotated[
    list[_AnyTool],
    Field(max_length=MAX_TOOLS),  # of the list itself, so that a longer one is not validated
    BeforeValidator(_none_to_empty),
    Field(
        description="The tools that the agent could call. Without them, the names come from the "
        "recorded calls, and whether a call changes anything is unknown.",
    ),
]
