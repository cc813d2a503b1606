"""What the service answers, as objects with attributes.

Generated from `openapi.json` by `make client`; do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from hansei._model import Model


class AffectedBullet(Model):
    """A bullet that was learned from erased and other sources. Check its text."""

    project_id: str
    playbook: str
    key: str


class AgentCalibration(Model):
    """Thresholds of a project and the calibration of its scores."""

    silent: float
    notify: float
    confirm: float
    temperature: float
    """Divides the logit of a score; 1 changes nothing."""
    ece: float | None
    """Expected calibration error with ten bins."""
    sample_count: int
    """Runs with feedback that the calibration rests on."""


AgentRunState: TypeAlias = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]
"""`waiting`: a person is asked; see `intervention`."""


class ApiKey(Model):
    """An API key without its secret."""

    id: str
    name: str
    scopes: list[str]
    project_id: str | None
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    created_at: str


class AuditEvent(Model):
    """One administrative act."""

    id: str
    action: str
    """`<noun>.<past participle>`, such as `key.created`."""
    target: str
    """What was changed, such as `key:<ID>`."""
    actor: str
    """`key:<ID>`, `run:<ID>` or `command_line`."""
    details: dict[str, Any]
    created_at: str


class BudgetAlert(Model):
    """A threshold that a budget reached in the current period."""

    percent: Literal[80, 90, 95]
    unit: Literal["usd", "tokens"]
    created_at: str


BulletFormat: TypeAlias = Literal["prompt", "ace"]
"""How each bullet is written: `prompt` with title and `when_to_use`, `ace` with its counters."""


BulletOrder: TypeAlias = Literal["key", "usefulness", "-usefulness"]
"""By key, or by usefulness and then by key. A minus sign means the highest first."""


BulletStatus: TypeAlias = Literal["active", "quarantined", "archived", "deleted"]


class BulletVersion(Model):
    """A bullet after one change, with the author and the reason of the change."""

    revision: int
    """From 1."""
    playbook_version: int | None
    """Version of the playbook with this change."""
    change_type: str
    """`created`, `changed`, `merged`, `quarantined`, `released`, `archived`, `deleted` or `restored`."""
    merged_into: str | None
    """Key of the bullet that replaced it."""
    section: str | None
    title: str | None
    when_to_use: str | None
    content: str
    tags: list[str]
    status: str
    pinned: bool
    reason: str | None
    """Null if nobody gave one."""
    actor: str | None
    """`key:` and the ID of an API key, `run`, or `curator` for the service."""
    run_id: str | None
    """The run that made the change."""
    created_at: str


class Collection(Model):
    """A named set of documents."""

    id: str
    project_id: str
    name: str
    description: str
    chunk_tokens: int
    """Size of a chunk in estimated tokens."""
    state: str
    """`active`, or `deleting` until its last chunk is removed."""
    document_count: int
    chunk_count: int
    """Chunks that searches find."""
    created_at: str


class ConfidenceInterval(Model):
    """A 95 % interval (Newcombe). Null if there is no difference."""

    low: float | None
    high: float | None


class CreateApiKeyResponse(Model):
    """A created API key. `key` is shown only here."""

    id: str
    name: str
    scopes: list[str]
    project_id: str | None
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    created_at: str
    key: str


class CreateReflectionResponse(Model):
    """The stored reflection."""

    reflection_id: str
    strategy_id: str | None
    result: Literal["stored", "already_known"]
    sanitized: bool = False


class CreateTenantResponse(Model):
    """A created tenant with its first admin key."""

    id: str
    slug: str
    status: str
    """`active` or `suspended`."""
    created_at: str
    key: str | None
    """Null if the tenant already existed."""


class CreateWebhookResponse(Model):
    """A webhook with its new secret, which is shown once."""

    id: str
    project_id: str | None
    url: str
    event_types: list[str]
    description: str | None
    active: bool
    created_at: str
    updated_at: str
    secret: str
    """Verifies the signatures (Standard Webhooks)."""


Criterion: TypeAlias = Literal["correctness", "helpfulness", "safety", "completeness", "efficiency"]


class CuratedLesson(Model):
    """The decision of the curator on one lesson."""

    memory_id: str | None
    """The strategy or insight."""
    text: str | None
    """Its text; null if it was erased."""
    decision: Literal[
        "added", "updated", "merged", "already_known", "waiting", "proposed", "rejected"
    ]
    key: str | None
    """The bullet with this lesson, if any."""
    reason: str | None
    """The reason of the decision."""
    run_id: str | None
    """The run that stored the decision."""
    decided_at: str


DeliveryState: TypeAlias = Literal["queued", "retrying", "delivered", "failed"]


DeltaAction: TypeAlias = Literal["added", "updated", "merged", "deleted", "kept", "rejected"]
"""What a delta did. `kept`: the bullet is unchanged."""


DeltaType: TypeAlias = Literal["ADD", "UPDATE", "DELETE", "MERGE", "KEEP"]


class Document(Model):
    """A document and how far it is loaded."""

    id: str
    source: str
    """Identifies the document in its collection."""
    title: str | None
    media_type: str
    byte_count: int
    state: str
    """`queued`, `running`, `done`, `failed` (see `error`) or `deleting`."""
    error: Any
    """Why it failed: `code` (`empty`, `no_text`, `encrypted`, `broken_pdf`, `not_text`, `unknown_encoding`, `too_many_pages`, `too_much_text`, `too_slow` or `not_loaded`, after which its run can be retried) and `message`."""
    progress: float
    """Share of its chunks that are stored, 0 to 1."""
    page_count: int | None
    chunk_count: int | None
    run_id: str | None
    """The run that loads it."""
    created_at: str
    updated_at: str


class EarlierAnswer(Model):
    """An earlier question of a conversation and its answer."""

    question: str
    answer: str


ErasureTarget: TypeAlias = Literal["memory", "trace", "person", "tenant"]
"""What is erased. A person is a text in `metadata.subject` of traces and memories."""


ErrorCategory: TypeAlias = Literal[
    "tool_error",
    "timeout_error",
    "validation_error",
    "llm_error",
    "network_error",
    "permission_error",
    "unknown_error",
]


class EvaluationReport(Model):
    """A published report."""

    id: str
    project_id: str
    evaluation_id: str
    playbook: str | None
    """The playbook that the memory started from."""
    summary: dict[str, Any]
    """`report` without what is long."""
    actor: str
    created_at: str
    """When the plan was written."""
    published_at: str


class EvaluationReportDetails(Model):
    """A published report with its content."""

    id: str
    project_id: str
    evaluation_id: str
    playbook: str | None
    """The playbook that the memory started from."""
    summary: dict[str, Any]
    """`report` without what is long."""
    actor: str
    created_at: str
    """When the plan was written."""
    published_at: str
    report: dict[str, Any]


EventType: TypeAlias = Literal[
    "tool_call",
    "tool_response",
    "llm_call",
    "llm_response",
    "user_message",
    "system_event",
    "error_event",
]


Fusion: TypeAlias = Literal["anchored", "minmax", "rrf"]
"""How a search combines the BM25 score and the cosine similarity."""


class Health(Model):
    """The process is alive."""

    status: Literal["ok"] = "ok"


class Insight(Model):
    """A lesson and the analysis behind it."""

    reasoning: str
    """How you came to this, from what the trajectory shows"""
    error_identification: str
    """What was wrong, exactly; empty if nothing was"""
    root_cause_analysis: str
    """Why it went wrong, or why it worked"""
    correct_approach: str
    """The correct approach, or what to repeat next time"""
    key_insight: str
    """The lesson as one rule: when, and what to do"""


class Intervention(Model):
    """A question to a person."""

    id: str
    kind: str
    """`plan`, `step`, `question` (of the agent) or `interrupted`."""
    level: str
    """`confirm` or `escalate`."""
    step_id: int | None
    message: str
    options: list[str]
    """Actions that answer it."""
    state: str
    """`open`, `answered`, `expired` or `cancelled`."""
    action: str | None
    input: str | None
    default_action: str
    """Taken at `expires_at` if nobody answers."""
    expires_at: str | None
    created_at: str
    answered_at: str | None


InterventionAction: TypeAlias = Literal["proceed", "modify", "cancel", "input", "retry", "skip"]
"""What a person decides. `modify` and `input` need a text."""


Judge: TypeAlias = Literal["human", "llm", "outcome"]
"""The source of a verdict: a person, a model or agent, or the outcome of the agent run."""


KeyScope: TypeAlias = Literal["read", "write", "admin", "operator"]
"""
What an API key may do. `operator` keys create tenants. Only the CLI can create them, with
the owner connection.
"""


MaintenanceTaskName: TypeAlias = Literal[
    "upkeep", "indexes", "retention", "summaries", "dreaming", "entities", "clusters", "pruning"
]
"""`upkeep` does what is due every few minutes; the others have a period of their own."""


Match: TypeAlias = Literal["strong", "weak", "none"]
"""How well it fits the query. `none`: it has little to do with it."""


MatchRule: TypeAlias = Literal["exact", "number", "contains", "calls"]


class Memory(Model):
    """A stored memory."""

    id: str
    project_id: str
    layer: str
    """`rm` (reflective), `em` (episodic) or `sm` (semantic)."""
    kind: str
    key: str | None
    """The key of a bullet, such as `mis-00001`."""
    section: str | None
    """The section of a bullet."""
    title: str | None
    when_to_use: str | None
    content: str
    keywords: list[str]
    tags: list[str]
    importance: float
    """How much the memory matters, 0 to 1."""
    confidence: float | None
    """How certain its author is, 0 to 1."""
    confidence_score: float
    """helpful / (helpful + harmful), 0 to 1; 0.5 without verdicts."""
    usefulness: float
    """5th percentile of Beta(1 + helpful, 1 + harmful), 0 to 1."""
    helpful: int
    harmful: int
    neutral: int
    observation_count: int
    """Number of traces that taught this lesson."""
    status: str
    """`active`, `quarantined` or `archived`."""
    pinned: bool
    """True if learning may not change it."""
    awaiting_confirmation: bool = False
    """True if it is quarantined because one trace taught it, and it quotes text of a tool or a user, or contradicts a bullet. A second independent trace or a person activates it."""
    source: str
    error_category: str | None
    outcome: str | None
    session_id: str | None
    trace_id: str | None
    source_event_ids: list[str]
    """Events of the trace that it rests on."""
    metadata: dict[str, Any]
    revision: int
    created_at: str
    updated_at: str


class MemoryHit(Model):
    """One result of a search. `combined_score` combines the two others. All are 0 to 1."""

    memory: Memory
    playbook: str | None
    """The playbook of a bullet."""
    vector_score: float
    bm25_score: float
    combined_score: float
    match: Match | None
    """Null for an empty query."""
    explain: dict[str, float | int | str | None] | None


MemoryKind: TypeAlias = Literal[
    "reflection", "strategy", "insight", "bullet", "verdict", "episode", "chunk"
]


MemoryLayer: TypeAlias = Literal["rm", "em", "sm"]
"""Reflective, episodic or semantic memory. The long names are accepted too."""


class MemoryLink(Model):
    """A relation from a memory (`source`) to another memory or a trace (`target`)."""

    source_id: str
    relation: str
    """Such as `derived_from` or `supports`."""
    target_kind: str
    """`memory` or `trace`."""
    target_id: str
    created_at: str


class MemoryRevision(Model):
    """The state of a memory after one change, with the author and the reason of the change."""

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
    """`key:` and the ID of an API key, or `run`."""
    run_id: str | None
    """The run that made the change."""
    created_at: str


class ModelFailure(Model):
    """Why the model gave no answer."""

    code: str
    message: str


class OutcomeRate(Model):
    """Agent runs and how many of them succeeded."""

    runs: int
    successes: int
    rate: float | None
    """successes / runs, 0 to 1; null without runs."""


OutcomeType: TypeAlias = Literal["success", "failure", "partial", "timeout", "error"]


Period: TypeAlias = Literal["day", "month"]


class PlanStep(Model):
    """One step of a plan."""

    step_id: int
    action: str
    description: str
    query: str | None
    collection: str | None
    depends_on: list[int]
    expected_output: str = ""
    fallback: str | None
    timeout_seconds: float | None


class PlanStepResult(Model):
    """What a step returned, and how sure it is."""

    step_id: int
    status: Literal["success", "partial", "failed", "skipped"]
    output: str = ""
    confidence: float = 0.0
    sources: list[dict[str, Any]]
    error: str | None
    breakdown: dict[str, float]
    penalties: list[str]
    level: str | None
    action: str = ""
    used_fallback: bool = False
    found: bool = True
    execution_time_ms: int = 0


class PlanStepView(Model):
    """A plan step and its result."""

    step_id: int
    action: str
    description: str
    query: str | None
    collection: str | None
    depends_on: list[int]
    fallback: str | None
    state: str
    """`pending`, `running`, `success`, `partial`, `failed` or `skipped`."""
    attempt_count: int
    output: str | None
    confidence: float | None
    """0 to 1."""
    breakdown: dict[str, float]
    """What the confidence consists of; of a search also hits, max, mean, variance and agreement."""
    penalties: list[str]
    level: str | None
    """`silent`, `notify`, `confirm` or `escalate`."""
    sources: list[dict[str, Any]]
    error: str | None


PlaybookFormat: TypeAlias = Literal["bullets", "sections", "ace"]


class PlaybookVersion(Model):
    """One change of a playbook and its author."""

    version: int
    change_type: str
    """Kind of change, such as `deltas`, `import` or `restore`."""
    added_count: int
    """Number of added bullets."""
    updated_count: int
    """Number of changed bullets."""
    removed_count: int
    """Number of removed bullets."""
    active_bullet_count: int
    """Number of active bullets after the change."""
    reason: str | None
    actor: str | None
    """`key:` and the ID of an API key, or `run`."""
    run_id: str | None
    """The run that made the change."""
    created_at: str


ProposalState: TypeAlias = Literal["waiting", "accepted", "rejected"]
"""Whether a proposal waits for a decision."""


class ProvenanceLink(Model):
    """One link from a bullet towards the events that it was learned from."""

    source_id: str
    relation: str
    target_kind: str
    target_id: str
    depth: int
    """Number of links from the bullet, from 1."""
    kind: str | None
    key: str | None
    content: str | None
    trace_id: str | None
    task_description: str | None
    outcome: str | None
    source_event_ids: list[str]
    events: list[dict[str, Any]]


Question: TypeAlias = Literal[
    "bullets",
    "bullet_versions",
    "playbook_sizes",
    "churn",
    "survival",
    "verdicts",
    "movers",
    "verdict_drift",
    "funnel",
    "effects",
    "improvement",
    "coverage",
    "uncovered_queries",
    "near_duplicates",
    "contradictions",
    "conflicts",
    "costs",
    "unit_costs",
    "agent_runs",
    "error_categories",
]
"""A question of analytics, and the function of the schema `questions` that answers it."""


class QuestionInfo(Model):
    """A question, and the filters that it has."""

    name: Question
    title: str
    """The question as a sentence."""
    filters: list[str]
    """Out of `playbook`, `section` and `key`."""


RankBy: TypeAlias = Literal["score", "usefulness"]
"""Whether results are ordered by relevance or by usefulness."""


class Readiness(Model):
    """
    The state of each part. `status` of a part is `ok`, `none` (not configured), `paused` or
    `unavailable`. Only administrators and clients on the loopback address see the parts.
    """

    status: Literal["ok", "unavailable"]
    database: dict[str, Any] | None
    queue: dict[str, Any] | None
    embedder: dict[str, Any] | None
    model: dict[str, Any] | None


class RechunkedCollection(Model):
    """What a change of the chunk size started."""

    chunk_tokens: int
    document_count: int
    """Documents that are split again."""


ReflectMode: TypeAlias = Literal["auto", "always", "never"]


class ReflectionHit(Model):
    """A result of a search for reflections."""

    id: str
    project_id: str
    layer: str
    """`rm` (reflective), `em` (episodic) or `sm` (semantic)."""
    kind: str
    key: str | None
    """The key of a bullet, such as `mis-00001`."""
    section: str | None
    """The section of a bullet."""
    title: str | None
    when_to_use: str | None
    content: str
    keywords: list[str]
    tags: list[str]
    importance: float
    """How much the memory matters, 0 to 1."""
    confidence: float | None
    """How certain its author is, 0 to 1."""
    confidence_score: float
    """helpful / (helpful + harmful), 0 to 1; 0.5 without verdicts."""
    usefulness: float
    """5th percentile of Beta(1 + helpful, 1 + harmful), 0 to 1."""
    helpful: int
    harmful: int
    neutral: int
    observation_count: int
    """Number of traces that taught this lesson."""
    status: str
    """`active`, `quarantined` or `archived`."""
    pinned: bool
    """True if learning may not change it."""
    awaiting_confirmation: bool = False
    """True if it is quarantined because one trace taught it, and it quotes text of a tool or a user, or contradicts a bullet. A second independent trace or a person activates it."""
    source: str
    error_category: str | None
    outcome: str | None
    session_id: str | None
    trace_id: str | None
    source_event_ids: list[str]
    """Events of the trace that it rests on."""
    metadata: dict[str, Any]
    revision: int
    created_at: str
    updated_at: str
    score: float
    """Score of the search; 0 without `query_text`."""


ReflectionKind: TypeAlias = Literal["reflection", "strategy", "insight"]


class RejectedLine(Model):
    """A line of an NDJSON body that was not stored."""

    line: int
    """Line of the body, from 1."""
    error: dict[str, Any]
    """`code`, `detail` and, if known, `field`."""


class RelatedMemory(Model):
    """A memory that the query did not find, related to results."""

    memory: Memory
    weight: float
    """Strength of the relation; rare entities count more."""
    related_to: list[str]
    """The results that it is related to."""
    via: list[str]
    """Common entities, such as `tool:refund`, or `cluster`."""


class RenderPlaybookResponse(Model):
    """A prompt block."""

    text: str
    """Empty if no bullet fits, or the playbook has none or does not exist."""
    bullet_keys: list[str]
    """Keys of the bullets in the text."""
    token_count: int
    """Estimated size of the text."""
    version: int
    """Version of the playbook."""
    retrieval_id: str
    """ID of this render, for the trace of the agent."""
    left_out_count: int
    """Number of bullets that did not fit the token budget or the query."""
    held_out: str | None
    """Key of the randomly withheld bullet."""
    advice_held_out: bool = False
    """True if the whole block was withheld at random, to measure its effect."""


class RetentionPolicy(Model):
    """How long the data of a project is stored, in days."""

    project_id: str | None
    """Null: every project without its own policy."""
    event_days: int | None
    trace_days: int | None
    retrieval_days: int | None
    llm_call_days: int | None


ReviewMode: TypeAlias = Literal["off", "required"]
"""`required`: deltas become proposals that an admin key accepts."""


class RunAccepted(Model):
    """A queued run. `GET /api/v1/runs/{run_id}` shows its state and later its result."""

    run_id: str
    trace_id: str
    state: str
    sanitized: bool = False


RunState: TypeAlias = Literal["queued", "running", "waiting", "done", "failed", "dead"]
"""`failed` and `dead` runs can be retried; a dead run has no attempts left. `waiting` is not used yet."""


class RunWorkflowResponse(Model):
    """The answer, and the trace whose outcome you record later."""

    llm_response: str
    search_results_count: int
    bullet_keys: list[str]
    """Keys of the bullets in the prompt, best first."""
    retrieval_id: str | None
    """The search; null if the playbook is unknown."""
    trace_id: str
    run_id: str
    engine: str
    """`llm`, or `rules` without a model."""
    degraded: bool
    """True if the rules replaced a failing model."""


class SearchMemoriesResponse(Model):
    """Results of a search, best first."""

    results: list[MemoryHit]
    related: list[RelatedMemory]
    """With `related: true`: related memories, best first."""


class SectionDefinition(Model):
    """One section. Without `slug`, it is derived from the name."""

    name: str
    description: str = ""
    slug: str = ""


SettableStatus: TypeAlias = Literal["active", "quarantined", "archived"]
"""Only active memories are found by searches. A quarantined memory waits for the decision of a person; an archived one is out of use."""


class StoredBullet(Model):
    """A bullet with its usefulness and version."""

    id: str
    section: str
    content: str
    searchable_text: str = ""
    keywords: list[str]
    helpful: int = 0
    harmful: int = 0
    source_trajectory: str = ""
    neutral: int = 0
    when_to_use: str = ""
    title: str = ""
    tags: list[str]
    status: BulletStatus = "active"
    pinned: bool = False
    awaiting_confirmation: bool = False
    """True for a quarantined bullet that one trace taught and that quotes text of a tool or a user, or contradicts a bullet. A second independent trace or a person activates it."""
    confidence_score: float
    """helpful / (helpful + harmful), 0..1; 0.5 without verdicts."""
    memory_id: str
    usefulness: float
    """5th percentile of Beta(1 + helpful, 1 + harmful), 0 to 1."""
    version: int | None
    """Version of the playbook that last changed it."""
    created_at: str
    updated_at: str


class StoredMemory(Model):
    """A memory after a write."""

    id: str
    project_id: str
    layer: str
    """`rm` (reflective), `em` (episodic) or `sm` (semantic)."""
    kind: str
    key: str | None
    """The key of a bullet, such as `mis-00001`."""
    section: str | None
    """The section of a bullet."""
    title: str | None
    when_to_use: str | None
    content: str
    keywords: list[str]
    tags: list[str]
    importance: float
    """How much the memory matters, 0 to 1."""
    confidence: float | None
    """How certain its author is, 0 to 1."""
    confidence_score: float
    """helpful / (helpful + harmful), 0 to 1; 0.5 without verdicts."""
    usefulness: float
    """5th percentile of Beta(1 + helpful, 1 + harmful), 0 to 1."""
    helpful: int
    harmful: int
    neutral: int
    observation_count: int
    """Number of traces that taught this lesson."""
    status: str
    """`active`, `quarantined` or `archived`."""
    pinned: bool
    """True if learning may not change it."""
    awaiting_confirmation: bool = False
    """True if it is quarantined because one trace taught it, and it quotes text of a tool or a user, or contradicts a bullet. A second independent trace or a person activates it."""
    source: str
    error_category: str | None
    outcome: str | None
    session_id: str | None
    trace_id: str | None
    source_event_ids: list[str]
    """Events of the trace that it rests on."""
    metadata: dict[str, Any]
    revision: int
    created_at: str
    updated_at: str
    sanitized: bool = False
    """True if unstorable characters or secrets were replaced."""


class StrategySummary(Model):
    """A strategy learned from a trace."""

    id: str
    new: bool
    """False if the strategy was already stored."""


SubmittingJudge: TypeAlias = Literal["human", "llm"]
"""`human` for a person, `llm` for an agent."""


class Tenant(Model):
    """The owner of data. Tenants never see each other's data."""

    id: str
    slug: str
    status: str
    """`active` or `suspended`."""
    created_at: str


