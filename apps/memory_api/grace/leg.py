"""What one `run` of the kind `agent` works with, and the state of an agent run from its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.grace import queries
from apps.memory_api.grace.agent_model import AgentModel, RunUsage
from apps.memory_api.grace.config import GraceConfig, ThresholdSection
from apps.memory_api.grace.corrections import Correction
from apps.memory_api.grace.execution_plan import (
    ExecutionPlan,
    ExecutionState,
    PlanStep,
    PlanStepResult,
)
from apps.memory_api.grace.outcome import finish_agent_run
from apps.memory_api.grace.tables import AgentRunRow, AgentStepRow
from apps.memory_api.grace.tools.port import Tool
from apps.memory_api.runs.lifecycle import LeaseLost, StepResult, finish_run
from apps.memory_api.runs.tables import RunRow
from apps.memory_api.runtime import Runtime


@dataclass(frozen=True)
class KnownRows:
    """An agent run and the steps of its plan, as of the last transaction of a leg."""

    agent_run: AgentRunRow
    steps: Sequence[AgentStepRow]


@dataclass
class Leg:
    """What one `run` of the kind `agent` works with."""

    runtime: Runtime
    run: RunRow
    agent_run_id: UUID
    config: GraceConfig
    tools: Mapping[str, Tool]
    thresholds: ThresholdSection
    temperature: float
    model: AgentModel | None = None
    bullets: str = ""
    bullet_keys: Sequence[str] = field(default_factory=tuple[str, ...])
    corrections: Sequence[Correction] = ()
    """Those of the bullets that correct a question."""
    known: KnownRows | None = None
    """The rows as this leg has written them last; None if they have to be read."""
    started: Sequence[PlanStep] = ()
    """Steps that the last transaction has marked as running, and that are to be executed now."""
    has_ended: bool = False
    """Whether the last transaction has ended the agent run and finished `run`."""

    async def lock(self, session: AsyncSession) -> AgentRunRow:
        """The agent run, locked. Raises `LeaseLost` if another run or worker has it."""
        self.known = None
        agent_run = await queries.lock_held_agent_run(session, self.agent_run_id, self.run)
        if agent_run is None:
            raise LeaseLost
        if self.model is not None:
            used: RunUsage = self.model.usage
            agent_run.token_count, agent_run.cost_usd = used.tokens, used.cost_usd
        return agent_run

    async def end(
        self,
        session: AsyncSession,
        agent_run: AgentRunRow,
        *,
        status: str | None = None,
        error: str | None = None,
        steps: Sequence[AgentStepRow] | None = None,
        events: Sequence[queries.AgentEventData] = (),
    ) -> None:
        """End the locked agent run after these events, and finish `run`. `steps` are the rows of
        the plan, if they are known.
        """
        await finish_agent_run(
            self.runtime, session, agent_run, self.config, status=status, error=error,
            temperature=self.temperature, silent_from=self.thresholds.silent, steps=steps,
            events=events,
        )  # fmt: skip
        await self.finish(session)
        self.has_ended = True

    async def finish(self, session: AsyncSession) -> None:
        usage = self.model.llm.usage() if self.model is not None else None
        data = {"agent_run_id": str(self.agent_run_id)}
        await finish_run(session, self.run, StepResult(data=data, usage=usage))


def read_state(agent_run: AgentRunRow, steps: Sequence[AgentStepRow]) -> ExecutionState:
    """The state of a run from its rows."""
    plan = ExecutionPlan.model_validate(agent_run.plan)
    current = [PlanStep.model_validate(row.spec) for row in steps]
    state = ExecutionState(plan.model_copy(update={"steps": current}))
    for row in steps:
        state.states[row.step_id] = row.state  # pyright: ignore[reportArgumentType]
        state.started[row.step_id] = row.attempt_count
        if row.result is not None:
            state.results[row.step_id] = PlanStepResult.model_validate(row.result)
    return state
