"""The composition root: opens a `Runtime` with its real parts, for the API, the worker, the
commands and the tests.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import structlog

from memory_api.budgets.accounting import AccountedLLM, ModelAccounting
from memory_api.core.db import Sessions, open_engine
from memory_api.core.personal_data import PERSONAL_DATA, PersonalDataOptions
from memory_api.core.settings import Settings
from memory_api.embeddings.port import Embedder
from memory_api.embeddings.registry import EmbedderCache, open_default_embedder
from memory_api.embeddings.tenant_models import TenantEmbeddingModels
from memory_api.llm.circuit_breaker import CircuitBreakerLLM, CircuitBreakers
from memory_api.llm.deadline import DeadlineLLM
from memory_api.llm.observation import ObservedLLM
from memory_api.llm.port import LLM
from memory_api.llm.prompts import check_prompt_directory
from memory_api.llm.registry import open_configured_models
from memory_api.llm.stored_replies import StoredReplyLLM
from memory_api.llm.wrappers import (
    FOREGROUND_ATTEMPTS,
    WORKER_ATTEMPTS,
    ConcurrencyLimitedLLM,
    FallbackLLM,
    RetryingLLM,
)
from memory_api.maintenance.budget_alerts import alert_notifier
from memory_api.run_queue.admission import AdmissionControl
from memory_api.run_queue.figures import QueueGauge
from memory_api.run_queue.port import RunQueue
from memory_api.run_queue.postgres import PostgresRunQueue
from memory_api.run_queue.upkeep_schedule import UpkeepSchedule
from memory_api.runtime import Runtime
from memory_api.webhooks.outbox import delivery_writer

log = structlog.get_logger()


def wrap_models(
    llms: Sequence[LLM],
    *,
    accounting: ModelAccounting,
    circuit_breakers: CircuitBreakers,
    attempts: int = FOREGROUND_ATTEMPTS,
    retry: Callable[..., LLM] = RetryingLLM,
) -> LLM:
    """Return fallback(circuit breaker(retry(accounting(observation(provider))))), so that each
    model has its own circuit breaker, and each attempt is reserved, recorded, observed and settled
    separately.

    `retry` replaces `RetryingLLM`; tests pass one that does not wait.
    """
    models = [
        CircuitBreakerLLM(
            retry(AccountedLLM(ObservedLLM(llm), accounting), attempts=attempts),
            circuit_breakers.get(llm),
        )
        for llm in llms
    ]
    return models[0] if len(models) == 1 else FallbackLLM(models)


def build_runtime(
    settings: Settings,
    sessions: Sessions,
    embedder: Embedder,
    queue: RunQueue,
    llm: LLM | None = None,
    circuit_breakers: CircuitBreakers | None = None,
) -> Runtime:
    """A `Runtime` with these parts and those that follow from them."""
    return Runtime(
        settings,
        sessions,
        embedder,
        TenantEmbeddingModels(sessions, EmbedderCache(settings, embedder)),
        queue,
        QueueGauge(sessions),
        UpkeepSchedule(sessions),
        circuit_breakers or CircuitBreakers(),
        llm,
    )


@asynccontextmanager
async def open_runtime(
    settings: Settings, database_url: str, *, background: bool = False
) -> AsyncGenerator[Runtime]:
    """Open a `Runtime` and close its parts on exit.

    With `background`, each model call is tried once, because the queue retries the whole run.
    """
    options = PersonalDataOptions.parse(settings.pii_redaction, settings.pii_phone_region)
    PERSONAL_DATA.configure(options)
    report_prompt_problems(settings)
    embedder = open_default_embedder(settings)
    models = open_configured_models(settings)
    timeout = settings.database_timeout * (WORKER_TIMEOUT_FACTOR if background else 1)
    engine, listener = (
        open_engine(
            database_url,
            pool_size=size,
            statement_cache=settings.statement_cache,
            timeout=timeout,
        )
        for size in (settings.pool_size, 1)
    )
    queue = PostgresRunQueue(
        settings.listen_url or database_url,
        heartbeat=timedelta(seconds=settings.lease_seconds),
        admission=AdmissionControl(settings.queue_limit, settings.queue_limit_total),
    )
    sessions, circuit_breakers = Sessions(engine, listener), CircuitBreakers()
    sessions.before_commit = delivery_writer(queue)
    accounting = ModelAccounting(sessions, on_alerts=alert_notifier(settings, queue))
    llm = (
        build_model_chain(
            models,
            sessions,
            accounting,
            circuit_breakers,
            attempts=WORKER_ATTEMPTS if background else FOREGROUND_ATTEMPTS,
            max_concurrent_calls=settings.llm_concurrency,
        )
        if models
        else None
    )
    runtime = build_runtime(settings, sessions, embedder, queue, llm, circuit_breakers)
    try:
        yield runtime
    finally:
        if llm is not None:
            await llm.aclose()
        await accounting.aclose()
        await runtime.embedding_models.embedder_cache.aclose()
        await sessions.close()


def build_model_chain(
    models: Sequence[LLM],
    sessions: Sessions,
    accounting: ModelAccounting,
    circuit_breakers: CircuitBreakers,
    *,
    attempts: int,
    max_concurrent_calls: int,
) -> LLM:
    """Wrap `models` with stored replies, deadline, concurrency limit, fallback, circuit breakers,
    retries and accounting.
    """
    chain = wrap_models(
        models, accounting=accounting, circuit_breakers=circuit_breakers, attempts=attempts
    )
    limited = DeadlineLLM(ConcurrencyLimitedLLM(chain, max_concurrent_calls))
    return StoredReplyLLM(limited, sessions)


def report_prompt_problems(settings: Settings) -> None:
    """Log the custom prompt files that do not work. Runs that need one of them fail and name it."""
    if settings.prompts_dir is not None:
        for problem in check_prompt_directory(settings.prompts_dir):
            log.error("custom_prompt_invalid", problem=problem)


WORKER_TIMEOUT_FACTOR = 20
"""A worker's statements may take this many times as long as those of a request: upkeep, cleanup and
the change of the embedding model handle many rows at once.
"""
GC_FIRST_THRESHOLD = 10_000
"""Allocations that trigger a collection of the youngest generation. Python's default of 700 would
trigger 80 collections while one playbook of 10,000 bullets is loaded.
"""
GC_SECOND_THRESHOLD = 5
"""Collections of the youngest generation until the second one is collected, too. A worker collects
the youngest every 15 s; until then, statements and tasks that refer to themselves stay in memory.
"""
LARGE_BLOCK_BYTES = 2**20
"""Blocks of memory from this size on go back to the system as soon as they are free."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt` in the C library of GNU."""
TRIM_INTERVAL_SECONDS = 60.0


