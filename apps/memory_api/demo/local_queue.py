"""The queue of the demo, which executes the runs of this process itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.errors import HanseiError
from memory_api.run_queue.port import Ticket
from memory_api.runs.chain import CURATE, next_run_id
from memory_api.runs.queries import get_run
from memory_api.runtime import Runtime
from memory_api.worker import RUN_STEPS, Steps, process_ticket


class DemoFailed(HanseiError):
    """A run of the demo failed."""


@dataclass
class LocalQueue:
    """The tickets of this process. No worker of the service sees them."""

    tickets: deque[Ticket] = field(default_factory=deque[Ticket])
    curations: deque[Ticket] = field(default_factory=deque[Ticket])
    """Those of curations wait until the day on which the playbook is curated."""

    async def enqueue(
        self, session: AsyncSession, tickets: Sequence[Ticket], *, after: timedelta | None = None
    ) -> None:
        for ticket in tickets:
            run = await get_run(session, ticket.run_id)
            is_curation = run is not None and run.kind == CURATE
            (self.curations if is_curation else self.tickets).append(ticket)

    async def get_remaining_capacity(self, session: AsyncSession) -> int:
        return 1_000_000

    async def admit(self, session: AsyncSession, count: int = 1) -> None:
        """Always: the demo is small."""

    async def consume(self, *_args: object, **_options: object) -> None:
        raise NotImplementedError("The demo executes its runs itself.")

    async def process(self, runtime: Runtime, steps: Steps = RUN_STEPS) -> None:
        """Execute all runs except curations, and those that follow from them."""
        while self.tickets:
            ticket = self.tickets.popleft()
            delay = await process_ticket(runtime, ticket, steps, may_continue=lambda: True)
            if delay is not None:
                raise DemoFailed(await _describe_failure(runtime, ticket))


async def _describe_failure(runtime: Runtime, ticket: Ticket) -> str:
    """Why the run of a ticket, or one that follows it, would be tried again."""
    async with runtime.sessions.for_tenant(ticket.tenant_id) as session:
        run = await get_run(session, ticket.run_id)
        while run is not None and (run_id := next_run_id(run)) is not None:
            run = await get_run(session, run_id)
    assert run is not None, "the demo deletes no run"
    return f"The {run.kind} run {run.id} of the demo failed: {run.error}"