class ToolDefinition(Model):
    """
    A tool that the agent could call. A string is read as its name.

    The forms of OpenAI (`{"type": "function", "function": {…}}`), Anthropic and MCP are accepted.
    Their schemas of arguments are not stored. MCP's `annotations` give `writes`: false for
    `readOnlyHint: true`, true for `readOnlyHint: false` or `destructiveHint: true`.
    """

    name: str
    description: str | None
    """The first 4,000 characters are stored."""
    writes: bool | None
    """Whether a call can change anything outside the agent. Null: unknown."""


class TraceEvaluation(Model):
    """The score of one criterion of a trace by one evaluator."""

    evaluator: str
    """Such as `deterministic` or `model`."""
    criterion: Criterion
    score: float
    """From 0 (worst) to 1 (best)."""
    reasons: list[str]
    declared: bool
    """Whether a check that the client declared decided it: a test report, a ground truth with `match`, or expected calls."""
    run_id: str | None
    """The run of kind `evaluate` that gave the score."""
    created_at: str


class TraceEvent(Model):
    """A stored event."""

    seq: int
    """Position in the trace, from 0."""
    event_id: str
    event_type: str
    content: str
    timestamp: str | None
    metadata: dict[str, Any]
    tool_name: str | None
    error: Any
    agent: str | None


