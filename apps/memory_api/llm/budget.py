"""Reserves what a call may cost before it is made, and settles what it did cost once it is over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol
from uuid import UUID

from apps.memory_api.llm.errors import LLMTimeout
from apps.memory_api.llm.fencing import estimate_tokens
from apps.memory_api.llm.port import LLM, LLMReply, LLMRequest, Usage, Wrapper
from apps.memory_api.llm.prices import price

_PER_MESSAGE = 4  # tokens a provider adds for a message's frame


@dataclass(frozen=True, slots=True)
class Estimate:
    """The most a call may use. `usd` is None when the price is unknown; the budget decides what
    that means."""

    provider: str
    model: str
    purpose: str
    tenant_id: UUID | None
    run_id: UUID | None
    usage: Usage
    usd: Decimal | None


class Budget(Protocol):
    async def reserve(self, estimate: Estimate) -> UUID:
        """Set that much aside. Raises the budget's own error when it does not fit; nothing is then
        called."""
        ...

    async def settle(self, reservation: UUID, usage: Usage, usd: Decimal | None) -> None:
        """Replace the reservation by what was used. Called exactly once per reservation."""
        ...


class Budgeted(Wrapper):
    """The budget's wrapper.

    A call that timed out or was cancelled may have been charged for what was sent, so its input is
    settled; a provider that answered with an error, or was not reached, charges nothing.
    """

    def __init__(self, inner: LLM, budget: Budget) -> None:
        super().__init__(inner)
        self._budget = budget

    async def complete(self, request: LLMRequest) -> LLMReply:
        asked = estimate(request)
        reservation = await self._budget.reserve(
            Estimate(
                provider=self.provider,
                model=self.model,
                purpose=request.purpose,
                tenant_id=request.tenant_id,
                run_id=request.run_id,
                usage=asked,
                usd=self._price(asked, self.model),
            )
        )
        used, model = Usage(), self.model
        try:
            reply = await self.inner.complete(request)
            used, model = reply.usage, reply.model
            return reply
        except (LLMTimeout, asyncio.CancelledError):
            used = Usage(input_tokens=asked.input_tokens)
            raise
        finally:
            await self._budget.settle(reservation, used, self._price(used, model))

    def _price(self, usage: Usage, model: str) -> Decimal | None:
        return price(usage, provider=self.provider, model=model, endpoint=self.endpoint)


def estimate(request: LLMRequest) -> Usage:
    """Tokens a request may use: its text by estimate, its answer at the limit."""
    sent = sum(estimate_tokens(m.content) + _PER_MESSAGE for m in request.messages)
    if request.schema is not None:
        sent += estimate_tokens(str(request.schema.schema))
    return Usage(input_tokens=sent, output_tokens=request.max_tokens)
