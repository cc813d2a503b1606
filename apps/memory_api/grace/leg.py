"""What one `run` of the kind `agent` works with, and the rows of an agent run and its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.grace import queries
from memory_api.grace.agent_model import AgentModel, RunUsage
from memory_api.grace.config import GraceConfig, ThresholdSection
from memory_api.grace.corrections import Correction
from memory_api.grace.execution_plan import (
    ExecutionPlan,
    ExecutionState,
    PlanStep,
    PlanStepResult,
)
from memory_api.grace.outcome import finish_agent_run
from memory_api.grace.tables import AgentRunRow, AgentStepRow
from memory_api.grace.tools.port import Tool
from memory_api.runs.execution import SaveInTransaction
from memory_api.runs.lifecycle import LeaseLost
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime


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
    """The rows as this leg has written them last, to decide what comes next; None: read them. Each
    change locks and reads them again.
    """
    started: Sequence[PlanStep] = ()
    """Steps that the last transaction has marked as running, and that are to be executed now."""
    has_ended: bool = False
    """Whether the last transaction has ended the agent run and finished `run`."""
    save_run: SaveInTransaction | None = None
    """Finishes `run`; see `Step.commit`."""

    async def lock(self, session: AsyncSession) -> AgentRunRow:
        """The agent run, locked. Raises `LeaseLost` if another run or worker has it."""
        self.known = None
        agent_run = await queries.get_locked_agent_run(session, self.agent_run_id, self.run)
        if agent_run is None:
            raise LeaseLost
        self.count_usage(agent_run)
        return agent_run

    def count_usage(self, agent_run: AgentRunRow) -> None:
        """Add what the model of this leg has used."""
        if self.model is not None:
            used: RunUsage = self.model.usage
            agent_run.token_count, agent_run.cost_usd = used.tokens, used.cost_usd

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
        """End the locked agent run after these events, and finish `run`."""
        await finish_agent_run(
            self.runtime, session, agent_run, self.config, status=status, error=error,
            temperature=self.temperature, silent_from=self.thresholds.silent, steps=steps,
            events=events,
        )  # fmt: skip
        assert self.save_run is not None, "set before the agent run goes on"
        await self.save_run(session)
        self.has_ended = True


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


def write_plan(
    agent_run: AgentRunRow, plan: ExecutionPlan, kept: Sequence[AgentStepRow]
) -> list[AgentStepRow]:
    """Make the rows of a plan under the next number, the kept ones with their results."""
    finished = {row.step_id: row for row in kept}
    agent_run.plan = plan.model_dump(mode="json")
    agent_run.plan_number += 1
    rows: list[AgentStepRow] = []
    for step in plan.steps:
        old = finished.get(step.step_id)
        rows.append(
            AgentStepRow(
                tenant_id=agent_run.tenant_id,
                agent_run_id=agent_run.id,
                plan_number=agent_run.plan_number,
                step_id=step.step_id,
                spec=step.model_dump(mode="json"),
                state=old.state if old is not None else "pending",
                attempt_count=old.attempt_count if old is not None else 0,
                result=old.result if old is not None else None,
                confidence=old.confidence if old is not None else None,
                started_at=old.started_at if old is not None else None,
                finished_at=old.finished_at if old is not None else None,
            )
        )
    return sorted(rows, key=lambda row: row.step_id)


def describe_plan(plan: ExecutionPlan) -> dict[str, Any]:
    """The data of the event of a new plan."""
    return {
        "plan_id": plan.plan_id,
        "complexity": plan.complexity,
        "engine": plan.engine,
        "cited_bullet_keys": plan.cited_bullet_keys,
        "steps": [
            {"step_id": step.step_id, "action": step.action, "description": step.description,
             "depends_on": step.depends_on}
            for step in plan.steps
        ],
    }  # fmt: skip
