"""How many calls of a model a process has under way at once. Runs are cheap and may be more: while
some wait for an answer, others read and write.
"""

from __future__ import annotations

import asyncio

from apps.memory_api.llm.port import LLM, LLMReply, LLMRequest, Wrapper


class Slotted(Wrapper):
    """Stands before everything else: a call waits for its turn, first come first served, and only
    then asks whether the provider may be asked at all. No timeout counts the waiting.
    """

    def __init__(self, inner: LLM, slots: int) -> None:
        super().__init__(inner)
        self._slots = asyncio.Semaphore(slots)

    async def complete(self, request: LLMRequest) -> LLMReply:
        async with self._slots:
            return await self.inner.complete(request)