TraceFormat: TypeAlias = Literal[
    "auto",
    "hansei",
    "openai",
    "openai-responses",
    "anthropic",
    "claude-code",
    "codex",
    "otel",
    "langfuse",
    "langsmith",
    "tau-bench",
    "swe-agent",
]


class TraceReceipt(Model):
    """Confirms a stored trace."""

    trace_id: str
    run_id: str | None
    """The first learning run; null if there is none."""
    duplicate: bool = False
    """True if the trace was stored before."""
    sanitized: bool = False
    """True if unstorable characters were replaced."""
    line: int | None
    """Line of an NDJSON body, from 1."""


TraceState: TypeAlias = Literal["open", "closed"]


TrajectoryStatus: TypeAlias = Literal["success", "failure"]


class TranscriptInsight(Model):
    """A rule for later sessions. If it is not new, the memory has one more observation."""

    memory_id: str
    content: str
    new: bool


class Usage(Model):
    """Sums of model calls. A dimension that was not asked for is null."""

    day: str | None
    model: str | None
    provider: str | None
    purpose: str | None
    """What the call was for, such as `reflect`."""
    project_id: str | None
    playbook: str | None
    """The playbook that the call was made for. Null: none."""
    lesson_id: str | None
    """A memory. The calls for its trace are divided among the lessons of the trace."""
    call_count: int
    failed_count: int
    unpriced_count: int
    """Answered calls of models without a known price."""
    input_tokens: int
    """Includes `cached_tokens`."""
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    cost_usd: float
    """Cost of the calls with a known price."""


