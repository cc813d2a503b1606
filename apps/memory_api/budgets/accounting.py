"""Accounts for every model call: its cost is reserved before it; after it, one transaction records
the call, settles its cost and stores its reply.

If that transaction fails, the reply is returned all the same and the reservation stays. The
transaction is repeated until it succeeds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.budgets import reservations
from memory_api.budgets.alerts import raise_alerts
from memory_api.budgets.ledger import LLMCallRecord, to_row
from memory_api.budgets.queries import insert_llm_call, list_budgets
from memory_api.budgets.reservations import CostEstimate
from memory_api.budgets.tables import BudgetAlertRow
from memory_api.core.db import Sessions
from memory_api.core.db_errors import is_transient
from memory_api.llm.errors import LLMError, LLMOverBudget, LLMTimeout
from memory_api.llm.port import LLM, LLMReply, LLMRequest, LLMWrapper, TokenUsage
from memory_api.llm.stored_replies import insert_stored_reply
from memory_api.llm.wrappers import price_usd, release_slot
from memory_api.text.terms import estimate_tokens

log = structlog.get_logger(__name__)

_TOKENS_PER_MESSAGE = 4  # added by the provider for each message
FIRST_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0
MAX_PENDING_CALLS = 10_000
"""More calls than this are not recorded; their reservations expire and are settled in full."""
FLUSH_TIMEOUT_SECONDS = 5.0

OnAlerts = Callable[[AsyncSession, Sequence[BudgetAlertRow]], Awaitable[None]]
"""Called with new alerts in the transaction that stores them."""


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """A call to record and settle. `usd` and `tokens` are what it cost, which a call without a
    reply may do too. `usd` is None for an unknown price.
    """

    reservation_id: UUID
    record: LLMCallRecord
    usd: Decimal | None
    tokens: int
    request: LLMRequest
    reply: LLMReply | None = None


def _now() -> datetime:
    return datetime.now(UTC)


class ModelAccounting:
    """Reserves, records and settles the model calls of one process."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        on_alerts: OnAlerts | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._sessions = sessions
        self._on_alerts = on_alerts
        self._clock = clock
        self._pending: deque[FinishedCall] = deque()
        self._retry_task: asyncio.Task[None] | None = None

    @property
    def pending_count(self) -> int:
        """Calls that are not recorded yet, because the database was unavailable."""
        return len(self._pending)

    async def reserve(self, estimate: CostEstimate) -> UUID:
        """Raises `LLMOverBudget`, `LLMUnpriced`, and ValueError for a call without a tenant."""
        if estimate.tenant_id is None:
            raise ValueError("a model call requires a tenant_id")
        try:
            async with self._sessions.for_tenant(estimate.tenant_id) as session:
                return await reservations.reserve(session, estimate, self._clock())
        except LLMOverBudget as error:
            log.warning(
                "model_call_refused",
                code=error.code,
                tenant_id=str(estimate.tenant_id),
                project_id=estimate.project_id,
                purpose=estimate.purpose,
                detail=error.detail,
            )
            raise

    async def finish(self, call: FinishedCall) -> None:
        """Record, settle and store a call. If the database is unavailable, this is repeated in the
        background, and logged once.
        """
        try:
            await self._write(call)
        except Exception as error:  # the reply is paid for; it must reach its run
            if not is_transient(error):
                _log_lost_call(call, error)
                return
            if self._retry_task is None:
                log.error("model_call_recording_postponed", error=str(error))
                self._retry_task = asyncio.create_task(self._retry())
            if len(self._pending) < MAX_PENDING_CALLS:
                self._pending.append(call)

    async def aclose(self) -> None:
        """Try again to record the pending calls. Reservations of the others expire."""
        if self._retry_task is None:
            return
        self._retry_task.cancel()
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_SECONDS):
                await self._write_pending()
        except Exception as error:
            log.error("model_calls_lost", count=len(self._pending), error=str(error))

    async def _retry(self) -> None:
        delay = FIRST_RETRY_SECONDS
        while True:
            await asyncio.sleep(delay)
            try:
                count = await self._write_pending()
            except Exception:  # logged when it began
                delay = min(delay * 2, MAX_RETRY_SECONDS)
            else:
                log.info("model_calls_recorded", count=count)
                self._retry_task = None
                return

    async def _write_pending(self) -> int:
        count = 0
        while self._pending:
            call = self._pending[0]
            try:
                await self._write(call)
                count += 1
            except Exception as error:
                if is_transient(error):
                    raise
                _log_lost_call(call, error)
            self._pending.popleft()
        return count

    async def _write(self, call: FinishedCall) -> None:
        tenant_id = call.record.tenant_id
        assert tenant_id is not None, "checked by `reserve`"
        async with self._sessions.for_tenant(tenant_id) as session:
            if call.reply is not None:
                await insert_stored_reply(session, call.request, call.reply)
            await insert_llm_call(session, to_row(call.record, call.reservation_id))
            budgets = await list_budgets(session)
            # Last, because other calls of the tenant wait for the rows of the totals.
            totals = await reservations.settle(session, call.reservation_id, call.usd, call.tokens)
            alerts = await raise_alerts(session, budgets, totals, self._clock())
            if alerts and self._on_alerts is not None:
                await self._on_alerts(session, alerts)
        for alert in alerts:
            log.warning(
                "budget_threshold_reached",
                tenant_id=str(alert.tenant_id),
                period=alert.period,
                project_id=alert.project_id or None,
                purpose=alert.purpose or None,
                unit=alert.unit,
                percent=alert.percent,
                limit=float(alert.limit_amount),
                spent=float(alert.spent_amount),
            )