def return_large_blocks() -> None:
    """Fix the size from which the allocator maps a block of its own, which it unmaps when the block
    is free. By default, glibc raises this size to that of the largest block freed so far: after a
    body of 30 MB, all blocks come from its heap, and the holes they leave there stay resident for
    as long as something above them is in use. Does nothing with other C libraries.
    """
    mallopt = _allocator_function("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * LARGE_BLOCK_BYTES)


@asynccontextmanager
async def return_memory(interval: float = TRIM_INTERVAL_SECONDS) -> AsyncGenerator[None]:
    """While the block runs, memory that this process has freed goes back to the system."""
    return_large_blocks()
    returning = asyncio.create_task(_return_free_pages(interval))
    try:
        yield
    finally:
        returning.cancel()


async def _return_free_pages(interval: float) -> None:
    """Return the free pages of the allocator's heap to the system every `interval` seconds. By
    default, glibc returns only those at the end of the heap: the thousands of smaller blocks of a
    large trace leave holes below what is in use. Ends at once with other C libraries.
    """
    trim = _allocator_function("malloc_trim")
    while trim is not None:
        await asyncio.sleep(interval)
        trim(0)


def _allocator_function(name: str) -> Callable[..., int] | None:
    """A function of the C library of GNU; None with others."""
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None


def freeze_startup_objects() -> None:
    """Exclude all objects that exist now from garbage collection. Call it once at the end of
    startup: these objects live as long as the process, and scanning them slows large responses.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_FIRST_THRESHOLD, GC_SECOND_THRESHOLD, 10)