UsageDimension: TypeAlias = Literal[
    "day", "model", "provider", "purpose", "project_id", "playbook", "lesson_id"
]


VerdictTag: TypeAlias = Literal["helpful", "harmful", "neutral"]


class WebhookDelivery(Model):
    """One event for one webhook, and what became of it."""

    id: str
    webhook_id: str
    event_type: str
    payload: dict[str, Any]
    """The body that is sent."""
    state: DeliveryState
    attempt_count: int
    response_status: int | None
    """Status of the last answer."""
    error: str | None
    """Why the last attempt failed."""
    run_id: str
    """The run that sends it."""
    created_at: str
    finished_at: str | None


class WebhookEndpoint(Model):
    """An address that receives events."""

    id: str
    project_id: str | None
    url: str
    event_types: list[str]
    description: str | None
    active: bool
    created_at: str
    updated_at: str


class AgentRun(Model):
    """A run of the agent."""

    id: str
    project_id: str
    query: str
    playbook: str | None
    collections: list[str]
    state: AgentRunState
    outcome: str | None
    """How it ended: `success`, `partial`, `failed` or `cancelled`."""
    answer: str | None
    found: bool | None
    """False if the sources do not answer the question."""
    confidence: float | None
    """Calibrated confidence in the answer, 0 to 1."""
    sources: list[dict[str, Any]]
    """The passages that the answer cites."""
    plan_id: str | None
    complexity: float | None
    engine: str | None
    """What made the plan: `template`, `llm`, or `caller` if the request had a plan."""
    cited_bullet_keys: list[str]
    """Bullets of the playbook that the plan follows."""
    steps: list[PlanStepView]
    """Empty in lists."""
    intervention: Intervention | None
    """The open question, in state `waiting`."""
    replan_count: int
    token_count: int
    cost_usd: float | None
    """None if the price of the model is unknown."""
    error: Any
    feedback: str | None
    previous_run_id: str | None
    """The run that the question follows up on."""
    conversation: list[EarlierAnswer]
    """Earlier questions and answers of the conversation, oldest first."""
    trace_id: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None


