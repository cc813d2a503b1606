"""Hands a record of every attempt, good or bad, to whoever keeps the books."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal, Protocol
from uuid import UUID

from apps.memory_api.llm.errors import LLMError
from apps.memory_api.llm.port import LLM, FinishReason, LLMReply, LLMRequest, Usage, Wrapper
from apps.memory_api.llm.prices import price


@dataclass(frozen=True, slots=True)
class Attempt:
    """One HTTP exchange with a model. `usage` is None when nobody counted (no reply); `usd` is None
    when the price is unknown too. `error` is an `LLMError.code`, "cancelled", or None."""

    provider: str
    model: str
    purpose: str
    prompt_hash: str | None
    tenant_id: UUID | None
    run_id: UUID | None
    started_at: datetime
    latency_ms: int
    status: Literal["ok", "error"]
    usage: Usage | None = None
    usd: Decimal | None = None
    finish_reason: FinishReason | None = None
    error: str | None = None
    detail: str | None = None
    request_id: str | None = None


class Ledger(Protocol):
    async def record(self, attempt: Attempt) -> None:
        """Keep it, committed on its own. What it raises reaches the caller of the model: no call
        without a record."""
        ...


@dataclass
class MemoryLedger:
    """Keeps the records in a list: for the command line and for tests."""

    attempts: list[Attempt] = field(default_factory=list)

    async def record(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    @property
    def usd(self) -> Decimal:
        """What is known to have been spent."""
        return sum((a.usd for a in self.attempts if a.usd is not None), Decimal(0))


class Recorded(Wrapper):
    """The ledger's wrapper; stands directly before the provider so that each attempt is one
    record."""

    def __init__(self, inner: LLM, ledger: Ledger) -> None:
        super().__init__(inner)
        self._ledger = ledger

    async def complete(self, request: LLMRequest) -> LLMReply:
        started_at, clock = datetime.now(UTC), time.perf_counter()
        try:
            reply = await self.inner.complete(request)
        except (LLMError, asyncio.CancelledError) as error:
            latency_ms = round((time.perf_counter() - clock) * 1000)
            await self._ledger.record(self._failed(request, started_at, latency_ms, error))
            raise
        await self._ledger.record(self._answered(request, started_at, reply))
        return reply

    def _answered(self, request: LLMRequest, started_at: datetime, reply: LLMReply) -> Attempt:
        return Attempt(
            provider=self.provider,
            model=reply.model,
            purpose=request.purpose,
            prompt_hash=request.prompt_hash,
            tenant_id=request.tenant_id,
            run_id=request.run_id,
            started_at=started_at,
            latency_ms=reply.latency_ms,
            status="ok",
            usage=reply.usage,
            usd=price(
                reply.usage, provider=self.provider, model=reply.model, endpoint=self.endpoint
            ),
            finish_reason=reply.finish_reason,
            request_id=reply.request_id,
        )

    def _failed(
        self,
        request: LLMRequest,
        started_at: datetime,
        latency_ms: int,
        error: LLMError | asyncio.CancelledError,
    ) -> Attempt:
        known = error if isinstance(error, LLMError) else None
        return Attempt(
            provider=self.provider,
            model=self.model,
            purpose=request.purpose,
            prompt_hash=request.prompt_hash,
            tenant_id=request.tenant_id,
            run_id=request.run_id,
            started_at=started_at,
            latency_ms=latency_ms,
            status="error",
            error=known.code if known else "cancelled",
            detail=known.detail if known else None,
            request_id=known.request_id if known else None,
        )
