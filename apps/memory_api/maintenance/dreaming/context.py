"""What dreaming reads of a project: its episodes with the errors and events of their traces, the
outcomes of all its traces, and what dreaming stated earlier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import transaction_time
from memory_api.core.resources import load_sql
from memory_api.maintenance.episodes import Episode, telling_events
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.queries import load_attempt_events
from memory_api.traces.schemas import ErrorInfo, Event

ACTOR = "engine:dreaming"
MIN_EPISODES = 3
MAX_STATEMENTS = 20
"""Earlier statements that a model may replace: the newest."""
TRACE_OUTCOMES = load_sql("maintenance/maintenance.sql", "trace_outcomes")
RECENT_EPISODES = load_sql("maintenance/maintenance.sql", "recent_episodes")
RECENT_PROJECTS = load_sql("maintenance/maintenance.sql", "recent_projects")
DREAMED_STATEMENTS = load_sql("maintenance/maintenance.sql", "dreamed_statements")


@dataclass(frozen=True)
class OutcomeCounts:
    """The outcomes of all traces of a project that were stored in a period."""

    project_id: str
    since: datetime
    until: datetime
    outcomes: Mapping[str, int]

    @property
    def trace_count(self) -> int:
        return sum(self.outcomes.values())

    @property
    def query(self) -> str:
        """The statement that gives these counts to a login of the tenant."""
        project = self.project_id.replace("'", "''")
        return (
            f"select outcome, count(*) from traces where project_id = '{project}'"
            f" and created_at >= '{self.since.isoformat()}'"
            f" and created_at < '{self.until.isoformat()}' group by outcome"
        )

    def to_text(self) -> str:
        period = f"{self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M} UTC"
        parts = [f"{count} {outcome}" for outcome, count in self.outcomes.items()]
        return f"{self.trace_count} traces, {period}: {', '.join(parts) or 'none'}."

    def to_json(self) -> dict[str, Any]:
        return {
            "traces": self.trace_count,
            "outcomes": dict(self.outcomes),
            "since": self.since.isoformat(),
            "until": self.until.isoformat(),
            "query": self.query,
        }


@dataclass(frozen=True)
class EarlierStatement:
    """A reflection that dreaming stored earlier and nobody changed since."""

    id: UUID
    content: str


@dataclass(frozen=True)
class ProjectInput:
    """What there is to dream about in one project."""

    project_id: str
    counts: OutcomeCounts
    episodes: Sequence[Episode]
    statements: Sequence[EarlierStatement]


async def load_projects(runtime: Runtime, run: RunRow) -> list[ProjectInput]:
    """The projects of the tenant with at least three recent episodes."""
    lookback = timedelta(hours=runtime.settings.dreaming_lookback_hours)
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        until = await transaction_time(session)
        parameters = {"tenant": run.tenant_id, "since": until - lookback, "until": until}
        projects = (await session.scalars(RECENT_PROJECTS, parameters)).all()
    inputs: list[ProjectInput] = []
    for project in projects:
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            loaded = await _load_project(runtime, session, parameters | {"project": project})
        inputs += [loaded] if len(loaded.episodes) >= MIN_EPISODES else []
    return inputs


async def _load_project(
    runtime: Runtime, session: AsyncSession, parameters: dict[str, Any]
) -> ProjectInput:
    settings = runtime.settings
    limits = {
        "min_importance": settings.dreaming_min_importance,
        "limit": settings.dreaming_max_samples,
    }
    rows = (await session.execute(RECENT_EPISODES, parameters | limits)).all()
    events: dict[UUID, list[Event]] = {}
    for trace_id in {row.trace_id for row in rows if row.trace_id}:  # one at a time is in memory
        found = await load_attempt_events(session, [trace_id])
        events[trace_id] = telling_events(found.get(trace_id, []))
    episodes = [
        Episode(
            row.id,
            row.content,
            row.importance,
            row.outcome,
            row.trace_id,
            row.error_category,
            ErrorInfo.model_validate(row.error) if row.error else None,
            row.playbook,
            events.get(row.trace_id, ()),
        )
        for row in rows
    ]
    outcomes = await session.execute(TRACE_OUTCOMES, parameters)
    counts = OutcomeCounts(
        parameters["project"],
        parameters["since"],
        parameters["until"],
        {row.outcome: row.trace_count for row in outcomes},
    )
    earlier = await session.execute(
        DREAMED_STATEMENTS, parameters | {"actor": ACTOR, "limit": MAX_STATEMENTS}
    )
    statements = [EarlierStatement(row.id, row.content) for row in earlier]
    return ProjectInput(parameters["project"], counts, episodes, statements)