class AnalyticsAnswer(Model):
    """The rows that answer a question. docs/analytics.md describes the columns."""

    question: Question
    title: str
    since: str | None
    """Null for a question without a period."""
    until: str | None
    """Null for a question without a period."""
    columns: list[str]
    """The names of the columns, in order."""
    rows: list[dict[str, Any]]
    """One object per row: column → value."""
    truncated: bool
    """Whether there are more rows than `limit`."""
    sql: str | None
    """With `sql=true`: the statement, for a read-only login of your tenant."""


class Budget(Model):
    """A budget and its current state."""

    period: Period
    project_id: str | None
    """Project. Null: all projects."""
    purpose: (
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
    )
    """What the model is called for. Null: all purposes."""
    limit_usd: float | None
    """Limit in US dollars. 0 allows no call. Null: no limit in dollars."""
    limit_tokens: int | None
    """Limit of input and output tokens together. Null: no limit in tokens."""
    allow_unknown_price: bool = False
    """Whether models without a known price may be called."""
    when_spent: Literal["refuse", "rules"] = "refuse"
    """`refuse`: a request that waits gets 402, and background runs wait until the budget allows them. `rules`: the rules engine replaces the model."""
    spent_usd: float
    """Cost of the finished calls of this period."""
    reserved_usd: float
    """Reserved for calls that are being executed."""
    left_usd: float | None
    """Null without a limit in dollars."""
    spent_tokens: int
    reserved_tokens: int
    left_tokens: int | None
    """Null without a limit in tokens."""
    resets_at: str
    """When the next period starts."""
    alerts: list[BudgetAlert]
    """Thresholds that were reached in this period."""


