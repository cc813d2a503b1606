"""Pauses calls to a failing model, for as long as its provider asked or for one second to five
minutes.

Each provider, key and model has a circuit breaker of its own. Each process has its own circuit
breakers and notices a failure with its own calls. An error that may depend on the request, such as
a timeout, opens a circuit breaker only after several different requests failed, and only for their
tenant until the requests of another one fail too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from memory_api.llm.errors import (
    LLMAuthenticationFailed,
    LLMCircuitOpen,
    LLMConnectionFailed,
    LLMError,
    LLMOverBudget,
    LLMQuotaExceeded,
    LLMRateLimited,
)
from memory_api.llm.port import LLM, KeyedModel, LLMReply, LLMRequest, LLMWrapper
from memory_api.llm.stored_replies import request_hash

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 300.0
MAX_REQUESTED_PAUSE_SECONDS = 3600.0
"""Limit of the pause that a provider asks for with `retry-after`, in seconds."""
REQUESTS_TO_OPEN = 3
"""Different requests of a tenant in a row with an error that may depend on the request."""
TENANTS_TO_OPEN = 2
"""Tenants whose requests fail in this way before the calls of all tenants are blocked."""

PROVIDER_ERRORS = (
    LLMCircuitOpen,
    LLMConnectionFailed,
    LLMRateLimited,
    LLMQuotaExceeded,
    LLMAuthenticationFailed,
)
"""Errors that do not depend on the request."""


class _Pause:
    """A pause that doubles with each failure in a row."""

    def __init__(self) -> None:
        self.cause: LLMError | None = None
        self.failed_requests: set[str] = set()
        self.open_until = self._opened_at = float("-inf")
        self._failure_count = 0

    def extend(self, error: LLMError, called_at: float, now: float) -> None:
        if called_at >= self._opened_at:
            self._failure_count += 1
            self._opened_at = now
        pause = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (self._failure_count - 1))
        requested_pause = min(MAX_REQUESTED_PAUSE_SECONDS, error.retry_after or 0.0)
        self.open_until = max(self.open_until, now + max(pause, requested_pause))
        self.cause = error


class CircuitBreaker:
    """Open, that is blocking calls, for a while after a failure. `clock` returns monotonic seconds.

    An error that may depend on the request blocks the calls of the tenant whose requests failed,
    and those of all tenants once the requests of `TENANTS_TO_OPEN` tenants failed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._shared = _Pause()
        self._by_tenant: dict[UUID, _Pause] = {}
        """Tenants with a failed request and no success since."""
        self._last_success_at = float("-inf")

    @property
    def cause(self) -> LLMError | None:
        """The failure that blocks all tenants."""
        return self._shared.cause

    @property
    def retry_in_seconds(self) -> float:
        """Seconds until the model may be called again. 0 if it may be called now."""
        return max(0.0, self._shared.open_until - self.clock())

    def find_pause(self, tenant_id: UUID | None) -> tuple[float, LLMError | None]:
        """Seconds until a tenant may call the model again, and the failure that blocks it."""
        own = self._shared if tenant_id is None else self._by_tenant.get(tenant_id, self._shared)
        longest = max(self._shared, own, key=lambda pause: pause.open_until)
        return max(0.0, longest.open_until - self.clock()), longest.cause

    def record_success(self, tenant_id: UUID | None = None) -> None:
        self._last_success_at = self.clock()
        self._shared = _Pause()
        if tenant_id is not None:
            self._by_tenant.pop(tenant_id, None)

    def record_failure(
        self, error: LLMError, called_at: float, request: str = "", tenant_id: UUID | None = None
    ) -> None:
        """Record the failure of a call. `request` identifies what was sent.

        Opens the circuit breaker if the error does not depend on the request, or after
        `REQUESTS_TO_OPEN` different requests of a tenant. Failures of calls that had started before
        it opened count as one.
        """
        now = self.clock()
        if isinstance(error, PROVIDER_ERRORS):
            self._shared.extend(error, called_at, now)
            return
        own = self._shared
        if tenant_id is not None:
            own = self._by_tenant.setdefault(tenant_id, _Pause())
        own.failed_requests.add(request)
        if len(own.failed_requests) < REQUESTS_TO_OPEN:
            return
        own.extend(error, called_at, now)
        paused = [each for each in self._by_tenant.values() if each.cause is not None]
        if own is not self._shared and len(paused) >= TENANTS_TO_OPEN:
            self._shared.extend(error, called_at, now)

    def is_provider_outage(self, error: LLMError, since: float) -> bool:
        """Whether other requests would fail too: the error does not depend on the request, or the
        model has not answered any call since `since`, by this clock.
        """
        if not error.provider_fault:
            return False
        return isinstance(error, PROVIDER_ERRORS) or self._last_success_at < since


class CircuitBreakerKey(NamedTuple):
    """What has a circuit breaker of its own. `key` is the fingerprint of the API key."""

    provider: str
    endpoint: str
    key: str
    model: str


class CircuitBreakers:
    """The circuit breakers of this process, by provider, key and model."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_key: dict[CircuitBreakerKey, CircuitBreaker] = {}

    def get(self, llm: LLM) -> CircuitBreaker:
        """The circuit breaker of a model, which is not wrapped yet."""
        fingerprint = llm.key_fingerprint if isinstance(llm, KeyedModel) else ""
        key = CircuitBreakerKey(llm.provider, llm.endpoint, fingerprint, llm.model)
        return self._by_key.setdefault(key, CircuitBreaker(self._clock))

    def items(self) -> list[tuple[CircuitBreakerKey, CircuitBreaker]]:
        return list(self._by_key.items())


class CircuitBreakerLLM(LLMWrapper):
    """Raises `LLMCircuitOpen` without a call while the circuit breaker is open."""

    def __init__(self, inner: LLM, circuit_breaker: CircuitBreaker) -> None:
        super().__init__(inner)
        self.circuit_breaker = circuit_breaker

    async def complete(self, request: LLMRequest) -> LLMReply:
        breaker, tenant_id = self.circuit_breaker, request.tenant_id
        seconds, cause = breaker.find_pause(tenant_id)
        if seconds:
            raise _circuit_open(seconds, cause)
        called_at = breaker.clock()
        try:
            reply = await self.inner.complete(request)
        except LLMOverBudget:
            raise  # there was no call to the provider
        except LLMError as error:
            if error.provider_fault:
                breaker.record_failure(error, called_at, request_hash(request), tenant_id)
                error.is_outage = breaker.is_provider_outage(error, called_at)
                error.pause_seconds, _ = breaker.find_pause(tenant_id)
            elif error.provider_status is not None or error.reply is not None:
                breaker.record_success(tenant_id)
            raise
        breaker.record_success(tenant_id)
        return reply


def _circuit_open(seconds: float, cause: LLMError | None) -> LLMCircuitOpen:
    text = f" ({cause.code})" if cause else ""
    error = LLMCircuitOpen(f"{LLMCircuitOpen.__doc__}{text}", retry_after=seconds)
    error.is_outage, error.pause_seconds = True, seconds
    return error
