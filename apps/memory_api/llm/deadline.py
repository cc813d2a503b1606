"""The deadline of a request that a client waits for. All model calls of the request, with their
retries, pauses and corrections, end before it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from memory_api.llm.errors import LLMDeadlineExceeded
from memory_api.llm.port import LLMReply, LLMRequest, LLMWrapper

_deadline: ContextVar[float | None] = ContextVar("llm_deadline", default=None)

MAX_WAIT_SECONDS = 3600
SAVING_SHARE = 0.1
"""Share of the waiting time that is reserved for storing the result."""
MAX_SAVING_SECONDS = 2.0
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,6})\"?\s*(?=$|[,;])", re.IGNORECASE)


def parse_wait(prefer: str, default: float) -> float:
    """Seconds that the client waits, from `wait=N` of a `Prefer` header (RFC 7240), at most
    `MAX_WAIT_SECONDS`. `default` without it.
    """
    match = _WAIT.search(prefer)
    return default if match is None else float(min(max(int(match[1]), 1), MAX_WAIT_SECONDS))


@contextmanager
def llm_deadline(wait_seconds: float) -> Generator[None]:
    """Let all model calls in this block end in time for an answer after `wait_seconds`."""
    saving = min(MAX_SAVING_SECONDS, wait_seconds * SAVING_SHARE)
    token = _deadline.set(time.monotonic() + wait_seconds - saving)
    try:
        yield
    finally:
        _deadline.reset(token)


def remaining_seconds() -> float | None:
    """Seconds until the deadline, at least 0. None without a deadline."""
    deadline = _deadline.get()
    return None if deadline is None else max(0.0, deadline - time.monotonic())


class DeadlineLLM(LLMWrapper):
    """Raises `LLMDeadlineExceeded` at the deadline, also while a call waits for a free slot or
    for a retry. Without a deadline, it does nothing.
    """

    async def complete(self, request: LLMRequest) -> LLMReply:
        remaining = remaining_seconds()
        if remaining is None:
            return await self.inner.complete(request)
        deadline = asyncio.timeout(remaining)
        try:
            async with deadline:
                return await self.inner.complete(request)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise LLMDeadlineExceeded(
                "The model did not answer within the time of this request. Send `Prefer: wait=N`"
                " with more seconds, or `Prefer: respond-async`."
            ) from error
