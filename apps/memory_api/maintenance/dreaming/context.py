"""What dreaming reads of a project: its episodes with the errors and events of their traces, the
outcomes of all its traces, and what dreaming stated earlier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id, transaction_time
from memory_api.core.errors import InvalidRequest
from memory_api.core.statements import fetch_column, fetch_rows, load_statement
from memory_api.maintenance.episodes import Episode, telling_events
from memory_api.maintenance.schemas import MAX_CHOSEN_TRACES
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.queries import load_attempt_events
from memory_api.traces.schemas import ErrorInfo, Event

ACTOR = "engine:dreaming"
MIN_EPISODES = 3
MIN_CHOSEN_TRACES = 2
TRACE_IDS, SESSION_IDS = "trace_ids", "session_ids"
"""Keys of the run's input: the traces to dream about, and the sessions that the request named."""
MAX_STATEMENTS = 20
"""Earlier statements that a model may replace: the newest."""
TRACE_OUTCOMES = load_statement("maintenance/maintenance.sql", "trace_outcomes")
CHOSEN_TRACES = load_statement("maintenance/maintenance.sql", "chosen_traces")
CHOSEN_EPISODES = load_statement("maintenance/maintenance.sql", "chosen_episodes")
RECENT_EPISODES = load_statement("maintenance/maintenance.sql", "recent_episodes")
RECENT_PROJECTS = load_statement("maintenance/maintenance.sql", "recent_projects")
DREAMED_STATEMENTS = load_statement("maintenance/maintenance.sql", "dreamed_statements")