class Bullet(Model):
    """One entry of a playbook. `id` is its key. Unknown fields are ignored."""

    id: str
    section: str
    content: str
    searchable_text: str = ""
    keywords: list[str]
    helpful: int = 0
    harmful: int = 0
    source_trajectory: str = ""
    neutral: int = 0
    when_to_use: str = ""
    title: str = ""
    tags: list[str]
    status: BulletStatus = "active"
    pinned: bool = False
    awaiting_confirmation: bool = False
    """True for a quarantined bullet that one trace taught and that quotes text of a tool or a user, or contradicts a bullet. A second independent trace or a person activates it."""
    confidence_score: float
    """helpful / (helpful + harmful), 0..1; 0.5 without verdicts."""


class BulletEvaluation(Model):
    """A verdict on one bullet that the agent used."""

    bullet_id: str
    """The bullet's id, without its brackets"""
    tag: VerdictTag
    """helpful: it was followed and did good; harmful: it was followed and led astray; neutral: neither can be seen"""
    reason: str
    """What in the trajectory shows it, 1 sentence"""


class BulletHit(Model):
    """One result of a search in a playbook."""

    bullet: Bullet
    vector_score: float
    bm25_score: float
    combined_score: float
    match: Match | None
    """Null for an empty query."""
    explain: dict[str, float | int | str | None] | None
    """The parts of the scores."""


class BulletReceipt(Model):
    """A bullet after a write."""

    version: int
    """Version of the playbook after the write."""
    bullet: Bullet
    sanitized: bool = False
    """True if unstorable characters or secrets were replaced."""


class ChangedBullet(Model):
    """A bullet in both versions."""

    key: str
    before: Bullet
    after: Bullet


class ChunkHit(Model):
    """A chunk that was found, and where it is in its document."""

    memory_id: str
    document_id: str
    source: str
    title: str | None
    """Title of the document and the headings above the chunk."""
    page: int
    """Page of the document, from 1."""
    start: int
    """Offset in the text of the page, in characters."""
    end: int
    content: str
    """The text from `start` to `end`. Inside a table, its heading comes first."""
    cosine: float
    """Cosine similarity, -1 to 1. Comparable between searches."""
    combined_score: float
    """0 to 1. Means the same for every query."""
    match: Match | None


class CreateTracesResponse(Model):
    """The result of each line, in order."""

    items: list[TraceReceipt | RejectedLine]
    stored_count: int
    duplicate_count: int
    rejected_count: int


class DeltaContextItem(Model):
    """
    One edit of a playbook. `id`, `text` and `reason` are accepted as other names of fields.

    ADD assigns a new key. UPDATE changes the given fields and does not change the section. MERGE
    merges `source_ids` into `bullet_id`, or into the first source. KEEP confirms a bullet
    unchanged.
    """

    type: DeltaType
    section: str = ""
    bullet_id: str | None
    content: str = ""
    reasoning: str = ""
    source_ids: list[str]
    when_to_use: str | None
    title: str | None
    keywords: list[str] | None
    tags: list[str] | None


class DeltaResult(Model):
    """
    The result of one delta. `absorbed` holds the bullets that a MERGE merged into the
    survivor.
    """

    index: int
    type: DeltaType
    action: DeltaAction
    key: str | None
    reason: str = ""
    before: Bullet | None
    after: Bullet | None
    absorbed: list[Bullet]


class Erasure(Model):
    """An erasure and its result."""

    id: str
    target_kind: ErasureTarget
    target_id: str
    """For a person `sha256:` and the hash of the subject."""
    state: str
    """`queued` or `done`."""
    reason: str | None
    actor: str | None
    run_id: str | None
    """The run that erases."""
    counts: dict[str, Any]
    """Erased items by kind. Only zeros: no data has this ID or subject."""
    affected_bullets: list[AffectedBullet]
    """Bullets with other sources too, which stay. Check their texts."""
    created_at: str
    finished_at: str | None


class ExecutionPlan(Model):
    """A plan. Its steps are in the order of their IDs, and depend on earlier steps only."""

    plan_id: str
    original_query: str
    complexity: float = 0.5
    steps: list[PlanStep]
    requires_confirmation: bool = False
    success_criteria: str = ""
    engine: Literal["template", "llm", "caller"] = "template"
    cited_bullet_keys: list[str]


class ExecutionResult(Model):
    """The outcome of a run."""

    plan_id: str
    original_query: str
    final_answer: str | None
    step_results: list[PlanStepResult]
    overall_confidence: float
    calibrated_confidence: float
    overall_status: Literal["success", "partial", "failed", "cancelled"]
    found: bool = True
    sources: list[dict[str, Any]]
    replan_count: int = 0
    total_execution_time_ms: int = 0
    total_token_usage: int = 0
    total_cost_usd: float | None = 0.0


class MaintenanceSchedule(Model):
    """A task of the tenant."""

    task: MaintenanceTaskName
    period: str
    """`hour`, `day` or `week`; for upkeep `activity`."""
    scheduled: bool
    """False if the settings leave the task to requests."""
    started_at: str | None
    """The latest start on the schedule."""
    next_at: str | None
    """The earliest next start. An idle tenant's tasks start within a week."""


class OutcomeComparison(Model):
    """Outcomes of agent runs with a bullet and without it."""

    with_: OutcomeRate
    without: OutcomeRate
    difference: float | None
    """Success rate with it minus the rate without. Null if unknown: one side has no runs, or `always_with` names bullets."""
    interval: ConfidenceInterval
    """The interval of `difference`."""
    always_with: list[str]
    """Other bullets that were in exactly the same runs, at most 10: their effects cannot be separated. Empty for `randomized`."""


class OutcomeConflict(Model):
    """A check that the client declared contradicts the outcome that it reported."""

    reported: OutcomeType
    """The outcome that the client reported."""
    check: OutcomeType
    """The result of the check: `success` or `failure`. Learning uses it."""
    reasons: list[str]
    """What the check found, with both texts."""


class PlaybookDiff(Model):
    """The differences between two versions."""

    from_version: int
    to_version: int
    added: list[Bullet]
    removed: list[Bullet]
    changed: list[ChangedBullet]
    sections_added: list[SectionDefinition]
    sections_removed: list[SectionDefinition]


