"""Tries again what may go better the next time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import structlog

from apps.memory_api.llm.errors import LLMError
from apps.memory_api.llm.port import LLM, LLMReply, LLMRequest, Wrapper

FOREGROUND_ATTEMPTS = 3
WORKER_ATTEMPTS = 1
BASE_DELAY = 2.0
MAX_DELAY = 30.0

log = structlog.get_logger(__name__)


class Retry(Wrapper):
    """At most `attempts` calls. Between them it waits a random time up to 2 s, 4 s, 8 s… (full
    jitter), at least what the provider asked for, and never more than `max_delay` seconds."""

    def __init__(
        self,
        inner: LLM,
        *,
        attempts: int = FOREGROUND_ATTEMPTS,
        base_delay: float = BASE_DELAY,
        max_delay: float = MAX_DELAY,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        super().__init__(inner)
        if attempts < 1:
            raise ValueError("attempts must be at least 1")
        self._attempts = attempts
        self._base = base_delay
        self._max = max_delay
        self._sleep = sleep
        self._uniform = uniform

    async def complete(self, request: LLMRequest) -> LLMReply:
        failed = 0
        while True:
            try:
                return await self.inner.complete(request)
            except LLMError as error:
                failed += 1
                if not error.retryable or failed >= self._attempts:
                    raise
                delay = self._delay(failed, error.retry_after)
                log.warning(
                    "llm_retry",
                    code=error.code,
                    attempt=failed,
                    delay=delay,
                    purpose=request.purpose,
                )
            await self._sleep(delay)

    def _delay(self, failed: int, asked: float | None) -> float:
        jittered = self._uniform(0, self._base * 2 ** (failed - 1))
        return min(self._max, max(jittered, asked or 0))
