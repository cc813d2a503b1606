"""Asks a model about episodes, for dreaming and session summaries: prompt, request and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import structlog
from pydantic import BaseModel

from memory_api.core.secret_redaction import redact
from memory_api.llm.errors import LLMError, LLMOverBudget
from memory_api.llm.prompts import split_cacheable_prefix
from memory_api.llm.structured_output import request_structured, schema_text
from memory_api.llm.untrusted_text import fence_text, fit_text
from memory_api.llm.wrappers import MeteredLLM
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime, open_model_session

Answer = TypeVar("Answer", bound=BaseModel)
MAX_EPISODE_TOKENS = 500

log = structlog.get_logger()


@dataclass(frozen=True)
class Episode:
    """One agent run, as it is remembered."""

    id: UUID
    content: str
    importance: float
    outcome: str | None
    trace_id: UUID | None
    created_at: datetime
    error_category: str | None = None


@dataclass(frozen=True)
class EpisodeAnswer:
    """The answer of a model about episodes, with its cost. Without an answer, the rules engine
    answers; `error` is then why the model did not.
    """

    answer: Any = None
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None
    error: LLMError | None = None


async def ask_about_episodes(
    runtime: Runtime,
    run: RunRow,
    project_id: str,
    prompt_name: str,
    model_type: type[Answer],
    episodes: Sequence[Episode],
) -> EpisodeAnswer:
    """Ask the model. Raises `LLMError` if a later attempt of the run may get an answer: the
    provider is down, or the budget is spent and does not ask for the rules.
    """
    model = open_model_session(
        runtime, run.tenant_id, None, run.id, project_id=project_id, builtin="{schema}\n{episodes}"
    )
    if model is None:
        return EpisodeAnswer()
    prompt = model.prompt(prompt_name)
    per_episode = min(MAX_EPISODE_TOKENS, max(20, model.prompt_tokens // len(episodes)))
    lines = [
        f"[{number}] outcome {episode.outcome or 'unknown'}:"
        f" {fit_text(redact(episode.content).text, per_episode)}"
        for number, episode in enumerate(episodes, start=1)
    ]
    values = {
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
        answer, _ = await request_structured(metered, model_type, request)
    except LLMOverBudget as error:
        if not error.allows_rules:
            raise
        return EpisodeAnswer()
    except LLMError as error:
        if error.provider_fault and run.attempts < run.max_attempts:
            raise
        log.warning("model_replaced_by_rules", purpose=request.purpose, error=str(error))
        return EpisodeAnswer(usage=metered.usage(), error=error)
    return EpisodeAnswer(answer, prompt.hash, metered.usage())
