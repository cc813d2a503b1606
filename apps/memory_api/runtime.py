"""What every process has: one frozen `Runtime`, opened alike by API, worker, command line and
tests.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from uuid import UUID

from apps.memory_api.budget.guard import DatabaseBudget
from apps.memory_api.budget.ledger import DatabaseLedger
from apps.memory_api.core.db import Sessions, open_engine
from apps.memory_api.core.ids import new_id
from apps.memory_api.core.settings import Settings
from apps.memory_api.embeddings.loaded import Embedders, open_default
from apps.memory_api.embeddings.port import Embedder
from apps.memory_api.embeddings.tenant import TenantEmbedder, TenantModels
from apps.memory_api.jobs.bounds import Bounds
from apps.memory_api.jobs.pgqueuer import PgQueue
from apps.memory_api.jobs.port import JobQueue
from apps.memory_api.llm.configure import open_models
from apps.memory_api.llm.pause import Gate, Gated
from apps.memory_api.llm.port import LLM
from apps.memory_api.llm.registry import compose
from apps.memory_api.llm.retry import FOREGROUND_ATTEMPTS, WORKER_ATTEMPTS
from apps.memory_api.llm.slots import Slotted
from apps.memory_api.tenants.known import KnownKeys


def _process_name() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"


@dataclass(frozen=True)
class Runtime:
    settings: Settings
    sessions: Sessions
    embedder: Embedder
    """What a new tenant begins with. For a tenant's own memories, `embedder_of`."""
    queue: JobQueue
    llm: LLM | None = None
    """The model with all its wrappers; None when rules think."""
    gate: Gate = field(default_factory=Gate)
    """Whether the model's provider may be asked."""
    keys: KnownKeys = field(default_factory=KnownKeys)
    """API keys that were checked a moment ago."""
    name: str = field(default_factory=_process_name)
    """Who holds a lease: host and process."""

    @cached_property
    def models(self) -> TenantModels:
        """Each tenant's embedding models."""
        return TenantModels(self.sessions, Embedders(self.settings, self.embedder))

    async def embedder_of(self, tenant_id: UUID) -> TenantEmbedder:
        """What embeds a tenant's queries and memories. No transaction may be open."""
        return await self.models.of(tenant_id)

    def new_holder(self) -> str:
        """A name for this process to hold one run under."""
        return f"{self.name}/{new_id()}"

    @property
    def lease(self) -> timedelta:
        return timedelta(seconds=self.settings.lease_seconds)


@asynccontextmanager
async def open_runtime(
    settings: Settings, database_url: str, *, background: bool = False
) -> AsyncGenerator[Runtime]:
    """Everything a process needs, closed on the way out. In the background a model is asked once:
    the queue tries again.
    """
    embedder = open_default(settings)
    models = open_models(settings)
    engine = open_engine(
        database_url, pool_size=settings.pool_size, statement_cache=settings.statement_cache
    )
    queue = PgQueue(
        settings.listen_url or database_url,
        heartbeat=timedelta(seconds=settings.lease_seconds),
        bounds=Bounds(settings.queue_limit, settings.queue_limit_total),
    )
    sessions, gate = Sessions(engine), Gate()
    attempts = WORKER_ATTEMPTS if background else FOREGROUND_ATTEMPTS
    slots = settings.llm_concurrency
    llm = compose_model(models, sessions, gate, attempts=attempts, slots=slots) if models else None
    runtime = Runtime(settings, sessions, embedder, queue, llm, gate)
    try:
        yield runtime
    finally:
        if llm is not None:
            await llm.aclose()
        await runtime.models.embedders.aclose()
        await engine.dispose()


def compose_model(
    models: Sequence[LLM], sessions: Sessions, gate: Gate, *, attempts: int, slots: int
) -> LLM:
    """The models as the service asks them: so many at once, recorded, paid for from the tenant's
    budget, tried again, and left alone while their provider fails.
    """
    chain = compose(
        models,
        ledger=DatabaseLedger(sessions),
        budget=DatabaseBudget(sessions),
        attempts=attempts,
    )
    return Slotted(Gated(chain, gate), slots)
