"""Asks a model about episodes, for dreaming and session summaries: prompt, request and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from uuid import UUID

import structlog
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.errors import Conflict
from memory_api.core.secret_redaction import redact
from memory_api.core.settings import Settings
from memory_api.core.statements import fetch_column, load_statement
from memory_api.llm.errors import LLMError, LLMOverBudget
from memory_api.llm.prompts import split_cacheable_prefix
from memory_api.llm.structured_output import request_structured, schema_text
from memory_api.llm.untrusted_text import fence_text, fit_text
from memory_api.llm.wrappers import MeteredLLM
from memory_api.memories.index.drafts import MemoryDraft
from memory_api.reflection.outside_text import OutsideTexts, guard_lessons
from memory_api.reflection.trace_text import (
    MIN_PIECES_TOKENS,
    ShownContents,
    event_pieces,
    fit_events,
)
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime, open_model_session
from memory_api.text.quotations import is_safe_name
from memory_api.text.terms import estimate_tokens
from memory_api.traces.schemas import ErrorInfo, Event, EventType

Answer = TypeVar("Answer", bound=BaseModel)
MAX_EPISODE_TOKENS = 1_000
"""Of one episode in a prompt, its events included."""
MAX_FIRST_EVENTS, MAX_LAST_EVENTS, MAX_ERROR_EVENTS = 10, 20, 20
"""Events of one episode that a prompt may show; what fits into its tokens is fewer."""
MAX_EVENT_CHARACTERS = 4_000
CONTENT_SHARE = 3
"""The text of an episode with events gets one part in three of its tokens."""

KEEP_EPISODES = load_statement("maintenance/maintenance.sql", "keep_episodes")
KEEP_TRACES = load_statement("maintenance/maintenance.sql", "keep_traces")

log = structlog.get_logger()


@dataclass(frozen=True)
class Episode:
    """One agent run, as it is remembered. The events are those of its trace. A trace that has no
    episode has no `id`.
    """

    id: UUID | None
    content: str
    importance: float
    outcome: str | None
    trace_id: UUID | None
    error_category: str | None = None
    error: ErrorInfo | None = None
    playbook: str | None = None
    events: Sequence[Event] = ()

    @property
    def source(self) -> tuple[Literal["memory", "trace"], UUID]:
        """What a memory about this run is derived from."""
        if self.id is not None:
            return "memory", self.id
        assert self.trace_id is not None, "an episode or a trace"
        return "trace", self.trace_id


@dataclass(frozen=True)
class EpisodeAnswer:
    """The answer of a model about episodes, with its cost. Without an answer, the rules engine
    answers; `error` is then why the model did not.
    """

    answer: Any = None
    model: str | None = None
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None
    error: LLMError | None = None


def telling_events(events: Sequence[Event]) -> list[Event]:
    """The first and the last events and those with an error, in their order, with the start of
    their contents.
    """
    count = len(events)
    chosen = {*range(min(MAX_FIRST_EVENTS, count)), *range(max(0, count - MAX_LAST_EVENTS), count)}
    error_type = EventType.ERROR_EVENT
    errors = [n for n in range(count) if events[n].error or events[n].event_type is error_type]
    chosen |= {*errors[-MAX_ERROR_EVENTS:]}
    return [
        events[n].model_copy(update={"content": events[n].content[:MAX_EVENT_CHARACTERS]})
        for n in sorted(chosen)
    ]


def show_episodes(settings: Settings, episodes: Sequence[Episode]) -> list[str]:
    """Each episode as text for a prompt: outcome, error, content and events, redacted, within equal
    parts of the token budget.
    """
    budget = min(MAX_EPISODE_TOKENS, settings.llm_prompt_tokens // max(1, len(episodes)))
    return [_show_episode(episode, max(MIN_PIECES_TOKENS, budget)) for episode in episodes]


def _show_episode(episode: Episode, budget: int) -> str:
    outcome = f"outcome {episode.outcome or 'unknown'}"
    if episode.error is not None:
        outcome += f", error {episode.error.error_category.value}"
    text = redact(episode.content).text
    if episode.error is not None and episode.error.error_message:
        text = f"Error: {redact(episode.error.error_message).text}\n{text}"
    if not episode.events:
        return f"{outcome}: {fit_text(text, budget)}"
    text = fit_text(text, max(MIN_PIECES_TOKENS, budget // CONTENT_SHARE))
    pieces = event_pieces(episode.events, ShownContents())
    return f"{outcome}: {text}\n{fit_events(pieces, budget - estimate_tokens(text))}"


async def guard_text_on_episodes(
    drafts: Sequence[MemoryDraft],
    episodes: Sequence[Episode],
    shown: Sequence[str],
    tenant_id: UUID,
) -> list[MemoryDraft]:
    """`guard_lessons` for what was written about episodes: all that was shown of them is outside
    text.
    """
    names = {event.tool_name for e in episodes for event in e.events if event.tool_name}
    outside = OutsideTexts(
        list(shown), {name for name in names if is_safe_name(name)}, tenant_id=tenant_id
    )
    return await guard_lessons(drafts, outside)


async def lock_sources(session: AsyncSession, episodes: Sequence[Episode]) -> None:
    """Lock what a text was written from until the transaction that stores it ends. An erasure
    waits, and then finds the text. Raises `Conflict` if an erasure came first: the text may quote
    what was erased. The run then starts again.
    """
    ids: dict[str, set[UUID]] = {"memory": set(), "trace": set()}
    for episode in episodes:
        kind, source_id = episode.source
        ids[kind].add(source_id)
    locked: set[UUID] = set()
    for kind, statement in (("memory", KEEP_EPISODES), ("trace", KEEP_TRACES)):
        parameters = {"tenant": current_tenant_id(session), "ids": list(ids[kind])}
        locked |= set(await fetch_column(session, statement, parameters))
    if locked != ids["memory"] | ids["trace"]:
        raise Conflict("A run that the text is about was erased meanwhile.")


async def ask_about_episodes(
    runtime: Runtime,
    run: RunRow,
    project_id: str,
    prompt_name: str,
    model_type: type[Answer],
    shown: Sequence[str],
    **values: str,
) -> EpisodeAnswer:
    """Ask the model about episodes; `values` are further values for the prompt. Raises `LLMError`
    if a later attempt of the run may get an answer: the provider is down, or the budget is spent
    and does not ask for the rules.
    """
    model = open_model_session(runtime, run.tenant_id, None, run.id, project_id=project_id)
    if model is None:
        return EpisodeAnswer()
    prompt = model.prompt(prompt_name)
    lines = [f"[{number}] {text}" for number, text in enumerate(shown, start=1)]
    values |= {
        "schema": schema_text(model_type),
        "episodes": fence_text("\n".join(lines), label="episodes"),
    }
    messages = split_cacheable_prefix(prompt.text, values)
    metered = MeteredLLM(model.llm)
    request = model.request(
        messages.messages,
        cache_prefix=messages.cache_prefix,
        purpose=prompt_name.rpartition("/")[2],
        prompt_hash=prompt.hash,
    )
    try:
        answer, reply = await request_structured(metered, model_type, request)
    except LLMOverBudget as error:
        if not error.allows_rules:
            raise
        return EpisodeAnswer()
    except LLMError as error:
        if error.provider_fault and run.attempt_count < run.max_attempts:
            raise
        log.warning("model_replaced_by_rules", purpose=request.purpose, error=str(error))
        return EpisodeAnswer(usage=metered.usage(), error=error)
    return EpisodeAnswer(answer, reply.model, prompt.hash, metered.usage())