class PlaybookSummary(Model):
    """A playbook without its bullets."""

    name: str
    project_id: str
    version: int
    """Number of changes so far."""
    active_bullet_count: int
    """Number of active bullets."""
    sections: list[SectionDefinition]
    review_mode: ReviewMode
    token_budget: int | None
    """Default size of a render, in tokens."""
    max_bullets: int | None
    """Maximum number of active bullets."""
    holdout_share: float
    """Share of renders, 0 to 1, that leave out one random bullet."""
    focus: str | None
    """What the playbook should collect, as its owner says."""
    created_at: str
    updated_at: str


class Proposal(Model):
    """Deltas that wait for a person, or that a person decided on."""

    id: str
    state: ProposalState
    deltas: list[DeltaContextItem]
    reason: str | None
    actor: str | None
    """Author of the proposal: `key:` and a key ID, or `run`."""
    run_id: str | None
    """The run that proposed it."""
    accepted_version: int | None
    """The version that it became when it was accepted."""
    decided_by: str | None
    decision_reason: str | None
    decided_at: str | None
    created_at: str


class Provenance(Model):
    """All links from a bullet to the events that it was learned from."""

    key: str
    memory_id: str
    links: list[ProvenanceLink]


class QueryReflectionsResponse(Model):
    """Reflections, strategies and insights, best first."""

    reflections: list[ReflectionHit]


class ReflectOnTrajectoryResponse(Model):
    """
    The result and where it is stored. If the model fails, the result is empty, `degraded` is
    true and `error` has the cause; the run can be retried.
    """

    insights: list[Insight]
    bullet_evaluations: list[BulletEvaluation]
    trajectory_query: str
    trajectory_dataset: str
    iteration_count: int = 1
    run_id: str
    trace_id: str
    insight_ids: list[str | None]
    """Memories, in the order of `insights`. Null: the playbook already contains it."""
    engine: str | None
    """`rules` or `llm`."""
    degraded: bool = False
    error: ModelFailure | None
    next_run_id: str | None
    """The run that follows, if there is one."""
    duplicate: bool = False
    """True if the trajectory was sent before."""
    sanitized: bool = False
    """True if unstorable characters were replaced."""


class ReplacePlaybookResponse(Model):
    """The result of replacing a playbook."""

    version: int
    active_bullet_count: int
    notes: list[str]
    """What was left out of the body, or added to it."""
    applied: bool
    """False for a dry run."""
    diff: PlaybookDiff | None
    """What a dry run would change."""


class RestorePlaybookResponse(Model):
    """The result of a restore."""

    version: int
    changed: bool
    """False if the playbook already had this content."""
    applied: bool
    """False for a dry run."""
    diff: PlaybookDiff | None
    """What a dry run would change."""


class Run(Model):
    """
    One execution of work.

    Learning is a chain of runs: evaluate, reflect, curate, apply. `parent_id` is the first run of
    the chain, `next_run_id` the run that follows.
    """

    id: str
    kind: str
    """Kind of work, such as `evaluate`, `reflect` or `curate`."""
    state: RunState
    """`failed`: an error that a retry does not fix. `dead`: out of attempts."""
    project_id: str
    parent_id: str | None
    """The first run of the chain; null for the first."""
    next_run_id: str | None
    """The run that follows in the chain."""
    trace_id: str | None
    input: dict[str, Any]
    attempt_count: int
    max_attempts: int
    error: Any
    """Why the last attempt failed: `type` or `code`, and `message`."""
    result: Any
    """The output of a finished run. Its form depends on `kind`."""
    engine: str | None
    """What produced the result: `rules` or `llm`."""
    degraded: bool
    """True if the rules replaced a failing model."""
    usage: Any
    """Model calls of the run: tokens and cost in US dollars."""
    created_at: str
    started_at: str | None
    finished_at: str | None


class SearchBulletsResponse(Model):
    """Bullets, best first."""

    results: list[BulletHit]
    version: int
    """Version of the playbook."""
    retrieval_id: str
    """ID of this search, for the trace of the agent."""


class SearchCollectionResponse(Model):
    """Chunks, best first."""

    results: list[ChunkHit]


class Trace(Model):
    """A trace without its events."""

    id: str
    project_id: str
    external_id: str | None
    task_key: str | None
    session_id: str | None
    playbook: str | None
    task_description: str | None
    task_goal: str | None
    outcome: str | None
    """As the client reported it."""
    conflict: OutcomeConflict | None
    """Set if a test report, a ground truth with `match`, or expected calls contradict `outcome`."""
    state: str
    error: Any
    language: str | None
    used_bullet_keys: list[str]
    """Keys of the bullets that the agent used."""
    metadata: dict[str, Any]
    event_count: int
    duplicate_of: str | None
    """The first trace, if this one was sent again without an `external_id`."""
    created_at: str
    closed_at: str | None


class TraceWithEvents(Model):
    """A trace with its answer, its evidence and its first 200 events."""

    id: str
    project_id: str
    external_id: str | None
    task_key: str | None
    session_id: str | None
    playbook: str | None
    task_description: str | None
    task_goal: str | None
    outcome: str | None
    """As the client reported it."""
    conflict: OutcomeConflict | None
    """Set if a test report, a ground truth with `match`, or expected calls contradict `outcome`."""
    state: str
    error: Any
    language: str | None
    used_bullet_keys: list[str]
    """Keys of the bullets that the agent used."""
    metadata: dict[str, Any]
    event_count: int
    duplicate_of: str | None
    """The first trace, if this one was sent again without an `external_id`."""
    created_at: str
    closed_at: str | None
    query: str | None
    generated_answer: str | None
    reasoning_steps: Any
    ground_truth: Any
    test_report: str | None
    tools: list[ToolDefinition]
    """The tools that were sent with the trace."""
    events: list[TraceEvent]
    next_cursor: str | None
    """Cursor of the following events; null if all events are here."""


class TranscriptTag(Model):
    """What the session shows about one key point."""

    name: str
    """The key point's name, without brackets"""
    tag: VerdictTag
    """helpful, harmful or neutral"""
    rationale: str = ""
    """What in the transcript shows it, 1 sentence"""


