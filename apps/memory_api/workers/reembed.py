"""Moving a tenant to another embedding model while it is searched and written.

1. `start` adds the new model as `filling`: within seconds every process gives new memories a vector
   of both models.
2. The back-fill gives all others theirs, in batches that can be killed and begun again.
3. When all processes know of the move, one last pass finds what was written before they did.
   Vector indexes are made where scopes are large.
4. The flip: in one transaction the new model becomes `active`, the old one `retiring`, and the run
   is done. Both have all vectors, so a process that has not noticed yet still finds everything.
5. Upkeep takes the old vectors away (`backfill.clear_old`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import Conflict, NotFound
from apps.memory_api.embeddings.loaded import Spec
from apps.memory_api.embeddings.queries import list_models, moment, seconds_left
from apps.memory_api.embeddings.tables import EmbeddingModel
from apps.memory_api.embeddings.tenant import KNOWN
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.port import Ticket
from apps.memory_api.jobs.tables import Run
from apps.memory_api.memory.models import number_of, sizes_of
from apps.memory_api.runtime import Runtime
from apps.memory_api.workers.backfill import backfill
from apps.memory_api.workers.index import have_indexes
from apps.memory_api.workers.queries import note_progress, open_run

log = structlog.get_logger()

KIND = "reembed"
SETTLE = timedelta(seconds=2 * KNOWN + 1)
"""After which every process knows that a model is being filled."""
ATTEMPTS = 20
PASSES = 100
"""Over what is missing, before giving up: each finds only what was written during the one before by
a process that could not make the new model's vector itself."""

Progress = Callable[[int, int], None]
"""Told (memories that have a vector of the new model, memories in all)."""


def _silent(_done: int, _total: int) -> None:
    """The default: nobody looks on."""


async def start(runtime: Runtime, tenant_id: UUID, spec: Spec) -> Run | None:
    """Begin to move a tenant, or go on with the same move; None when it is there already, asked at
    the address that is given from now on. Raises `Conflict` while it moves to another model,
    ValueError and EmbedderFailed when the new model does not answer.
    """
    embedder = await runtime.models.embedders.open(spec)
    await embedder.embed_query("Does it answer?")
    await runtime.models.read(tenant_id)  # a tenant without a model gets its first
    async with runtime.sessions.tenant(tenant_id) as session:
        models = {model.label: model for model in await list_models(session, lock=True)}
        filling = next((m for m in models.values() if m.state == "filling"), None)
        if filling is not None and filling.label != embedder.model:
            raise Conflict(
                f"The tenant is moving to {filling.label}: let that end, or stop it with --cancel."
            )
        there = models.get(embedder.model)
        there = there or EmbeddingModel(tenant_id=tenant_id, label=embedder.model, state="new")
        there.provider, there.name = spec.provider, spec.name
        there.dimensions, there.base_url = spec.dimensions, spec.base_url
        if there.state == "active":
            return None
        if there.state != "filling":
            there.state, there.since = "filling", await moment(session)
            session.add(there)
        run = await open_run(session, KIND) or await _queue(runtime, session, embedder.model)
    runtime.models.forget(tenant_id)
    return run


async def _queue(runtime: Runtime, session: AsyncSession, label: str) -> Run:
    """A run that the caller will do itself; a worker takes it over if nobody holds it later."""
    run = runs.new_run(
        session, KIND, project_id="default", input={"to": label}, max_attempts=ATTEMPTS
    )
    await session.flush()
    await runtime.queue.enqueue(session, [Ticket(run.tenant_id, run.id)], after=runtime.lease)
    return run


async def cancel(runtime: Runtime, tenant_id: UUID) -> str | None:
    """Stop a move; answers the model it went to. What was filled goes with the next upkeep."""
    async with runtime.sessions.tenant(tenant_id) as session:
        models = await list_models(session, lock=True)
        filling = next((model for model in models if model.state == "filling"), None)
        if filling is None:
            return None
        filling.state, filling.since = "retiring", await moment(session)
        run = await open_run(session, KIND)
        if run is not None:
            run.state, run.error = "failed", {"message": "It was cancelled.", "type": "Cancelled"}
            run.lease_owner = run.lease_until = None
            run.finished_at = run.updated_at = await moment(session)
        label = filling.label
    runtime.models.forget(tenant_id)
    return label


async def run(
    runtime: Runtime,
    run: Run,
    *,
    settle: timedelta = SETTLE,
    progress: Progress = _silent,
) -> None:
    """Do a run that is held. Raises `LeaseLost` when it was taken over or cancelled, and
    EmbedderFailed.
    """
    move = await _Move.load(runtime, run, progress)
    await move.fill()
    async with runtime.sessions.tenant(run.tenant_id) as session:
        left = await seconds_left(session, move.target, settle)
    await asyncio.sleep(left)
    await move.fill()
    await have_indexes(runtime.sessions, runtime.settings.owner_url, run.tenant_id)
    await move.fill()
    await move.flip()


class _Move:
    """One move under way."""

    def __init__(
        self,
        runtime: Runtime,
        run: Run,
        source: EmbeddingModel,
        target: EmbeddingModel,
        progress: Progress,
    ) -> None:
        self.runtime, self.run = runtime, run
        self.source, self.target = source, target
        self._progress = progress
        self._done = self._total = 0

    @classmethod
    async def load(cls, runtime: Runtime, run: Run, progress: Progress) -> _Move:
        async with runtime.sessions.tenant(run.tenant_id) as session:
            models = {model.state: model for model in await list_models(session)}
        target, source = models.get("filling"), models.get("active")
        if target is None or source is None or run.input["to"] != target.label:
            raise NotFound("There is no such move: it was cancelled.")
        return cls(runtime, run, source, target, progress)

    async def fill(self) -> None:
        """Until a pass finds nothing missing."""
        embedder = await self.runtime.models.embedders.load(self.target)
        tenant_id = self.run.tenant_id
        async with self.runtime.sessions.tenant(tenant_id) as session:
            source = await number_of(session, self.source.label)
            target = await number_of(session, self.target.label)
            self._total = sum((await sizes_of(session, source)).values())
            self._done = sum((await sizes_of(session, target)).values())
        await self._tell(0)
        for _ in range(PASSES):
            if not await backfill(self.runtime, tenant_id, source, embedder, self._tell):
                return
        raise Conflict("The new model cannot keep up with what is written; it is tried again.")

    async def _tell(self, filled: int) -> None:
        self._done += filled
        self._total = max(self._total, self._done)
        self._progress(self._done, self._total)
        async with self.runtime.sessions.tenant(self.run.tenant_id) as session:
            if not await note_progress(session, self.run, self._summary()):
                raise runs.LeaseLost

    async def flip(self) -> None:
        """From here on queries are embedded with the new model."""
        tenant_id = self.run.tenant_id
        async with self.runtime.sessions.tenant(tenant_id) as session:
            models = {model.label: model for model in await list_models(session, lock=True)}
            old, new = models[self.source.label], models[self.target.label]
            now = await moment(session)
            old.state, old.since = "retiring", now
            await session.flush()  # one at a time is active
            new.state, new.since = "active", now
            await runs.finish(session, self.run, self._summary())
        self.runtime.models.forget(tenant_id)
        log.info("reembedded", tenant_id=str(tenant_id), **self._summary())

    def _summary(self) -> dict[str, object]:
        return {
            "from": self.source.label,
            "to": self.target.label,
            "done": self._done,
            "total": self._total,
        }
