"""What the first page shows: the last seven days, costs, and what waits for a person."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.analytics.queries import QuestionAnswer, load_answer
from apps.memory_api.analytics.questions import MAX_ROWS, Question, QuestionFilter
from apps.memory_api.grace.queries import list_agent_runs
from apps.memory_api.grace.tables import AgentRunRow
from apps.memory_api.playbooks.queries import ReviewCount, count_reviews
from apps.memory_api.runs.queries import list_runs
from apps.memory_api.runs.tables import RunRow

WEEK_DAYS = 7
COST_DAYS = 30
MAX_LISTED = 5


@dataclass(frozen=True)
class OverviewData:
    """Counts of the last `WEEK_DAYS` days by name, cost by day, and what waits for a person."""

    learned: Mapping[str, int]
    changed: Mapping[str, int]
    traces_by_day: Mapping[date, int]
    bullets_by_day: Mapping[date, int]
    cost_by_day: Mapping[date, float]
    harmful: Sequence[Mapping[str, Any]]
    playbooks: Sequence[ReviewCount]
    dead_runs: Sequence[RunRow]
    open_questions: Sequence[AgentRunRow]

    @property
    def week_cost(self) -> float:
        return sum(list(self.cost_by_day.values())[-WEEK_DAYS:])

    @property
    def needs_person(self) -> bool:
        reviews = any(p.quarantined_count or p.proposal_count for p in self.playbooks)
        return bool(reviews or self.dead_runs or self.open_questions)


async def load_overview(session: AsyncSession, project: str) -> OverviewData:
    now = datetime.now(UTC)
    week = _last_days(now, WEEK_DAYS)
    month = _last_days(now, COST_DAYS)
    flow = await load_answer(session, Question.FUNNEL, _filter(project, month[0], now))
    churn = await load_answer(session, Question.CHURN, _filter(project, week[0], now))
    costs = await load_answer(session, Question.COSTS, _filter(project, month[0], now))
    movers = await load_answer(session, Question.MOVERS, _filter(project, week[0], now))
    stages = _objects(flow)
    return OverviewData(
        learned=_sum_by([row for row in stages if row["day"] >= week[0]], "stage", "count"),
        changed=_column_sums(churn),
        traces_by_day=_by_day(stages, "traces", month),
        bullets_by_day=_by_day(stages, "bullets_created", month),
        cost_by_day=_fill(_sum_by(_objects(costs), "day", "cost_usd"), month),
        harmful=[r for r in _objects(movers) if r["net_count"] < 0][:MAX_LISTED],
        playbooks=await count_reviews(session, project),
        dead_runs=await list_runs(
            session, project_id=project, states=("dead",), cursor=None, limit=MAX_LISTED
        ),
        open_questions=await list_agent_runs(
            session, project_id=project, state="waiting", cursor=None, limit=MAX_LISTED
        ),
    )


def _last_days(now: datetime, count: int) -> list[date]:
    return [now.date() - timedelta(days=number) for number in reversed(range(count))]


def _filter(project: str, first: date, now: datetime) -> QuestionFilter:
    since = datetime(first.year, first.month, first.day, tzinfo=UTC)
    return QuestionFilter(project=project, since=since, until=now, limit=MAX_ROWS)


def _objects(answer: QuestionAnswer) -> list[dict[str, Any]]:
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def _sum_by(rows: Sequence[Mapping[str, Any]], key: str, value: str) -> dict[Any, Any]:
    sums: dict[Any, Any] = defaultdict(int)
    for row in rows:
        sums[row[key]] += row[value] or 0
    return sums


def _column_sums(answer: QuestionAnswer) -> dict[str, int]:
    rows = _objects(answer)
    names = [name for name in answer.columns if name.endswith("_count")]
    return {name: sum(int(row[name] or 0) for row in rows) for name in names}


def _by_day(rows: Sequence[Mapping[str, Any]], stage: str, days: Sequence[date]) -> dict[date, int]:
    return _fill(_sum_by([row for row in rows if row["stage"] == stage], "day", "count"), days)


def _fill(sums: Mapping[date, Any], days: Sequence[date]) -> dict[date, Any]:
    """A value for each day, 0 where there is none."""
    return {day: float(sums.get(day, 0)) for day in days}
