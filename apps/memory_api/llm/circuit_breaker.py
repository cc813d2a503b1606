"""Pauses calls to a failing model, for as long as its provider asked or for one second to five
minutes.

Each provider, key and model has a circuit breaker of its own. Each process has its own circuit
breakers and notices a failure with its own calls. An error that may depend on the request, such as
a timeout, opens a circuit breaker only after several different requests failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

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
"""Different requests in a row that fail with an error that may depend on the request."""

PROVIDER_ERRORS = (
    LLMCircuitOpen,
    LLMConnectionFailed,
    LLMRateLimited,
    LLMQuotaExceeded,
    LLMAuthenticationFailed,
)
"""Errors that do not depend on the request."""


class CircuitBreaker:
    """Open, that is blocking calls, for a while after a failure. `clock` returns monotonic seconds.

    `cause` is the failure that opened it, or None.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.cause: LLMError | None = None
        self._failed_requests: set[str] = set()
        self._failure_count = 0
        self._opened_at = self._open_until = self._last_success_at = float("-inf")

    @property
    def retry_in_seconds(self) -> float:
        """Seconds until the model may be called again. 0 if it may be called now."""
        return max(0.0, self._open_until - self.clock())

    def record_success(self) -> None:
        self._last_success_at = self.clock()
        self._failed_requests.clear()
        self.cause, self._failure_count, self._open_until = None, 0, float("-inf")

    def record_failure(self, error: LLMError, called_at: float, request: str = "") -> None:
        """Record the failure of a call. `request` identifies what was sent.

        Opens the circuit breaker if the error does not depend on the request, or after
        `REQUESTS_TO_OPEN` different requests. Failures of calls that had started before it opened
        count as one.
        """
        self._failed_requests.add(request)
        is_certain = isinstance(error, PROVIDER_ERRORS)
        if not is_certain and len(self._failed_requests) < REQUESTS_TO_OPEN:
            return
        now = self.clock()
        if called_at >= self._opened_at:
            self._failure_count += 1
            self._opened_at = now
        pause = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (self._failure_count - 1))
        requested_pause = min(MAX_REQUESTED_PAUSE_SECONDS, error.retry_after or 0.0)
        self._open_until = max(self._open_until, now + max(pause, requested_pause))
        self.cause = error

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
        breaker = self.circuit_breaker
        if breaker.retry_in_seconds:
            raise self._circuit_open()
        called_at = breaker.clock()
        try:
            reply = await self.inner.complete(request)
        except LLMOverBudget:
            raise  # there was no call to the provider
        except LLMError as error:
            if error.provider_fault:
                breaker.record_failure(error, called_at, request_hash(request))
                error.is_outage = breaker.is_provider_outage(error, called_at)
                error.pause_seconds = breaker.retry_in_seconds
            elif error.provider_status is not None or error.reply is not None:
                breaker.record_success()
            raise
        breaker.record_success()
        return reply

    def _circuit_open(self) -> LLMCircuitOpen:
        breaker = self.circuit_breaker
        cause = f" ({breaker.cause.code})" if breaker.cause else ""
        error = LLMCircuitOpen(
            f"{LLMCircuitOpen.__doc__}{cause}", retry_after=breaker.retry_in_seconds
        )
        error.is_outage, error.pause_seconds = True, breaker.retry_in_seconds
        return error
