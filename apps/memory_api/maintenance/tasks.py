"""The maintenance tasks: what runs on a schedule, and what `POST /maintenance/{task}` and
`hansei maintain TASK` start on demand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.errors import Conflict
from memory_api.core.settings import Settings
from memory_api.maintenance import pruning, relations, session_summaries
from memory_api.maintenance.dreaming.step import DREAMING, DreamStep
from memory_api.maintenance.index_density import rebuild_sparse_index
from memory_api.maintenance.retention.expiry import HAS_MORE, delete_by_policy
from memory_api.maintenance.vector_indexes import sync_vector_indexes
from memory_api.runs import lifecycle
from memory_api.runs.chain import enqueue_runs
from memory_api.runs.execution import Step
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

MAINTENANCE = "maintenance"
"""The kind of run of all tasks but upkeep."""
TASK = "task"
"""Input of MAINTENANCE: the name of the task. Other inputs are its options."""

PERIODS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}
MONDAY = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class MaintenanceTask:
    """One task. `offset` is the time of day (UTC) at which a period starts, so that tasks that use
    each other's results run in order. `reflects` tasks produce reflections: mode `lite` never
    starts them on a schedule.
    """

    name: str
    step: Step[Any, Any, StepResult]
    period: Literal["hour", "day", "week"]
    offset: timedelta = field(default=timedelta())
    reflects: bool = False

    def period_start(self, now: datetime) -> datetime:
        """The start of the period that `now` is in. Weeks start on Monday."""
        length = PERIODS[self.period]
        first = MONDAY + self.offset
        return first + (now - first) // length * length

    def new_run(
        self,
        session: AsyncSession,
        *,
        run_id: UUID | None = None,
        options: dict[str, Any] | None = None,
    ) -> RunRow:
        """Add a run of the task to the session. It is not in the queue yet."""
        return lifecycle.new_run(
            session,
            MAINTENANCE,
            project_id="default",
            input={TASK: self.name, **(options or {})},
            run_id=run_id,
        )


async def sync_indexes(runtime: Runtime, run: RunRow) -> StepResult:
    """Creates and drops the vector indexes of the tenant, and rebuilds the index of all vectors if
    it is sparse. Needs HANSEI_OWNER_URL.
    """
    owner_url = runtime.settings.owner_url
    changes = await sync_vector_indexes(runtime.sessions, owner_url, run.tenant_id)
    rebuilt = await rebuild_sparse_index(runtime.sessions, owner_url)
    return StepResult(data={**changes, "rebuilt": rebuilt, "has_owner": owner_url is not None})


class BatchStep(Step[None, StepResult, StepResult]):
    """A task that works batch by batch, each in a transaction of its own."""

    kind = MAINTENANCE

    def __init__(self, work: Callable[[Runtime, RunRow], Awaitable[StepResult]]) -> None:
        self._work = work

    async def load(self, session: AsyncSession, run: RunRow) -> None: ...

    async def compute(self, runtime: Runtime, run: RunRow, input: None) -> StepResult:
        return await self._work(runtime, run)

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: StepResult
    ) -> StepResult:
        return output


_SUMMARIES = BatchStep(session_summaries.summarize_sessions)
_TASKS = (
    MaintenanceTask("indexes", BatchStep(sync_indexes), "hour"),
    MaintenanceTask("retention", BatchStep(delete_by_policy), "day", timedelta(hours=1)),
    MaintenanceTask(session_summaries.SUMMARIES, _SUMMARIES, "hour", reflects=True),
    MaintenanceTask(DREAMING, DreamStep(), "day", timedelta(hours=3), reflects=True),
    MaintenanceTask(
        relations.ENTITIES, BatchStep(relations.link_entities), "day", timedelta(hours=5)
    ),
    MaintenanceTask(
        relations.CLUSTERS, BatchStep(relations.join_clusters), "day", timedelta(hours=5)
    ),
    MaintenanceTask(pruning.PRUNING, BatchStep(pruning.prune_memories), "week", timedelta(hours=4)),
)
TASKS = {task.name: task for task in _TASKS}


def scheduled_tasks(settings: Settings) -> Sequence[MaintenanceTask]:
    """The tasks that run on a schedule with these settings."""
    is_periodic = settings.reflective_memory_enabled and settings.reflective_memory_mode == "full"
    return [task for task in TASKS.values() if is_periodic or not task.reflects]


def require_allowed(task: MaintenanceTask, settings: Settings) -> None:
    """Raises `Conflict` for dreaming in mode `lite` and for all reflections if they are off."""
    if task.reflects and not settings.reflective_memory_enabled:
        raise Conflict(f"`{task.name}` needs HANSEI_REFLECTIVE_MEMORY_ENABLED=true.")
    if task.name == DREAMING and settings.reflective_memory_mode == "lite":
        raise Conflict("`dreaming` needs HANSEI_REFLECTIVE_MEMORY_MODE=full.")


class MaintenanceStep(Step[Any, Any, StepResult]):
    """Executes a run of a task. Queues another one if the task has more to do."""

    kind = MAINTENANCE
    can_resume = True

    async def load(self, session: AsyncSession, run: RunRow) -> Any:
        return await _task_of(run).step.load(session, run)

    async def compute(self, runtime: Runtime, run: RunRow, input: Any) -> Any:
        return await _task_of(run).step.compute(runtime, run, input)

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: Any
    ) -> StepResult:
        task = _task_of(run)
        result = await task.step.save(runtime, session, run, output)
        if result.data.get(HAS_MORE):
            await enqueue_runs(runtime.queue, session, task.new_run(session))
        return result


def _task_of(run: RunRow) -> MaintenanceTask:
    task = TASKS.get(str(run.input.get(TASK)))
    if task is None:
        raise lifecycle.UnknownRunKind(f"{MAINTENANCE}/{run.input.get(TASK)}")
    return task