@dataclass(frozen=True)
class OutcomeCounts:
    """The outcomes of all traces of a project that were stored in a period, or of named traces.
    `condition` selects them in SQL.
    """

    selection: str
    condition: str
    outcomes: Mapping[str, int]

    @classmethod
    def of_period(
        cls, project_id: str, since: datetime, until: datetime, outcomes: Mapping[str, int]
    ) -> OutcomeCounts:
        project = project_id.replace("'", "''")
        return cls(
            f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC",
            f"project_id = '{project}' and created_at >= '{since.isoformat()}'"
            f" and created_at < '{until.isoformat()}'",
            outcomes,
        )

    @classmethod
    def of_traces(cls, outcomes_by_trace: Mapping[UUID, str]) -> OutcomeCounts:
        ids = ", ".join(f"'{trace_id}'" for trace_id in outcomes_by_trace)
        counts = dict(sorted(Counter(outcomes_by_trace.values()).items()))
        return cls("chosen by the request", f"id in ({ids})", counts)

    @property
    def trace_count(self) -> int:
        return sum(self.outcomes.values())

    @property
    def query(self) -> str:
        """The statement that gives these counts to a login of the tenant."""
        return f"select outcome, count(*) from traces where {self.condition} group by outcome"

    def to_text(self) -> str:
        parts = [f"{count} {outcome}" for outcome, count in self.outcomes.items()]
        return f"{self.trace_count} traces, {self.selection}: {', '.join(parts) or 'none'}."

    def to_json(self) -> dict[str, Any]:
        return {
            "traces": self.trace_count,
            "outcomes": dict(self.outcomes),
            "selection": self.selection,
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


async def choose_traces(
    session: AsyncSession, trace_ids: Collection[UUID], session_ids: Collection[str]
) -> list[UUID]:
    """The traces with these IDs and of these sessions, the oldest first. Raises `InvalidRequest`
    for unknown and open ones, for more than `MAX_CHOSEN_TRACES`, and if no project has two.
    """
    rows = await _find_traces(session, trace_ids, session_ids)
    if len(rows) > MAX_CHOSEN_TRACES:
        raise InvalidRequest(
            f"Dreaming reads at most {MAX_CHOSEN_TRACES} chosen traces; these are more.",
            field="session_ids" if session_ids else "trace_ids",
        )
    found, sessions = {row.id for row in rows}, {row.session_id for row in rows}
    if unknown := [str(each) for each in trace_ids if each not in found]:
        raise InvalidRequest(f"No closed trace: {', '.join(unknown)}.", field="trace_ids")
    if missing := [each for each in session_ids if each not in sessions]:
        raise InvalidRequest(
            f"No closed trace of a session: {', '.join(missing)}.", field="session_ids"
        )
    if max(Counter(row.project_id for row in rows).values()) < MIN_CHOSEN_TRACES:
        raise InvalidRequest(
            "Dreaming compares traces of one project. Name at least two.",
            field="session_ids" if session_ids else "trace_ids",
        )
    return [row.id for row in rows]


async def _find_traces(
    session: AsyncSession, trace_ids: Collection[UUID], session_ids: Collection[str]
) -> Sequence[Any]:
    parameters = {
        "tenant": current_tenant_id(session),
        "trace_ids": list(trace_ids),
        "session_ids": list(session_ids),
        "limit": MAX_CHOSEN_TRACES + 1,
    }
    return await fetch_rows(session, CHOSEN_TRACES, parameters)


async def load_projects(runtime: Runtime, run: RunRow) -> list[ProjectInput]:
    """The projects of the traces that the run names, or those of the tenant with at least three
    recent episodes.
    """
    chosen = [UUID(text) for text in run.input.get(TRACE_IDS, ())]
    if chosen:
        return await _load_chosen(runtime, run, chosen)
    lookback = timedelta(hours=runtime.settings.dreaming_lookback_hours)
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        until = await transaction_time(session)
        parameters = {"tenant": run.tenant_id, "since": until - lookback, "until": until}
        projects = await fetch_column(session, RECENT_PROJECTS, parameters)
    inputs: list[ProjectInput] = []
    for project in projects:
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            loaded = await _load_project(runtime, session, parameters | {"project": project})
        inputs += [loaded] if len(loaded.episodes) >= MIN_EPISODES else []
    return inputs


async def _load_chosen(
    runtime: Runtime, run: RunRow, trace_ids: Sequence[UUID]
) -> list[ProjectInput]:
    """Without earlier statements: a selection refutes nothing about all traces."""
    inputs: list[ProjectInput] = []
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        outcomes: dict[str, dict[UUID, str]] = {}
        for row in await _find_traces(session, trace_ids, ()):
            outcomes.setdefault(row.project_id, {})[row.id] = row.outcome
        for project, of_project in outcomes.items():
            if len(of_project) < MIN_CHOSEN_TRACES:
                continue
            parameters = {"tenant": run.tenant_id, "trace_ids": list(of_project)}
            rows = await fetch_rows(session, CHOSEN_EPISODES, parameters)
            episodes = await _to_episodes(session, rows)
            counts = OutcomeCounts.of_traces(of_project)
            inputs.append(ProjectInput(project, counts, episodes, ()))
    return inputs


async def _load_project(
    runtime: Runtime, session: AsyncSession, parameters: dict[str, Any]
) -> ProjectInput:
    settings = runtime.settings
    limits = {
        "min_importance": settings.dreaming_min_importance,
        "limit": settings.dreaming_max_samples,
    }
    rows = await fetch_rows(session, RECENT_EPISODES, parameters | limits)
    episodes = await _to_episodes(session, rows)
    outcomes = await fetch_rows(session, TRACE_OUTCOMES, parameters)
    counts = OutcomeCounts.of_period(
        parameters["project"],
        parameters["since"],
        parameters["until"],
        {row.outcome: row.trace_count for row in outcomes},
    )
    limits = {"actor": ACTOR, "limit": MAX_STATEMENTS}
    earlier = await fetch_rows(session, DREAMED_STATEMENTS, parameters | limits)
    statements = [EarlierStatement(row.id, row.content) for row in earlier]
    return ProjectInput(parameters["project"], counts, episodes, statements)


async def _to_episodes(session: AsyncSession, rows: Sequence[Any]) -> list[Episode]:
    events: dict[UUID, list[Event]] = {}
    for trace_id in {row.trace_id for row in rows if row.trace_id}:  # one at a time is in memory
        found = await load_attempt_events(session, [trace_id])
        events[trace_id] = telling_events(found.get(trace_id, []))
    return [
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
