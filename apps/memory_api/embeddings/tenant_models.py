"""The embedding models of each tenant, cached for a few seconds.

The rows of `embedding_models` control a tenant's move from one model to another
(`maintenance/reembedding.py`). Each process notices a change within `CACHE_SECONDS`. A step that
requires all processes to have noticed it waits longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from memory_api.core.db import Sessions
from memory_api.core.telemetry import get_logger
from memory_api.embeddings.port import Embedder, EmbedderUnavailable, Vectors
from memory_api.embeddings.queries import insert_first_model, list_models_to_write
from memory_api.embeddings.registry import EmbedderCache
from memory_api.embeddings.tables import EmbeddingModelRow

log = get_logger(__name__)

CACHE_SECONDS = 5.0
MAX_CACHED_TENANTS = 10_000
"""At this size the cache is cleared."""
RETIRING_GRACE = timedelta(seconds=3 * CACHE_SECONDS)
"""How long new memories still get vectors of the previous model after a move."""
FAILURE_PAUSE_SECONDS = 30.0
"""How long a failing secondary model is not called, in seconds."""


class TenantEmbedder:
    """A tenant's active model, plus the secondary models for which new memories also get vectors:
    the one the tenant moves to, and for a while the one it moved from.
    """

    def __init__(self, active: Embedder, secondary: Sequence[SecondaryEmbedder] = ()) -> None:
        self._active = active
        self._secondary = secondary

    @property
    def model(self) -> str:
        return self._active.model

    @property
    def dimensions(self) -> int:
        return self._active.dimensions

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return await self._active.embed_documents(texts)

    async def embed_query(self, text: str) -> Vectors:
        return await self._active.embed_query(text)

    async def embed_with_secondary_models(self, texts: Sequence[str]) -> dict[str, Vectors]:
        """Return label → vectors of the secondary models. A model that fails is left out; the
        back-fill of the move embeds its texts later.
        """
        results = {other.label: await other.embed(texts) for other in self._secondary}
        return {label: vectors for label, vectors in results.items() if vectors is not None}

    async def aclose(self) -> None:
        """Does nothing: the embedders belong to the process."""


class SecondaryEmbedder:
    """A model that searches do not use. Its failures are logged and not raised."""

    def __init__(
        self, embedder_cache: EmbedderCache, model: EmbeddingModelRow, clock: Callable[[], float]
    ) -> None:
        self.label = model.label
        self._embedder_cache = embedder_cache
        self._model = model
        self._clock = clock
        self._paused_until = float("-inf")

    async def embed(self, texts: Sequence[str]) -> Vectors | None:
        """None if the model fails or has failed less than `FAILURE_PAUSE_SECONDS` ago."""
        if self._clock() < self._paused_until:
            return None
        try:
            return await (await self._embedder_cache.load(self._model)).embed_documents(texts)
        except EmbedderUnavailable as error:
            self._paused_until = self._clock() + FAILURE_PAUSE_SECONDS
            log.warning("secondary_embedding_failed", model=self.label, error=str(error))
            return None


@dataclass(frozen=True)
class _CacheEntry:
    embedder: TenantEmbedder
    expires_at: float


class TenantEmbeddingModels:
    """The embedders of all tenants, cached per process for `cache_seconds`."""

    def __init__(
        self,
        sessions: Sessions,
        embedder_cache: EmbedderCache,
        *,
        cache_seconds: float = CACHE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self.embedder_cache = embedder_cache
        self._cache_seconds = cache_seconds
        self._clock = clock
        self._entries: dict[UUID, _CacheEntry] = {}
        self._secondary: dict[tuple[UUID, str], SecondaryEmbedder] = {}

    async def get_embedder(self, tenant_id: UUID) -> TenantEmbedder:
        """Return the tenant's embedder. A tenant without a model gets the settings' model.

        Opens a transaction, so call it outside any other. Raises EmbedderUnavailable if this
        process cannot load the active model.
        """
        entry = self._entries.get(tenant_id)
        now = self._clock()
        if entry is not None and now < entry.expires_at:
            return entry.embedder
        active, *others = await self.load_models(tenant_id)
        secondary = [self._get_secondary(tenant_id, model) for model in others]
        embedder = TenantEmbedder(await self.embedder_cache.load(active), secondary)
        if len(self._entries) >= MAX_CACHED_TENANTS:
            self._entries.clear()
            self._secondary.clear()
        self._entries[tenant_id] = _CacheEntry(embedder, now + self._cache_seconds)
        return embedder

    def invalidate(self, tenant_id: UUID) -> None:
        """Remove a tenant from the cache, after this process has changed its models."""
        self._entries.pop(tenant_id, None)

    async def load_models(self, tenant_id: UUID) -> Sequence[EmbeddingModelRow]:
        """The models for which new memories get vectors, the active one first. Inserts the
        settings' model for a tenant without one. Loads no embedder.
        """
        async with self._sessions.for_tenant(tenant_id) as session:
            models = await list_models_to_write(session, RETIRING_GRACE)
            if models and models[0].state == "active":
                return models
            await insert_first_model(session, self.embedder_cache.new_default_row())
            return await list_models_to_write(session, RETIRING_GRACE)

    def _get_secondary(self, tenant_id: UUID, model: EmbeddingModelRow) -> SecondaryEmbedder:
        """Return the same instance each time, because it stores when the model failed."""
        key = (tenant_id, model.label)
        if key not in self._secondary:
            self._secondary[key] = SecondaryEmbedder(self.embedder_cache, model, self._clock)
        return self._secondary[key]
