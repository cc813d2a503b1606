"""The shapes of what is sent and answered, as type hints: values are plain dicts and lists.

Ids are UUIDs as text, times ISO 8601 in UTC; scores, importance and confidence run from 0 to 1.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar

Outcome = Literal["success", "failure", "partial", "timeout", "error"]
Reflect = Literal["auto", "always", "never"]
Kind = Literal["reflection", "strategy", "insight", "bullet", "evaluation", "episode", "chunk"]
State = Literal["queued", "running", "waiting", "done", "failed", "dead"]
Json = dict[str, Any]
Item = TypeVar("Item")


class Page(TypedDict, Generic[Item]):
    items: list[Item]
    next_cursor: str | None


class Reflected(TypedDict):
    """What was learnt from a run; with `state` instead of the rest while a worker is at it."""

    run_id: str
    trace_id: str
    state: NotRequired[str]
    reflection_id: NotRequired[str | None]
    strategy_id: NotRequired[str | None]
    reflection_text: NotRequired[str | None]
    strategy_text: NotRequired[str | None]
    importance: NotRequired[float | None]
    confidence: NotRequired[float | None]
    tags: NotRequired[list[str]]
    error_category: NotRequired[str | None]
    source_event_ids: NotRequired[list[str]]
    engine: NotRequired[str]
    degraded: NotRequired[bool]
    result: NotRequired[Literal["stored", "witnessed", "nothing_found"]]
    duplicate: NotRequired[bool]
    cleaned: NotRequired[bool]
    next_run_id: NotRequired[str | None]
    verdicts: NotRequired[list[Judged]]
    strategies: NotRequired[list[Taught]]


class Judged(TypedDict):
    """A verdict on a bullet that the run had used."""

    key: str
    tag: Literal["helpful", "harmful", "neutral"]
    judge: str
    reason: str | None


class Taught(TypedDict):
    """A strategy that a run came to; `new` is false where it was said before."""

    id: str
    new: bool


class Brought(TypedDict):
    reflection_id: str
    strategy_id: str | None
    result: Literal["stored", "witnessed"]
    cleaned: bool


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
    strength: float
    confidence: float | None
    confidence_score: float
    usefulness: float
    helpful: int
    harmful: int
    neutral: int
    witnesses: int
    status: str
    pinned: bool
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


class Lesson(Memory):
    """A memory found by `query_reflections`."""

    score: float


class Lessons(TypedDict):
    reflections: list[Lesson]


class Revision(TypedDict):
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


class Link(TypedDict):
    source_id: str
    relation: str
    target_kind: str
    target_id: str
    created_at: str


class Sent(TypedDict):
    """What became of one trace. `error` is there when it was refused, the ids when it was not;
    `line` counts the traces of `send_traces` from 1.
    """

    trace_id: NotRequired[str]
    run_id: NotRequired[str | None]
    duplicate: NotRequired[bool]
    cleaned: NotRequired[bool]
    line: NotRequired[int | None]
    error: NotRequired[Json]


class Event(TypedDict):
    seq: int
    event_id: str
    event_type: str
    content: str
    timestamp: str | None
    metadata: Json
    tool_name: str | None
    error: Any
    agent: str | None


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
    error: Any
    language: str | None
    used_keys: list[str]
    metadata: Json
    event_count: int
    same_as: str | None
    created_at: str
    closed_at: str | None


class Evaluation(TypedDict):
    """How a run went by one criterion, as one evaluator sees it."""

    evaluator: str
    criterion: Literal["correctness", "helpfulness", "safety", "completeness", "efficiency"]
    score: float
    reasons: list[str]
    run_id: str | None
    created_at: str


class TraceDetail(Trace):
    query: str | None
    generated_answer: str | None
    reasoning_steps: Any
    ground_truth: Any
    test_report: str | None
    events: list[Event]


class Run(TypedDict):
    id: str
    kind: str
    state: State
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


# What may be given. A value of None is left out of what is sent, except in `MemoryChanges`.


class RunOptions(TypedDict, total=False):
    project_id: str | None
    playbook: str | None
    session_id: str | None
    error: Json | str | None
    task_description: str | None
    task_goal: str | None
    related_memory_ids: list[str] | None
    task_key: str | None
    external_id: str | None


class LessonFields(TypedDict, total=False):
    project_id: str | None
    session_id: str | None
    strategy_text: str | None
    importance: float | None
    confidence: float | None
    tags: list[str] | None
    error_category: str | None
    trace_id: str | None
    metadata: Json | None


class LessonFilter(TypedDict, total=False):
    project_id: str | None
    k: int | None
    min_importance: float | None
    tags: list[str] | None
    kinds: list[str] | None
    error_categories: list[str] | None
    since: str | None
    until: str | None


class MemoryFields(TypedDict, total=False):
    project_id: str | None
    kind: Kind
    title: str | None
    when_to_use: str | None
    keywords: list[str] | None
    tags: list[str] | None
    importance: float | None
    confidence: float | None
    source: str | None
    session_id: str | None
    trace_id: str | None
    metadata: Json | None
    reason: str | None


class MemoryChanges(TypedDict, total=False):
    content: str
    title: str | None
    when_to_use: str | None
    keywords: list[str]
    tags: list[str]
    importance: float
    status: Literal["active", "quarantined", "archived"]
    pinned: bool
    reason: str | None


class Verdict(TypedDict, total=False):
    error: Json | str | None
    ground_truth: Any
    test_report: str | None
    reflect: Reflect | None
