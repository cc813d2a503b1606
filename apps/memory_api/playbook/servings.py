"""What was handed out, written off the read path: kept in memory, and written at most a second
later in one transaction per tenant.

A clean stop writes what is left. A process that is killed loses the servings of its last second,
and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

import structlog

from apps.memory_api.core.db import Sessions
from apps.memory_api.core.ids import new_id
from apps.memory_api.playbook.queries import add_servings

log = structlog.get_logger()

EVERY = 1.0
"""Seconds between two writes."""
BATCH = 500
"""Servings of one transaction."""
MOST = 20_000
"""Servings kept while the database is away; the oldest go first."""


@dataclass(frozen=True)
class Served:
    """One search or render. `memory_ids`, `keys` and `scores` are parallel."""

    tenant_id: UUID
    scope: int
    version: int
    kind: Literal["search", "render"]
    query: str
    memory_ids: Sequence[UUID]
    keys: Sequence[str]
    scores: Sequence[float]
    candidate: str | None = None
    """The bullet that was drawn by lot; `held_out` when it was left out for that."""
    held_out: bool = False
    render_id: UUID = field(default_factory=new_id)
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def row(self) -> dict[str, Any]:
        names = ("render_id", "scope", "version", "kind", "query", "created_at")
        row = {name: getattr(self, name) for name in (*names, "candidate", "held_out")}
        return row | {"keys": list(self.keys), "scores": list(self.scores)}


class ServingLog:
    """Servings of this process that are not written yet."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._waiting: list[Served] = []
        self._writing = asyncio.Lock()

    def add(self, served: Served) -> UUID:
        """Keep a serving to be written; never waits. Answers its render_id."""
        if len(self._waiting) >= MOST:
            lost = len(self._waiting) - MOST + 1
            del self._waiting[:lost]
            log.warning("servings_lost", many=lost)
        self._waiting.append(served)
        return served.render_id

    async def flush(self) -> None:
        """Write everything that waits. What cannot be written waits on, holds up no other tenant's,
        and its error is raised at the end.
        """
        async with self._writing:
            by_tenant: dict[UUID, list[Served]] = {}
            for served in self._waiting:
                by_tenant.setdefault(served.tenant_id, []).append(served)
            failed: Exception | None = None
            for tenant_id, mine in by_tenant.items():
                try:
                    await self._write(tenant_id, mine)
                except Exception as error:
                    failed = failed or error
            if failed is not None:
                raise failed

    async def _write(self, tenant_id: UUID, mine: Sequence[Served]) -> None:
        for start in range(0, len(mine), BATCH):
            batch = mine[start : start + BATCH]
            uses = Counter(memory for served in batch for memory in served.memory_ids)
            async with self._sessions.tenant(tenant_id) as session:
                await add_servings(session, [served.row() for served in batch], uses)
            written = {served.render_id for served in batch}
            self._waiting = [s for s in self._waiting if s.render_id not in written]

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[ServingLog]:
        """Writes in the background until the end, and then once more."""
        task = asyncio.create_task(self._run())
        try:
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            try:
                await self.flush()
            except Exception as error:  # the process ends: all that is left to do is to say so
                log.error("servings_lost", many=len(self._waiting), error=str(error))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.flush()
            except Exception as error:  # they wait on for the next round
                log.warning("servings_not_written", many=len(self._waiting), error=str(error))