class UpdatedTrace(Model):
    """A trace after events were appended."""

    id: str
    project_id: str
    external_id: str | None
    task_key: str | None
    session_id: str | None
    playbook: str | None
    task_description: str | None
    task_goal: str | None
    outcome: str | None
    """As the client reported it."""
    conflict: OutcomeConflict | None
    """Set if a test report, a ground truth with `match`, or expected calls contradict `outcome`."""
    state: str
    error: Any
    language: str | None
    used_bullet_keys: list[str]
    """Keys of the bullets that the agent used."""
    metadata: dict[str, Any]
    event_count: int
    duplicate_of: str | None
    """The first trace, if this one was sent again without an `external_id`."""
    created_at: str
    closed_at: str | None
    sanitized: bool = False
    """True if unstorable characters were replaced."""


class Verdict(Model):
    """One verdict on a bullet."""

    id: str
    judge: Judge
    tag: VerdictTag
    reason: str | None
    evidence: dict[str, Any]
    """What the verdict rests on, such as the outcome or an event."""
    confirmed: bool
    """For the judge `outcome`: whether a comparison of attempts confirms it."""
    trace_id: str | None
    retrieval_id: str | None
    actor: str | None
    created_at: str
    updated_at: str


class VerdictSummary(Model):
    """A recorded verdict on a bullet that the agent used."""

    key: str
    tag: VerdictTag
    judge: str
    reason: str | None


class AgentExecution(Model):
    """The state of a run: its plan, the results of its steps so far, and the outcome."""

    agent_run_id: str
    state: AgentRunState
    plan: ExecutionPlan | None
    step_states: dict[str, Literal["pending", "running", "success", "partial", "failed", "skipped"]]
    """The state of each step by its ID."""
    step_results: list[PlanStepResult]
    result: ExecutionResult | None
    """Once the run has ended."""


class ApplyDeltasResponse(Model):
    """The result of each delta."""

    version: int
    """Version of the playbook after this request."""
    applied: bool
    """False for a dry run and for a proposal."""
    held: bool = False
    """True if the deltas became a proposal."""
    proposal_id: str | None
    results: list[DeltaResult]
    """In the order of the deltas."""
    sanitized: bool = False
    """True if unstorable characters or secrets were replaced."""


class BulletEffect(Model):
    """The effect of one bullet. Only `randomized` shows what the bullet causes."""

    key: str
    status: str
    """active, quarantined, archived or deleted."""
    randomized: OutcomeComparison | None
    """Renders that drew this bullet at random, and withheld it or not."""
    observational: OutcomeComparison | None
    """Runs that had the bullet, against runs that had other bullets of the playbook, but not this one, since it exists. The tasks of the two groups may differ. A bullet that was always served together with the others has no difference."""


class GenerateReflectionResponse(Model):
    """What was learned from an agent run."""

    reflection_id: str | None
    strategy_id: str | None
    reflection_text: str | None
    strategy_text: str | None
    """The first of `rules`."""
    root_cause: str | None
    """Null if the rules engine wrote the reflection."""
    explanation: str | None
    """How the root cause led to the outcome. Null as `root_cause`."""
    cause_kind: (
        Literal[
            "agent_mistake",
            "unknown_convention",
            "agent_decision",
            "outside_agent_control",
            "expected_result_conflicts_with_policy",
            "succeeded_by_luck",
            "unknown",
        ]
        | None
    )
    """What determined the outcome, as the model judges it. Null for a decision of the agent in a successful run that no failed attempt or call can be compared with."""
    rules: list[str]
    """At most three rules for tasks of this kind."""
    task_hint: str | None
    """What helps only with the same task. It does not go to the playbook."""
    importance: float | None
    confidence: float | None
    tags: list[str]
    error_category: ErrorCategory | None
    source_event_ids: list[str]
    trace_id: str
    run_id: str
    engine: str
    """`rules` or `llm`."""
    degraded: bool = False
    """True if the rules replaced a failing model."""
    result: Literal["stored", "already_known", "nothing_found"]
    """`already_known`: it was stored before; its observation count grew by one."""
    duplicate: bool = False
    """True if the trace was stored before."""
    sanitized: bool = False
    """True if unstorable characters were replaced."""
    verdicts: list[VerdictSummary]
    strategies: list[StrategySummary]
    """The strategy of this trace (`strategy_id`) first, then strategies from a comparison of the attempts at its task."""
    confirmed_lesson_ids: list[str]
    """Known lessons that the model found confirmed; each has one more observation."""
    next_run_id: str | None
    """The run that follows, such as the curation of the lesson."""


class RecordVerdictResponse(Model):
    """A recorded verdict and the bullet that it belongs to."""

    verdict: Verdict
    key: str
    """Key of the bullet; of the remaining one after a merge."""
    counted: bool
    """Whether the counters of the bullet include the verdict."""
    quarantined: bool
    """Whether this verdict put the bullet in quarantine."""
    bullet: Bullet
    sanitized: bool = False
    """True if unstorable characters or secrets were replaced."""


class ReflectOnTranscriptResponse(Model):
    """
    What a session shows. If the model fails, analysis, tags and insights are empty, `degraded`
    is true and `error` has the cause; the run can be retried.
    """

    analysis: str
    bullet_tags: list[TranscriptTag]
    """Only bullets of the playbook."""
    cited_ids: list[str]
    run_id: str
    trace_id: str
    counted_bullet_keys: list[str]
    """Keys of the bullets whose counters include a verdict of this session."""
    insights: list[TranscriptInsight]
    """At most 3. The curator of the playbook receives them in `next_run_id`."""
    event_count: int = 0
    """Events of the stored trace."""
    reflection_id: str | None
    engine: str | None
    """`rules` or `llm`."""
    degraded: bool = False
    error: ModelFailure | None
    next_run_id: str | None
    """The run that follows, if there is one."""
    duplicate: bool = False
    """True if the session was sent before."""
    sanitized: bool = False
    """True if unstorable characters were replaced."""
