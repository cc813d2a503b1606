"""The embedding models of each tenant, known for a few seconds so that not every search asks.

A tenant moves from one model to another by its rows of `embedding_models` (workers/reembed.py). A
process learns of a change within `KNOWN` seconds; what must not happen before all have learnt of it
waits longer than that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import structlog

from apps.memory_api.core.db import Sessions
from apps.memory_api.embeddings.loaded import Embedders
from apps.memory_api.embeddings.port import Embedder, EmbedderFailed, Vectors
from apps.memory_api.embeddings.queries import begin_with, written_models
from apps.memory_api.embeddings.tables import EmbeddingModel

log = structlog.stdlib.get_logger(__name__)

KNOWN = 5.0
"""Seconds for which a tenant's models are known."""
MOST = 10_000
"""Tenants remembered; past that all are forgotten and asked for again."""
RETIRING = timedelta(seconds=3 * KNOWN)
"""How long after a flip new memories still get a vector of the model before."""
LEFT_ALONE = 30.0
"""Seconds for which a model that is only being filled is not asked after it failed."""


class TenantEmbedder:
    """A tenant's embedder: the active model, and those that new memories get a vector of beside
    it, as far as they can be made: the back-fill makes the others.
    """

    def __init__(self, active: Embedder, others: Sequence[Beside] = ()) -> None:
        self._active = active
        self._others = others

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

    async def embed_beside(self, texts: Sequence[str]) -> dict[str, Vectors]:
        """Label → vectors of the other models that can be had now."""
        made = {other.label: await other.embed(texts) for other in self._others}
        return {label: vectors for label, vectors in made.items() if vectors is not None}

    async def aclose(self) -> None:
        """Its models belong to the process."""


class Beside:
    """A model that is not searched with: when it fails, nothing else does."""

    def __init__(
        self, embedders: Embedders, model: EmbeddingModel, clock: Callable[[], float]
    ) -> None:
        self.label = model.label
        self._embedders = embedders
        self._model = model
        self._clock = clock
        self._not_before = float("-inf")

    async def embed(self, texts: Sequence[str]) -> Vectors | None:
        if self._clock() < self._not_before:
            return None
        try:
            return await (await self._embedders.load(self._model)).embed_documents(texts)
        except EmbedderFailed as error:
            self._not_before = self._clock() + LEFT_ALONE
            log.warning("not_embedded_beside", model=self.label, error=str(error))
            return None


@dataclass(frozen=True)
class _Known:
    embedder: TenantEmbedder
    until: float


class TenantModels:
    """Of one process. `seconds` bounds how long a change goes unnoticed."""

    def __init__(
        self,
        sessions: Sessions,
        embedders: Embedders,
        *,
        seconds: float = KNOWN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self.embedders = embedders
        self._seconds = seconds
        self._clock = clock
        self._known: dict[UUID, _Known] = {}
        self._beside: dict[tuple[UUID, str], Beside] = {}

    async def of(self, tenant_id: UUID) -> TenantEmbedder:
        """No transaction may be open. A tenant without a model begins with the settings' one.
        Raises EmbedderFailed when this process cannot load the active one.
        """
        known = self._known.get(tenant_id)
        asked_at = self._clock()
        if known is not None and asked_at < known.until:
            return known.embedder
        active, *others = await self.read(tenant_id)
        beside = [self._keep_beside(tenant_id, model) for model in others]
        embedder = TenantEmbedder(await self.embedders.load(active), beside)
        if len(self._known) >= MOST:
            self._known.clear()
            self._beside.clear()
        self._known[tenant_id] = _Known(embedder, asked_at + self._seconds)
        return embedder

    def forget(self, tenant_id: UUID) -> None:
        """This process has changed them."""
        self._known.pop(tenant_id, None)

    async def read(self, tenant_id: UUID) -> Sequence[EmbeddingModel]:
        """Those that new memories get a vector of, the active one first; none is loaded."""
        async with self._sessions.tenant(tenant_id) as session:
            models = await written_models(session, RETIRING)
            if models and models[0].state == "active":
                return models
            await begin_with(session, self.embedders.first)
            return await written_models(session, RETIRING)

    def _keep_beside(self, tenant_id: UUID, model: EmbeddingModel) -> Beside:
        """The same one as before: it remembers that it failed."""
        kept = self._beside.get((tenant_id, model.label))
        if kept is None:
            kept = Beside(self.embedders, model, self._clock)
            self._beside[tenant_id, model.label] = kept
        return kept
