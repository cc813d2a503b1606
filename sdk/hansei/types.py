"""Types of requests and responses, named like the components of the OpenAPI document.

Values are plain dicts and lists. IDs are UUID strings, times are ISO 8601 in UTC, and scores,
importance and confidence are between 0 and 1. Types of one resource only are in `endpoints`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar

OutcomeType = Literal["success", "failure", "partial", "timeout", "error"]
MatchRule = Literal["exact", "number", "contains", "calls"]
"""How to compare a run with its `ground_truth`."""
TraceFormat = Literal[
    "auto", "hansei", "openai", "openai-responses", "anthropic", "claude-code", "codex", "otel",
    "langfuse", "langsmith", "tau-bench", "swe-agent",
]  # fmt: skip
"""The formats of `create_traces` and `hansei reflect --format`."""
ReflectMode = Literal["auto", "always", "never"]
MemoryKind = Literal["reflection", "strategy", "insight", "bullet", "verdict", "episode", "chunk"]
MemoryStatus = Literal["active", "quarantined", "archived"]
RunState = Literal["queued", "running", "waiting", "done", "failed", "dead"]
VerdictTag = Literal["helpful", "harmful", "neutral"]
Fusion = Literal["anchored", "minmax", "rrf"]
Match = Literal["strong", "weak", "none"]
"""How well a memory fits the query."""
Json = dict[str, Any]
T = TypeVar("T")


class Page(TypedDict, Generic[T]):
    items: list[T]
    next_cursor: str | None


# Reflections


class VerdictSummary(TypedDict):
    """A verdict on a bullet that the agent used in the trace."""

    key: str
    tag: VerdictTag
    judge: str
    reason: str | None


class StrategySummary(TypedDict):
    """A strategy from a trace. `is_new` is false if an earlier trace taught it."""

    id: str
    is_new: bool


class GenerateReflectionResponse(TypedDict):
    """The lessons of one trace. A queued run has only `run_id`, `trace_id` and `state`."""

    run_id: str
    trace_id: str
    state: NotRequired[str]
    reflection_id: NotRequired[str | None]
    strategy_id: NotRequired[str | None]
    reflection_text: NotRequired[str | None]
    strategy_text: NotRequired[str | None]
    root_cause: NotRequired[str | None]
    explanation: NotRequired[str | None]
    cause_kind: NotRequired[str | None]
    rules: NotRequired[list[str]]
    task_hint: NotRequired[str | None]
    importance: NotRequired[float | None]
    confidence: NotRequired[float | None]
    tags: NotRequired[list[str]]
    error_category: NotRequired[str | None]
    source_event_ids: NotRequired[list[str]]
    engine: NotRequired[str]
    degraded: NotRequired[bool]
    result: NotRequired[Literal["stored", "already_known", "nothing_found"]]
    duplicate: NotRequired[bool]
    sanitized: NotRequired[bool]
    next_run_id: NotRequired[str | None]
    verdicts: NotRequired[list[VerdictSummary]]
    strategies: NotRequired[list[StrategySummary]]
    confirmed_lesson_ids: NotRequired[list[str]]


class CreateReflectionResponse(TypedDict):
    reflection_id: str
    strategy_id: str | None
    result: Literal["stored", "already_known"]
    sanitized: bool


# Memories and search


class Memory(TypedDict):
    id: str
    project_id: str
    layer: str
    kind: str
    key: str | None
    section: str | None
    title: str | None
    when_to_use: str | None
    content: str
    keywords: list[str]
    tags: list[str]
    importance: float
    confidence: float | None
    confidence_score: float
    usefulness: float
    helpful: int
    harmful: int
    neutral: int
    observation_count: int
    status: str
    pinned: bool
    awaiting_confirmation: bool
    source: str
    error_category: str | None
    outcome: str | None
    session_id: str | None
    trace_id: str | None
    source_event_ids: list[str]
    metadata: Json
    revision: int
    created_at: str
    updated_at: str


class StoredMemory(Memory):
    """`sanitized` is true if the service replaced characters that it cannot store."""

    sanitized: bool


class MemoryRevision(TypedDict):
    revision: int
    content: str
    title: str | None
    when_to_use: str | None
    section: str | None
    tags: list[str]
    importance: float
    status: str
    pinned: bool
    reason: str | None
    actor: str | None
    run_id: str | None
    created_at: str


class MemoryLink(TypedDict):
    source_id: str
    relation: str
    target_kind: str
    target_id: str
    created_at: str


class ReflectionHit(Memory):
    score: float


class QueryReflectionsResponse(TypedDict):
    reflections: list[ReflectionHit]


class MemoryHit(TypedDict):
    """The scores are the terms of the combined score."""

    memory: Memory
    playbook: str | None
    vector_score: float
    bm25_score: float
    combined_score: float
    match: Match | None
    explain: dict[str, float | int | str | None] | None


class RelatedMemory(TypedDict):
    """A memory that the query did not find. `via` are common entities, or "cluster"."""

    memory: Memory
    weight: float
    related_to: list[str]
    via: list[str]


class SearchMemoriesResponse(TypedDict):
    results: list[MemoryHit]
    related: list[RelatedMemory]


class SearchOptions(TypedDict, total=False):
    """Options of every search."""

    project_id: str | None
    top_k: int | None
    kinds: Sequence[str] | None
    section_filter: Sequence[str] | None
    tags: Sequence[str] | None
    error_categories: Sequence[str] | None
    status: MemoryStatus | None
    min_confidence: float | None
    min_importance: float | None
    since: str | None
    until: str | None
    fusion: Fusion | None
    alpha: float | None
    rank_by: Literal["score", "usefulness"] | None
    min_match: Match | None
    explain: bool | None


# Traces


class TraceReceipt(TypedDict):
    """The result of sending one trace: its IDs, or an `error` if it was rejected.

    `line` is the position of the trace in a call of `create_traces`, from 1.
    """

    trace_id: NotRequired[str]
    run_id: NotRequired[str | None]
    duplicate: NotRequired[bool]
    sanitized: NotRequired[bool]
    line: NotRequired[int | None]
    error: NotRequired[Json]


class TraceEvent(TypedDict):
    seq: int
    event_id: str
    event_type: str
    content: str
    timestamp: str | None
    metadata: Json
    tool_name: str | None
    error: Any
    agent: str | None


class ToolDefinition(TypedDict):
    """A tool that an agent could call. `writes`: whether a call can change anything outside the
    agent; None if this is unknown.
    """

    name: str
    description: NotRequired[str | None]
    writes: NotRequired[bool | None]


class Trace(TypedDict):
    id: str
    project_id: str
    external_id: str | None
    task_key: str | None
    session_id: str | None
    playbook: str | None
    task_description: str | None
    task_goal: str | None
    outcome: str | None
    state: str
    conflict: OutcomeConflict | None
    error: Any
    language: str | None
    used_bullet_keys: list[str]
    metadata: Json
    event_count: int
    duplicate_of: str | None
    created_at: str
    closed_at: str | None


class UpdatedTrace(Trace):
    """`sanitized` is true if the service replaced characters that it cannot store."""

    sanitized: bool


class OutcomeConflict(TypedDict):
    """A check that the client declared contradicts the outcome that it reported."""

    reported: OutcomeType
    check: OutcomeType
    reasons: list[str]


class TraceWithEvents(Trace):
    """`events` are the first 200. `list_trace_events` returns all of them."""

    query: str | None
    generated_answer: str | None
    reasoning_steps: Any
    ground_truth: Any
    test_report: str | None
    tools: list[ToolDefinition]
    events: list[TraceEvent]
    next_cursor: str | None


class TraceEvaluation(TypedDict):
    """The score of a trace by one criterion of one evaluator."""

    evaluator: str
    criterion: Literal["correctness", "helpfulness", "safety", "completeness", "efficiency"]
    score: float
    reasons: list[str]
    is_declared: bool
    run_id: str | None
    created_at: str


# Runs


class Run(TypedDict):
    id: str
    kind: str
    state: RunState
    project_id: str
    parent_id: str | None
    next_run_id: str | None
    trace_id: str | None
    input: Json
    attempts: int
    max_attempts: int
    error: Any
    result: Any
    engine: str | None
    degraded: bool
    usage: Any
    created_at: str
    started_at: str | None
    finished_at: str | None
