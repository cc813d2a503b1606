"""While a provider fails, it is left alone: for as long as it asked, else from one second up to
five minutes.

One `Gate` a process. Every other process meets the failure itself, which costs it one call.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from apps.memory_api.llm.errors import (
    LLMAuth,
    LLMError,
    LLMOverBudget,
    LLMPaused,
    LLMQuota,
    LLMRateLimited,
)
from apps.memory_api.llm.port import LLM, LLMReply, LLMRequest, Wrapper

FIRST = 1.0
LONGEST = 300.0
LONGEST_ASKED = 3600.0
"""The most that a provider's own `retry-after` counts for, in seconds."""

NEVER_THE_WORK = (LLMPaused, LLMRateLimited, LLMQuota, LLMAuth)
"""Failures that say nothing about the request that met them."""


class Gate:
    """Open while the provider answers. `clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.cause: LLMError | None = None
        self._failures = 0
        self._closed_at = self._until = self._answered_at = float("-inf")

    @property
    def wait(self) -> float:
        """Seconds until the provider may be asked again; 0 when it may."""
        return max(0.0, self._until - self.clock())

    def answered(self) -> None:
        """The provider is there."""
        self._answered_at = self.clock()
        self.cause, self._failures, self._until = None, 0, float("-inf")

    def failed(self, error: LLMError, asked_at: float) -> None:
        """The provider failed. Calls that were under way when the gate closed count as one."""
        now = self.clock()
        if asked_at >= self._closed_at:
            self._failures += 1
            self._closed_at = now
        pause = min(LONGEST, FIRST * 2 ** (self._failures - 1))
        asked = min(LONGEST_ASKED, error.retry_after or 0.0)
        self._until = max(self._until, now + max(pause, asked))
        self.cause = error

    def excuses(self, error: LLMError, since: float) -> bool:
        """Whether work that failed with this error would have failed whatever it was: the provider
        turned everybody away, or has answered nobody since the work began.
        """
        if not error.provider_fault:
            return False
        return isinstance(error, NEVER_THE_WORK) or self._answered_at < since


class Gated(Wrapper):
    """Stands before everything else: raises `LLMPaused` instead of asking while the gate is
    closed.
    """

    def __init__(self, inner: LLM, gate: Gate) -> None:
        super().__init__(inner)
        self.gate = gate

    async def complete(self, request: LLMRequest) -> LLMReply:
        gate = self.gate
        if gate.wait:
            why = f" ({gate.cause.code})" if gate.cause else ""
            raise LLMPaused(f"{LLMPaused.__doc__}{why}", retry_after=gate.wait)
        asked_at = gate.clock()
        try:
            reply = await self.inner.complete(request)
        except LLMOverBudget:
            raise  # nobody was asked
        except LLMError as error:
            if error.provider_fault:
                gate.failed(error, asked_at)
            else:
                gate.answered()
            raise
        gate.answered()
        return reply