def _log_lost_call(call: FinishedCall, error: Exception) -> None:
    """The reservation expires and is settled in full."""
    log.error(
        "model_call_not_recorded",
        tenant_id=str(call.record.tenant_id),
        purpose=call.record.purpose,
        usd=float(call.usd) if call.usd is not None else None,
        error=str(error),
    )


class AccountedLLM(LLMWrapper):
    """Accounts for every call. Wraps the provider directly, so that each attempt is accounted for
    separately.

    A call that timed out or was cancelled may be charged for its input, so its input is settled. A
    call that failed with an error of the provider, or without a connection, costs nothing.
    """

    def __init__(self, inner: LLM, accounting: ModelAccounting) -> None:
        super().__init__(inner)
        self._accounting = accounting

    async def complete(self, request: LLMRequest) -> LLMReply:
        estimate = estimate_usage(request)
        reservation_id = await self._accounting.reserve(self._estimate(request, estimate))
        started_at, start = datetime.now(UTC), time.perf_counter()
        try:
            reply = await self.inner.complete(request)
        except (LLMError, asyncio.CancelledError) as error:
            is_charged = isinstance(error, LLMTimeout | asyncio.CancelledError)
            used = TokenUsage(estimate.input_tokens if is_charged else 0)
            usd, tokens = self._price(used, self.model), reservations.total_tokens(used)
            llm_error = error if isinstance(error, LLMError) else None
            record = self._record(
                request,
                started_at,
                model=self.model,
                latency_ms=round((time.perf_counter() - start) * 1000),
                status="error",
                error=llm_error.code if llm_error else "cancelled",
                detail=llm_error.detail if llm_error else None,
                request_id=llm_error.request_id if llm_error else None,
            )
            await self._accounting.finish(
                FinishedCall(reservation_id, record, usd, tokens, request)
            )
            raise
        release_slot()
        usd, tokens = self._price(reply.usage, reply.model), reservations.total_tokens(reply.usage)
        record = self._record(
            request,
            started_at,
            model=reply.model,
            latency_ms=reply.latency_ms,
            status="ok",
            usage=reply.usage,
            usd=usd,
            finish_reason=reply.finish_reason,
            request_id=reply.request_id,
        )
        await self._accounting.finish(
            FinishedCall(reservation_id, record, usd, tokens, request, reply)
        )
        return reply

    def _estimate(self, request: LLMRequest, usage: TokenUsage) -> CostEstimate:
        return CostEstimate(
            provider=self.provider,
            model=self.model,
            purpose=request.purpose,
            tenant_id=request.tenant_id,
            run_id=request.run_id,
            usage=usage,
            usd=self._price(usage, self.model),
            project_id=request.project_id,
        )

    def _record(self, request: LLMRequest, started_at: datetime, **result: Any) -> LLMCallRecord:
        return LLMCallRecord(
            provider=self.provider,
            purpose=request.purpose,
            prompt_hash=request.prompt_hash,
            tenant_id=request.tenant_id,
            project_id=request.project_id,
            run_id=request.run_id,
            started_at=started_at,
            **result,
        )

    def _price(self, usage: TokenUsage, model: str) -> Decimal | None:
        return price_usd(usage, provider=self.provider, model=model, endpoint=self.endpoint)


def estimate_usage(request: LLMRequest) -> TokenUsage:
    """The maximum tokens of a request: estimated input, and `max_tokens` as output."""
    input_tokens = sum(estimate_tokens(m.content) + _TOKENS_PER_MESSAGE for m in request.messages)
    if request.schema is not None:
        input_tokens += estimate_tokens(str(request.schema.schema))
    return TokenUsage(input_tokens=input_tokens, output_tokens=request.max_tokens)
