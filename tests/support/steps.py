"""A step that does something else before its work: it fails, waits or dies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.runs.execution import SaveInTransaction, Step
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.worker import RUN_STEPS

Interruption = Callable[[Runtime, RunRow], Awaitable[None]]


class InterruptedStep(Step[Any, Any, StepResult]):
    """The step of a kind, with an interruption between `load` and `compute`."""

    def __init__(self, kind: str, interruption: Interruption) -> None:
        self.kind, self._interrupt, self._step = kind, interruption, RUN_STEPS[kind]
        self.can_resume = self._step.can_resume

    async def load(self, session: AsyncSession, run: RunRow) -> Any:
        return await self._step.load(session, run)

    async def compute(self, runtime: Runtime, run: RunRow, input: Any) -> Any:
        await self._interrupt(runtime, run)
        return await self._step.compute(runtime, run, input)

    async def store(
        self, runtime: Runtime, run: RunRow, output: Any, save: SaveInTransaction
    ) -> None:
        await self._step.store(runtime, run, output, save)

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: Any
    ) -> StepResult:
        return await self._step.save(runtime, session, run, output)

    async def after_commit(self, runtime: Runtime, run: RunRow, result: StepResult) -> None:
        await self._step.after_commit(runtime, run, result)

    async def abandon(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, reason: str
    ) -> None:
        await self._step.abandon(runtime, session, run, reason)
