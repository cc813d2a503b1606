"""An accounting of model calls that keeps its books in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from uuid import UUID, uuid4

from memory_api.budgets.accounting import FinishedCall, ModelAccounting
from memory_api.budgets.ledger import LLMCallRecord
from memory_api.budgets.reservations import CostEstimate


class Broke(Exception):
    """The budget is spent."""


@dataclass
class MemoryAccounting(ModelAccounting):
    limit: Decimal = Decimal(10)
    reserved: list[CostEstimate] = field(default_factory=list)
    open: dict[UUID, CostEstimate] = field(default_factory=dict)
    finished: list[FinishedCall] = field(default_factory=list)

    async def reserve(self, estimate: CostEstimate) -> UUID:
        if (estimate.usd or 0) > self.limit:
            raise Broke
        key = uuid4()
        self.reserved.append(estimate)
        self.open[key] = estimate
        return key

    async def finish(self, call: FinishedCall) -> None:
        del self.open[call.reservation_id]
        self.finished.append(call)

    @property
    def attempts(self) -> list[LLMCallRecord]:
        return [call.record for call in self.finished]

    @property
    def usd(self) -> Decimal:
        """The sum of the known prices."""
        return sum((a.usd for a in self.attempts if a.usd is not None), Decimal(0))
