"""The task `summaries`: one episode that summarizes a session with many agent runs.

A model writes the summary. Without a model, or if it gives no valid answer, the summary is the
beginning of the first five episodes and the number of others. While the provider is down, the run
waits. Its importance is 1.2 times the mean, at most 1.

A run reads a page of the episodes that were stored since the last round, and summarizes their
sessions. If there may be more, another run continues, so a run costs the same however many episodes
a tenant has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field, field_validator
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id, transaction_time
from memory_api.core.secret_redaction import redact
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.llm.errors import LLMError
from memory_api.llm.structured_output import clean_words
from memory_api.maintenance.episodes import (
    Episode,
    ask_about_episodes,
    guard_text_on_episodes,
    lock_sources,
    show_episodes,
)
from memory_api.maintenance.queries import claim_task, lock_task
from memory_api.maintenance.retention.expiry import HAS_MORE
from memory_api.memories.editing import rewrite_memory
from memory_api.memories.index.drafts import MemoryDraft, prepare_memories
from memory_api.memories.index.writer import insert_memories
from memory_api.memories.queries import NewLink, add_links, get_memory
from memory_api.memories.schemas import MemoryKind
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

SUMMARIES = "summaries"
AFTER = "after"
"""In the state of the task: the position where the next run begins."""
START = (datetime(1, 1, 1, tzinfo=UTC).isoformat(), str(UUID(int=0)))
PROMPT = "maintenance/session_summary"
SOURCE = "session_summary"
MIN_EPISODES = 10
MAX_EPISODES = 100
MAX_SESSIONS_PER_RUN = 50
EPISODES_PER_PAGE = 1_000
COMMIT_DELAY = timedelta(minutes=10)
"""A round begins this long before the last one ended: an episode may be committed later than it was
stored."""
SHOWN_EPISODES = 5
EXCERPT_LENGTH = 300
SESSIONS_TO_SUMMARIZE = load_statement("maintenance/maintenance.sql", "sessions_to_summarize")
SESSION_EPISODES = load_statement("maintenance/maintenance.sql", "session_episodes")


class SessionSummary(BaseModel):
    """What happened in a session."""

    summary: str = Field(min_length=1, max_length=4_000)
    key_topics: list[str] = Field(default_factory=list, max_length=6)
    sentiment: Literal["positive", "neutral", "negative", "mixed"] = "neutral"

    _clean_topics = field_validator("key_topics", mode="before")(clean_words)


async def summarize_sessions(runtime: Runtime, run: RunRow) -> StepResult:
    """Summarizes the sessions with at least ten episodes that are new since their summary. A run
    handles a page of episodes and 50 sessions; the next one continues. Raises `TaskBusy` while
    another run of the tenant summarizes.
    """
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        await claim_task(session, SUMMARIES, run)
        page = await _find_sessions(session)
    engines: set[str] = set()
    failure: LLMError | None = None
    for project_id, session_id in page.sessions:
        engine, error = await _summarize(runtime, run, project_id, session_id)
        engines.add(engine)
        failure = error or failure
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        task = await lock_task(session, SUMMARIES)
        task.state = task.state | {AFTER: page.next_after}
    return StepResult(
        data={"sessions_summarized": len(page.sessions), HAS_MORE: page.has_more},
        engine="llm" if "llm" in engines else "rules",
        degraded_by=failure,
    )


@dataclass(frozen=True)
class SessionPage:
    """Sessions to summarize, as project and session ID, and the position where the next run begins:
    a time and the ID of an episode.
    """

    sessions: Sequence[tuple[str, str]]
    next_after: tuple[str, str]
    has_more: bool


async def _find_sessions(session: AsyncSession) -> SessionPage:
    task = await lock_task(session, SUMMARIES)
    after: tuple[str, str] = task.state.get(AFTER, START)
    row = (
        await fetch_rows(
            session,
            SESSIONS_TO_SUMMARIZE,
            {
                "tenant": current_tenant_id(session),
                "after_time": datetime.fromisoformat(after[0]),
                "after_id": UUID(after[1]),
                "page_size": EPISODES_PER_PAGE,
                "min_episodes": MIN_EPISODES,
                "limit": MAX_SESSIONS_PER_RUN,
            },
        )
    )[0]
    if len(row.sessions) == MAX_SESSIONS_PER_RUN:  # the page may have more
        return SessionPage(row.sessions, after, has_more=True)
    if row.page_count == EPISODES_PER_PAGE:
        return SessionPage(row.sessions, (row.last_time.isoformat(), str(row.last_id)), True)
    since = await transaction_time(session) - COMMIT_DELAY
    return SessionPage(row.sessions, (since.isoformat(), START[1]), has_more=False)


async def _summarize(
    runtime: Runtime, run: RunRow, project_id: str, session_id: str
) -> tuple[str, LLMError | None]:
    """Returns the engine, and the error of a model that failed."""
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        rows = await fetch_rows(
            session,
            SESSION_EPISODES,
            {
                "tenant": run.tenant_id,
                "project": project_id,
                "session": session_id,
                "limit": MAX_EPISODES,
            },
        )
    earlier = next((row for row in rows if row.source == SOURCE), None)
    episodes = [
        Episode(row.id, row.content, row.importance, row.outcome, row.trace_id)
        for row in rows
        if row.source != SOURCE
    ]
    shown = show_episodes(runtime.settings, episodes)
    answered = await ask_about_episodes(runtime, run, project_id, PROMPT, SessionSummary, shown)
    summary = answered.answer or excerpt_episodes(episodes)
    drafts = [_draft(run, project_id, session_id, episodes, summary)]
    contents = [episode.content for episode in episodes]
    (draft,) = drafts = await guard_text_on_episodes(drafts, episodes, contents, run.tenant_id)
    (item,) = await prepare_memories(await runtime.get_tenant_embedder(run.tenant_id), drafts)
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        await lock_sources(session, episodes)
        memory = await get_memory(session, earlier.id, for_update=True) if earlier else None
        fields: dict[str, Any] = {
            "content": draft.content,
            "keywords": list(draft.keywords),
            "importance": draft.importance,
            "metadata_": draft.metadata,
        }
        if memory is None:
            await insert_memories(session, [item])
        else:
            await rewrite_memory(
                session, memory, item, fields, reason="New episodes.", actor=draft.actor
            )
        memory_id = memory.id if memory is not None else draft.id
        links = (NewLink(memory_id, "derived_from", *e.source) for e in episodes)
        await add_links(session, links)
    return "llm" if answered.answer else "rules", answered.error


def excerpt_episodes(episodes: Sequence[Episode]) -> SessionSummary:
    """The summary without a model: the first episodes, shortened, and how many follow."""
    parts = [episode.content[:EXCERPT_LENGTH] for episode in episodes[:SHOWN_EPISODES]]
    more = len(episodes) - len(parts)
    parts += [f"{more} more."] if more > 0 else []
    return SessionSummary(summary="\n".join(parts))


def _draft(
    run: RunRow,
    project_id: str,
    session_id: str,
    episodes: Sequence[Episode],
    summary: SessionSummary,
) -> MemoryDraft:
    mean = sum(episode.importance for episode in episodes) / len(episodes)
    return MemoryDraft(
        kind=MemoryKind.EPISODE,
        project_id=project_id,
        content=redact(summary.summary).text,
        keywords=[redact(topic).text for topic in summary.key_topics],
        tags=["session_summary", "auto_generated"],
        importance=min(1.0, mean * 1.2),
        source=SOURCE,
        session_id=session_id,
        metadata={"event_count": len(episodes), "sentiment": summary.sentiment},
        actor=f"engine:{SOURCE}",
        run_id=run.id,
    )
