"""Objects inside of requests, as typed dicts.

Generated from `openapi.json` by `make client`; do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class BudgetLimit(TypedDict):
    """
    A limit on model calls in one period, in US dollars, tokens, or both.

    It limits the tenant, one project, one purpose, or one purpose in one project. A call must fit
    all budgets that apply to it. Periods start at midnight UTC.
    """

    period: Literal["day", "month"]
    project_id: NotRequired[str | None]
    """Project. Null: all projects."""
    purpose: NotRequired[
        Literal[
            "reflect",
            "curate",
            "consolidate",
            "evaluate",
            "workflow",
            "dreaming",
            "session_summary",
            "grace_plan",
            "grace_act",
            "grace_answer",
            "grace_judge",
        ]
        | None
    ]
    """What the model is called for. Null: all purposes."""
    limit_usd: NotRequired[float | None]
    """Limit in US dollars. 0 allows no call. Null: no limit in dollars."""
    limit_tokens: NotRequired[int | None]
    """Limit of input and output tokens together. Null: no limit in tokens."""
    allow_unknown_price: NotRequired[bool]
    """Whether models without a known price may be called."""
    when_spent: NotRequired[Literal["refuse", "rules"]]
    """`refuse`: a request that waits gets 402, and background runs wait until the budget allows them. `rules`: the rules engine replaces the model."""


class Delta(TypedDict):
    """A delta with the limits of stored texts."""

    type: Literal["ADD", "UPDATE", "DELETE", "MERGE", "KEEP"]
    section: NotRequired[str]
    bullet_id: NotRequired[str | None]
    content: NotRequired[str]
    reasoning: NotRequired[str]
    source_ids: NotRequired[list[str]]
    when_to_use: NotRequired[str | None]
    title: NotRequired[str | None]
    keywords: NotRequired[list[str] | None]
    tags: NotRequired[list[str] | None]


class ErrorInfo(TypedDict):
    """
    Why an agent run failed. A string is read as the message. `category` and `message` are
    accepted for `error_category` and `error_message`; your own data goes into `context`.
    """

    error_category: NotRequired[
        Literal[
            "tool_error",
            "timeout_error",
            "validation_error",
            "llm_error",
            "network_error",
            "permission_error",
            "unknown_error",
        ]
    ]
    error_message: NotRequired[str]
    context: NotRequired[dict[str, Any]]


class Event(TypedDict):
    """
    One entry of a trace. The order of the list counts, not `timestamp`. Your own data goes into
    `metadata`.
    """

    event_id: NotRequired[str | None]
    """Unique in the trace. Default: derived from its position."""
    event_type: Literal[
        "tool_call",
        "tool_response",
        "llm_call",
        "llm_response",
        "user_message",
        "system_event",
        "error_event",
    ]
    content: NotRequired[str]
    """Text of a message, arguments or response of a tool."""
    timestamp: NotRequired[str | None]
    metadata: NotRequired[dict[str, Any]]
    tool_name: NotRequired[str | None]
    error: NotRequired[dict[str, Any] | None]
    """A string is read as `{"message": …}`."""
    agent: NotRequired[str | None]
    """Which agent, if several take part."""


class RetentionPolicyRequest(TypedDict):
    """How long the data of a project is stored."""

    project_id: NotRequired[str | None]
    """Null: every project without a policy of its own."""
    event_days: NotRequired[int | None]
    """Days that the events of a trace are stored. Null: as the trace."""
    trace_days: NotRequired[int | None]
    """Days that a trace is stored. Null: no limit. Memories stay."""
    retrieval_days: NotRequired[int | None]
    """Days that a retrieval is stored. Null: HANSEI_RETRIEVAL_RETENTION_DAYS."""
    llm_call_days: NotRequired[int | None]
    """Days that the record of a model call is stored. Null: no limit."""


class SectionDefinition(TypedDict):
    """One section. Without `slug`, it is derived from the name."""

    name: str
    description: NotRequired[str]
    slug: NotRequired[str]


class SubmittedTrajectory(TypedDict):
    """A trajectory within the limits of the service."""

    query: str
    generated_answer: str
    reasoning_steps: NotRequired[list[str]]
    used_bullet_ids: NotRequired[list[str]]
    dataset: NotRequired[str | Literal[""]]
    status: NotRequired[Literal["success", "failure"] | None]
    """The outcome as the agent sees it. Executed tests of a JUnit report take precedence. Without a status, the answer decides if it is the same as the `ground_truth`, or another number."""
    error_message: NotRequired[str | None]


class ToolDefinition(TypedDict):
    """
    A tool that the agent could call. A string is read as its name.

    The forms of OpenAI (`{"type": "function", "function": {…}}`), Anthropic and MCP are accepted.
    Their schemas of arguments are not stored. MCP's `annotations` give `writes`: false for
    `readOnlyHint: true`, true for `readOnlyHint: false` or `destructiveHint: true`.
    """

    name: str
    description: NotRequired[str | None]
    """The first 4,000 characters are stored."""
    writes: NotRequired[bool | None]
    """Whether a call can change anything outside the agent. Null: unknown."""
