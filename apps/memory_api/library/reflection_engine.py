"""`ReflectionEngineV2` (S5): generates, stores and queries reflections, on an asyncpg pool or a
custom store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

import asyncpg

from memory_api.auth.queries import tenant_exists
from memory_api.core.db import Sessions, engine_from_pool
from memory_api.core.errors import NotFound
from memory_api.core.ids import to_tenant_id
from memory_api.core.settings import Settings
from memory_api.core.telemetry import get_logger
from memory_api.embeddings.port import Embedder
from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.embeddings.registry import EmbedderCache
from memory_api.embeddings.tenant_models import TenantEmbeddingModels
from memory_api.library.llm_client import configured_model
from memory_api.llm.model_session import ModelSession
from memory_api.llm.port import LLM
from memory_api.llm.prompts import Prompt, content_hash, load_prompt
from memory_api.llm.wrappers import with_retries
from memory_api.memories.index.drafts import prepare_memories
from memory_api.memories.index.scopes import kind_scope
from memory_api.memories.schemas import Memory, MemoryKind
from memory_api.memories.search.query import SearchFilters
from memory_api.memories.search.search import embed_query, search_in_session
from memory_api.reflection.evidence import Evidence
from memory_api.reflection.generate import GeneratedReflection, generate_reflection
from memory_api.reflection.lesson_drafts import reflection_drafts
from memory_api.reflection.lesson_storage import save_lessons
from memory_api.reflection.outside_text import OutsideTexts, guard_lessons, outside_texts_of
from memory_api.reflection.prompt import PROMPT_BY_OUTCOME
from memory_api.reflection.schemas import ReflectionResult
from memory_api.text.quotations import QUOTATIONS
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.traces.redaction import redact_fields

log = get_logger(__name__)

ReflectionScorer = Callable[[ReflectionContext, ReflectionResult], float]
"""Returns an importance or a confidence, 0..1, for a result."""

ReflectionGenerator = Callable[[ReflectionContext, Evidence], Any]
"""An async function that replaces `generate_reflection`."""

REDACTED_FIELDS = ("events", "error", "task_description", "task_goal", "tools")


class ReflectionStore(Protocol):
    """Stores reflections. Implement it to use your own storage."""

    async def save(
        self, tenant_id: UUID, project_id: str, result: ReflectionResult, session_id: str | None
    ) -> dict[str, str]:
        """Saves a reflection and its strategy; returns `{reflection_id, strategy_id?}`."""
        ...

    async def find(
        self, tenant_id: UUID, project_id: str, query_text: str, k: int, filters: SearchFilters
    ) -> list[dict[str, Any]]:
        """The best `k` records."""
        ...

    async def close(self) -> None: ...


class DatabaseStore:
    """Stores reflections as rows of `memories` in layer rm."""

    def __init__(self, sessions: Sessions, embedder: Embedder) -> None:
        self.sessions = sessions
        self.models = TenantEmbeddingModels(sessions, EmbedderCache(Settings.load(), embedder))

    async def save(
        self, tenant_id: UUID, project_id: str, result: ReflectionResult, session_id: str | None
    ) -> dict[str, str]:
        rows = reflection_drafts(result, project_id=project_id, session_id=session_id)
        rows = await guard_lessons(rows, OutsideTexts())
        items = await prepare_memories(await self.models.get_embedder(tenant_id), rows)
        async with self.sessions.for_tenant(tenant_id) as session:
            if not await tenant_exists(session):
                raise NotFound(f"Tenant {tenant_id} does not exist. Create it first.")
            saved_memories = await save_lessons(session, items)
        names = ("reflection_id", "strategy_id")
        return {name: str(row.memory_id) for name, row in zip(names, saved_memories, strict=False)}

    async def find(
        self, tenant_id: UUID, project_id: str, query_text: str, k: int, filters: SearchFilters
    ) -> list[dict[str, Any]]:
        question = await embed_query(await self.models.get_embedder(tenant_id), query_text)
        scopes = [kind_scope(project_id, kind) for kind in filters.kinds]
        async with self.sessions.for_tenant(tenant_id) as session:
            hits = await search_in_session(session, question, scopes, top_k=k, filters=filters)
        return [
            Memory.from_row(hit.memory).model_dump(mode="json") | {"score": hit.combined_score}
            for hit in hits
        ]

    async def close(self) -> None:
        await self.sessions.close()


class ReflectionEngineV2:
    """Reflects on traces in your own process.

    `pool` connects as the app role. `memory_repository` replaces the storage, `importance` and
    `confidence` the scores, `generator` the generation, `embedder` the embedding model. The model
    that generates reflections is `llm` (`create_chat_model`, or your own class), else the
    configured one, with retries. Without any, the rules engine reflects. `prompts` replaces
    packaged prompts by name (`reflection/failure`, `reflection/success`, `reflection/partial`).
    """

    def __init__(
        self,
        pool: asyncpg.Pool | None = None,
        memory_repository: ReflectionStore | None = None,
        *,
        embedder: Embedder | None = None,
        generator: ReflectionGenerator | None = None,
        llm: LLM | None = None,
        prompts: Mapping[str, str] | None = None,
        importance: ReflectionScorer | None = None,
        confidence: ReflectionScorer | None = None,
    ) -> None:
        if memory_repository is None:
            if pool is None:
                raise ValueError("Pass `pool` or `memory_repository`.")
            sessions = Sessions(engine_from_pool(pool))
            memory_repository = DatabaseStore(sessions, embedder or StaticEmbedder())
        self.store: ReflectionStore = memory_repository
        self._generator = generator
        self._llm = llm
        self._prompts = dict(prompts or {})
        if unknown := self._prompts.keys() - set(PROMPT_BY_OUTCOME.values()):
            raise ValueError(f"Unknown prompt {min(unknown)!r} in `prompts`.")
        self._importance = importance
        self._confidence = confidence

    async def generate_reflection(
        self, context: ReflectionContext, evidence: Evidence | None = None
    ) -> ReflectionResult:
        """Reflects on a trace. Does not store the result.

        Raises `NothingLearned` if the trace supports no reflection. Logs and raises errors of the
        generation.
        """
        context = redact_fields(context, REDACTED_FIELDS, Counter())
        log_fields = {"tenant_id": context.tenant_id, "project_id": context.project_id}
        log.info(
            "reflection_generation_started",
            **log_fields,
            outcome=context.outcome.value,
            event_count=len(context.events),
        )
        try:
            result = await self._reflect(context, evidence or Evidence())
        except Exception as error:
            log.error("reflection_generation_failed", **log_fields, error=str(error), exc_info=True)
            raise
        if result is None:
            raise NothingLearned("The trace supports no reflection.")
        log.info(
            "reflection_generated",
            **log_fields,
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
        """Saves a reflection and its strategy as two memories: `{"reflection_id": …, "strategy_id":
        …}`. Raises NotFound for a tenant that does not exist.
        """
        session = str(session_id) if session_id else result.metadata.get("session_id")
        if session:
            metadata = result.metadata | {"session_id": session}
            result = result.model_copy(update={"metadata": metadata})
        ids = await self.store.save(to_tenant_id(tenant_id), project_id, result, session)
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
        """Matching lessons with any of the tags, best first; without a text, by usefulness and
        importance.
        """
        filters = SearchFilters(
            kinds=(MemoryKind.REFLECTION, MemoryKind.STRATEGY, MemoryKind.INSIGHT),
            tags=tuple(tags or ()),
            min_importance=min_importance,
        )
        tenant = to_tenant_id(tenant_id)
        return await self.store.find(tenant, project_id, query_text or "", k, filters)

    async def _reflect(
        self, context: ReflectionContext, evidence: Evidence
    ) -> ReflectionResult | None:
        generated = await self._generate(context, evidence)
        if generated.result is None:
            return None
        return self._score(context, await _guard_result(generated.result, context, evidence))

    async def _generate(
        self, context: ReflectionContext, evidence: Evidence
    ) -> GeneratedReflection:
        if self._generator is not None:
            return await self._generator(context, evidence)
        async with configured_model(self._llm) as llm:
            if llm is None:
                return await generate_reflection(context, evidence)
            model = with_retries(llm) if self._llm is None else llm
            tenant_id = to_tenant_id(context.tenant_id)
            model_session = ModelSession(model, self._prompt, tenant_id=tenant_id)
            return await generate_reflection(context, evidence, model_session)

    def _prompt(self, name: str) -> Prompt:
        prompt_text = self._prompts.get(name)
        return (
            load_prompt(name)
            if prompt_text is None
            else Prompt(name, prompt_text, content_hash(prompt_text), "given")
        )

    def _score(self, context: ReflectionContext, result: ReflectionResult) -> ReflectionResult:
        scores = {
            name: scorer(context, result)
            for name, scorer in (
                ("importance", self._importance),
                ("confidence", self._confidence),
            )
            if scorer is not None
        }
        return ReflectionResult.model_validate(result.model_dump() | scores) if scores else result


async def _guard_result(
    result: ReflectionResult, context: ReflectionContext, evidence: Evidence
) -> ReflectionResult:
    """The result with copied passages in quotation marks, and with `quotations` in its
    metadata if a rule repeats the trace: its rules then wait for confirmation when they are stored.
    """
    drafts = reflection_drafts(result, project_id=context.project_id)
    report, *rules = await guard_lessons(drafts, outside_texts_of(context, evidence))
    quotations = [text for rule in rules for text in rule.metadata.get(QUOTATIONS, ())]
    metadata = result.metadata | ({QUOTATIONS: quotations} if quotations else {})
    return result.model_copy(update={"reflection_text": report.content, "metadata": metadata})


class NothingLearned(ValueError):
    """The trace supports no reflection."""
