"""`ReflectionEngineV2`, the library door of spec 5: generate, store, query, over an asyncpg pool or
a store of your own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

import asyncpg
import structlog

from apps.memory_api.core.db import Sessions, engine_over
from apps.memory_api.core.prompts import Prompt, content_hash
from apps.memory_api.core.settings import Settings
from apps.memory_api.embeddings.loaded import Embedders
from apps.memory_api.embeddings.port import Embedder
from apps.memory_api.embeddings.static import StaticEmbedder
from apps.memory_api.embeddings.tenant import TenantModels
from apps.memory_api.llm.port import LLM
from apps.memory_api.memory.find import Filters, ask, search
from apps.memory_api.memory.prepare import prepare
from apps.memory_api.memory.router import show
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.memory.scopes import kind_scope
from apps.memory_api.reflection.mind import Mind, packaged
from apps.memory_api.reflection.prompt import PROMPTS
from apps.memory_api.reflection.schemas import ReflectionContext, ReflectionResult
from apps.memory_api.reflection.store import drafts, keep
from apps.memory_api.reflection.think import Evidence, Thought, think
from apps.memory_api.tenants.identity import tenant_id_of
from apps.memory_api.traces.redaction import clean_model

log = structlog.get_logger()

Scorer = Callable[[ReflectionContext, ReflectionResult], float]
"""Gives an importance or a confidence, 0..1, for a result."""

Thinker = Callable[[ReflectionContext, Evidence], Any]
"""An async function that reflects in place of `think`."""


SECRET_IN = ("events", "error", "task_description", "task_goal")


class ReflectionStore(Protocol):
    """Where reflections are kept: three functions, so that a storage of your own is a small
    class."""

    async def save(
        self, tenant_id: UUID, project_id: str, result: ReflectionResult, session_id: str | None
    ) -> dict[str, str]:
        """Keep a reflection and its strategy; `{reflection_id, strategy_id?}`."""
        ...

    async def find(
        self, tenant_id: UUID, project_id: str, query_text: str, k: int, filters: Filters
    ) -> list[dict[str, Any]]:
        """The best `k` records."""
        ...

    async def close(self) -> None: ...


class DatabaseStore:
    """Reflections as rows of `memories`, layer rm."""

    def __init__(self, sessions: Sessions, embedder: Embedder) -> None:
        self.sessions = sessions
        self.models = TenantModels(sessions, Embedders(Settings.load(), embedder))

    async def save(
        self, tenant_id: UUID, project_id: str, result: ReflectionResult, session_id: str | None
    ) -> dict[str, str]:
        rows = drafts(result, project_id=project_id, session_id=session_id)
        items = await prepare(await self.models.of(tenant_id), rows)
        async with self.sessions.tenant(tenant_id) as session:
            kept = await keep(session, items)
        names = ("reflection_id", "strategy_id")
        return {name: str(row.memory_id) for name, row in zip(names, kept, strict=False)}

    async def find(
        self, tenant_id: UUID, project_id: str, query_text: str, k: int, filters: Filters
    ) -> list[dict[str, Any]]:
        question = await ask(await self.models.of(tenant_id), query_text)
        scopes = [kind_scope(project_id, kind) for kind in filters.kinds]
        async with self.sessions.tenant(tenant_id) as session:
            hits = await search(session, question, scopes, top_k=k, filters=filters)
        return [show(h.memory).model_dump(mode="json") | {"score": h.combined_score} for h in hits]

    async def close(self) -> None:
        await self.sessions.close()


class ReflectionEngineV2:
    """Reflect on runs from your own code.

    `pool` connects as the app role. `memory_repository` replaces the storage, `importance` and
    `confidence` replace the scores, `thinker` replaces the thinking, `embedder` the vectors. With
    an `llm` (`create_chat_model`, or a class of your own) a model thinks, else rules; `prompts`
    replaces its prompt files, by their names (`reflection_failure`, `reflection_success`,
    `reflection_partial`).
    """

    def __init__(
        self,
        pool: asyncpg.Pool | None = None,
        memory_repository: ReflectionStore | None = None,
        *,
        embedder: Embedder | None = None,
        thinker: Thinker | None = None,
        llm: LLM | None = None,
        prompts: Mapping[str, str] | None = None,
        importance: Scorer | None = None,
        confidence: Scorer | None = None,
    ) -> None:
        if memory_repository is None:
            if pool is None:
                raise ValueError("ReflectionEngineV2 needs a pool or a memory_repository")
            sessions = Sessions(engine_over(pool))
            memory_repository = DatabaseStore(sessions, embedder or StaticEmbedder())
        self.store: ReflectionStore = memory_repository
        self._thinker = thinker
        self._llm = llm
        self._prompts = dict(prompts or {})
        if unknown := self._prompts.keys() - set(PROMPTS.values()):
            raise ValueError(f"there is no prompt {min(unknown)!r}")
        self._importance = importance
        self._confidence = confidence

    async def generate_reflection(
        self, context: ReflectionContext, evidence: Evidence | None = None
    ) -> ReflectionResult:
        """What the run teaches. The caller stores it.

        Raises `NothingLearnt` when there is honestly nothing to say, and whatever the thinking
        raises, after logging it.
        """
        context = clean_model(context, SECRET_IN, Counter())
        about = {"tenant_id": context.tenant_id, "project_id": context.project_id}
        log.info(
            "reflection_generation_started",
            **about,
            outcome=context.outcome.value,
            event_count=len(context.events),
        )
        try:
            thought: Thought = await self._think(context, evidence or Evidence())
        except Exception as error:
            log.error("reflection_generation_failed", **about, error=str(error), exc_info=True)
            raise
        if thought.result is None:
            raise NothingLearnt
        result = self._score(context, thought.result)
        log.info(
            "reflection_generated",
            **about,
            importance=result.importance,
            confidence=result.confidence,
            has_strategy=result.strategy_text is not None,
        )
        return result

    async def store_reflection(
        self,
        result: ReflectionResult,
        tenant_id: str,
        project_id: str,
        session_id: UUID | str | None = None,
    ) -> dict[str, str]:
        """Keep a reflection and its strategy as two rows: `{"reflection_id": …, "strategy_id":
        …}`."""
        session = str(session_id) if session_id else result.metadata.get("session_id")
        ids = await self.store.save(tenant_id_of(tenant_id), project_id, result, session)
        log.info(
            "reflection_stored",
            tenant_id=tenant_id,
            reflection_id=ids.get("reflection_id"),
            importance=result.importance,
        )
        return ids

    async def query_reflections(
        self,
        tenant_id: str,
        project_id: str,
        query_text: str | None = None,
        k: int = 5,
        min_importance: float = 0.5,
        tags: Sequence[str] | None = None,
    ) -> list[dict[str, Any]]:
        """Lessons that match, best first; without a text by usefulness and importance. `tags`: any
        of them."""
        filters = Filters(
            kinds=(Kind.REFLECTION, Kind.STRATEGY, Kind.INSIGHT),
            tags=tuple(tags or ()),
            min_importance=min_importance,
        )
        tenant = tenant_id_of(tenant_id)
        return await self.store.find(tenant, project_id, query_text or "", k, filters)

    async def _think(self, context: ReflectionContext, evidence: Evidence) -> Thought:
        if self._thinker is not None:
            return await self._thinker(context, evidence)
        if self._llm is None:
            return await think(context, evidence)
        mind = Mind(self._llm, self._prompt, tenant_id=tenant_id_of(context.tenant_id))
        return await think(context, evidence, mind)

    def _prompt(self, name: str) -> Prompt:
        own = self._prompts.get(name)
        return packaged(name) if own is None else Prompt(name, own, content_hash(own), "given")

    def _score(self, context: ReflectionContext, result: ReflectionResult) -> ReflectionResult:
        changed = {
            name: scorer(context, result)
            for name, scorer in (
                ("importance", self._importance),
                ("confidence", self._confidence),
            )
            if scorer is not None
        }
        return ReflectionResult.model_validate(result.model_dump() | changed) if changed else result


class NothingLearnt(ValueError):
    """The run shows nothing that could be learnt from."""
