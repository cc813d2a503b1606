"""Move a tenant to another embedding model while searches and writes continue.

1. `start_reembedding` adds the new model in state `filling`. Within seconds every process gives new
   memories a vector of both models.
2. `backfill_vectors` gives all other memories their vectors, in batches that can be interrupted.
3. When all processes know the new model, a last pass finds memories that were written before.
   Large scopes get vector indexes.
4. One transaction makes the new model `active`, the old one `retiring`, and finishes the run. Both
   models have all vectors, so a process with an outdated cache still finds everything.
5. Upkeep deletes the old vectors (`delete_old_vectors`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import transaction_time
from memory_api.core.errors import Conflict, NotFound
from memory_api.embeddings.queries import (
    list_embedding_models,
    seconds_until,
)
from memory_api.embeddings.registry import EmbedderSpec
from memory_api.embeddings.tables import EmbeddingModelRow
from memory_api.embeddings.tenant_models import CACHE_SECONDS
from memory_api.maintenance.queries import get_open_run, update_progress
from memory_api.maintenance.reindexing import backfill_vectors
from memory_api.maintenance.vector_indexes import ensure_vector_indexes
from memory_api.memories.index.reindex import count_vectors, model_label_id
from memory_api.runs import lifecycle
from memory_api.runs.chain import enqueue_runs
from memory_api.runs.execution import Step
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

log = structlog.get_logger()

KIND = "reembed"
MODEL_CACHE_GRACE = timedelta(seconds=2 * CACHE_SECONDS + 1)
"""After this time every process knows that a model is being filled."""
MAX_RUN_ATTEMPTS = 20
MAX_BACKFILL_PASSES = 100
"""Each pass finds only memories that an outdated process wrote during the previous pass."""


async def start_reembedding(runtime: Runtime, tenant_id: UUID, spec: EmbedderSpec) -> RunRow | None:
    """Starts or continues the move to a model. None if the tenant already uses it; its address is
    then updated.

    Raises `Conflict` while the tenant moves to another model, ValueError and EmbedderUnavailable if
    the new model does not respond.
    """
    embedder = await runtime.embedding_models.embedder_cache.open(spec)
    await embedder.embed_query("connection test")
    await runtime.embedding_models.load_models(tenant_id)  # gives a new tenant its first model
    async with runtime.sessions.for_tenant(tenant_id) as session:
        models = {model.label: model for model in await list_embedding_models(session, lock=True)}
        filling = next(
            (candidate for candidate in models.values() if candidate.state == "filling"), None
        )
        if filling is not None and filling.label != embedder.model:
            raise Conflict(
                f"The tenant is moving to {filling.label}. Wait until it is done, or pass --cancel."
            )
        model = models.get(embedder.model)
        model = model or EmbeddingModelRow(tenant_id=tenant_id, label=embedder.model, state="new")
        model.provider, model.name = spec.provider, spec.name
        model.dimensions, model.base_url = spec.dimensions, spec.base_url
        if model.state == "active":
            return None
        if model.state != "filling":
            model.state, model.state_since = "filling", await transaction_time(session)
            session.add(model)
        run = await get_open_run(session, KIND) or await _enqueue_run(
            runtime, session, embedder.model
        )
    runtime.embedding_models.invalidate(tenant_id)
    return run


async def _enqueue_run(runtime: Runtime, session: AsyncSession, label: str) -> RunRow:
    """A run that the caller executes. A worker takes it over after the lease time if nobody holds
    it.
    """
    run = lifecycle.new_run(
        session, KIND, project_id="default", input={"to": label}, max_attempts=MAX_RUN_ATTEMPTS
    )
    await enqueue_runs(runtime.queue, session, run, after=runtime.lease_duration)
    return run


async def cancel_reembedding(runtime: Runtime, tenant_id: UUID) -> str | None:
    """Cancels a move. Returns the label of its target, None without a move. Upkeep deletes the new
    vectors.
    """
    async with runtime.sessions.for_tenant(tenant_id) as session:
        models = await list_embedding_models(session, lock=True)
        filling = next((model for model in models if model.state == "filling"), None)
        if filling is None:
            return None
        filling.state, filling.state_since = "retiring", await transaction_time(session)
        run = await get_open_run(session, KIND)
        if run is not None:
            run.state, run.error = (
                "failed",
                {"message": "The re-embedding was cancelled.", "type": "Cancelled"},
            )
            run.lease_owner = run.lease_until = None
            run.finished_at = run.updated_at = await transaction_time(session)
        label = filling.label
    runtime.embedding_models.invalidate(tenant_id)
    return label


@dataclass(frozen=True)
class _Models:
    """The model that the tenant leaves, and the one that it moves to."""

    source: EmbeddingModelRow
    target: EmbeddingModelRow


class ReembedStep(Step[_Models, "_Reembedding", StepResult]):
    """Moves the tenant of a run to another model. Raises `LeaseLost` if the run was taken over or
    cancelled, and EmbedderUnavailable.
    """

    kind = KIND
    can_resume = True

    def __init__(self, *, grace: timedelta = MODEL_CACHE_GRACE) -> None:
        self._grace = grace

    async def load(self, session: AsyncSession, run: RunRow) -> _Models:
        models = {model.state: model for model in await list_embedding_models(session)}
        target, source = models.get("filling"), models.get("active")
        if target is None or source is None or run.input["to"] != target.label:
            raise NotFound("The re-embedding was cancelled.")
        return _Models(source, target)

    async def compute(self, runtime: Runtime, run: RunRow, input: _Models) -> _Reembedding:
        reembedding = _Reembedding(runtime, run, input.source, input.target)
        await reembedding.fill()
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            wait_seconds = await seconds_until(session, input.target, self._grace)
        await asyncio.sleep(wait_seconds)
        await reembedding.fill()
        await ensure_vector_indexes(runtime.sessions, runtime.settings.owner_url, run.tenant_id)
        await reembedding.fill()
        return reembedding

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: _Reembedding
    ) -> StepResult:
        """Makes the new model active: from now on it embeds queries."""
        models = {model.label: model for model in await list_embedding_models(session, lock=True)}
        old_model, new_model = models[output.source.label], models[output.target.label]
        now = await transaction_time(session)
        old_model.state, old_model.state_since = "retiring", now
        await session.flush()  # a unique index allows one active model
        new_model.state, new_model.state_since = "active", now
        return StepResult(data=output.summary())

    async def after_commit(self, runtime: Runtime, run: RunRow, result: StepResult) -> None:
        runtime.embedding_models.invalidate(run.tenant_id)
        log.info("tenant_reembedded", tenant_id=str(run.tenant_id), **result.data)


class _Reembedding:
    """One move in progress."""

    def __init__(
        self,
        runtime: Runtime,
        run: RunRow,
        source: EmbeddingModelRow,
        target: EmbeddingModelRow,
    ) -> None:
        self.runtime, self.run = runtime, run
        self.source, self.target = source, target
        self._done = self._total = 0

    async def fill(self) -> None:
        """Backfills until a pass finds no missing vector."""
        embedder = await self.runtime.embedding_models.embedder_cache.load(self.target)
        tenant_id = self.run.tenant_id
        async with self.runtime.sessions.for_tenant(tenant_id) as session:
            source = await model_label_id(session, self.source.label)
            target = await model_label_id(session, self.target.label)
            self._total = sum((await count_vectors(session, source)).values())
            self._done = sum((await count_vectors(session, target)).values())
        await self._report_progress(0)
        for _ in range(MAX_BACKFILL_PASSES):
            if not await backfill_vectors(
                self.runtime, tenant_id, source, embedder, self._report_progress
            ):
                return
        raise Conflict("The new model is slower than the writes. The run will be retried.")

    async def _report_progress(self, filled: int) -> None:
        self._done += filled
        self._total = max(self._total, self._done)
        async with self.runtime.sessions.for_tenant(self.run.tenant_id) as session:
            if not await update_progress(session, self.run, self.summary()):
                raise lifecycle.LeaseLost

    def summary(self) -> dict[str, object]:
        return {
            "from": self.source.label,
            "to": self.target.label,
            "done": self._done,
            "total": self._total,
        }
