"""What the first page shows: the last seven days, costs, and what waits for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.analytics.improvement import (
    Improvement,
    PlaybookTrend,
    first_week,
    improvement_of,
    trends_of,
)
from memory_api.analytics.queries import QuestionAnswer, load_answer
from memory_api.analytics.questions import MAX_ROWS, Question, QuestionFilter
from memory_api.budgets.usage import UsageFilter, sum_usage
from memory_api.console.days import last_days, midnight
from memory_api.console.queries import (
    count_helpful_bullets,
    count_reflections,
    list_newest_bullets,
)
from memory_api.grace.queries import list_agent_runs
from memory_api.grace.tables import AgentRunRow
from memory_api.playbooks.queries import ReviewCount, count_reviews
from memory_api.runs.queries import list_runs, select_runs
from memory_api.runs.tables import RunRow
from memory_api.traces.queries import count_traces

WEEK_DAYS = 7
MAX_LISTED = 5
SHOWN_STATUSES = ("active", "quarantined")
EARLIER_DAYS = 56
"""Days before the last week with which the verdicts of the week are compared."""


@dataclass(frozen=True)
class HarmfulBullet:
    """A row of the question `movers`, and the share of helpful verdicts in the weeks before."""

    row: Mapping[str, Any]
    earlier_rate: float | None


@dataclass(frozen=True)
class OverviewData:
    """Whether agents get better, counts and the cost of the last `WEEK_DAYS` days, and what waits
    for a person.
    """

    week_start: date
    improvement: Improvement
    trends: Mapping[str, PlaybookTrend]
    trace_count: int
    reflection_count: int
    changed: Mapping[str, int]
    week_cost: float
    newest: Sequence[Any]
    harmful: Sequence[HarmfulBullet]
    unit_costs: Sequence[Mapping[str, Any]]
    helpful_count: int
    playbooks: Sequence[ReviewCount]
    dead_runs: Sequence[RunRow]
    open_questions: Sequence[AgentRunRow]

    @property
    def waiting_count(self) -> int:
        """What waits for a person: questions, proposals, quarantined bullets and dead runs."""
        reviews = sum(p.quarantined_count + p.proposal_count for p in self.playbooks)
        return reviews + len(self.dead_runs) + len(self.open_questions)

    @property
    def cost_per_bullet(self) -> float | None:
        """What a bullet in use has cost so far (question `unit_costs`). None without one."""
        cost = sum(float(row["cost_usd"]) for row in self.unit_costs)
        bullets = sum(row["bullet_count"] for row in self.unit_costs)
        return cost / bullets if bullets else None


async def load_trends(session: AsyncSession, project: str) -> dict[str, PlaybookTrend]:
    """Playbook → how its agent runs ended in the last 12 weeks."""
    now = datetime.now(UTC)
    answer = await load_answer(
        session, Question.IMPROVEMENT, _filter(project, first_week(now), now)
    )
    return trends_of(_objects(answer), now)


async def load_overview(
    session: AsyncSession, project: str, advice_holdout_share: float
) -> OverviewData:
    now = datetime.now(UTC)
    outcomes = await load_answer(
        session, Question.IMPROVEMENT, _filter(project, first_week(now), now)
    )
    first = last_days(WEEK_DAYS)[0]
    week = _filter(project, first, now)
    churn = await load_answer(session, Question.CHURN, week)
    costs = await sum_usage(session, ["day"], UsageFilter(midnight(first), project_id=project))
    return OverviewData(
        week_start=first,
        improvement=improvement_of(_objects(outcomes), advice_holdout_share),
        trends=trends_of(_objects(outcomes), now),
        trace_count=await count_traces(session, project, midnight(first)),
        reflection_count=await count_reflections(session, project, midnight(first)),
        changed=_column_sums(churn),
        week_cost=sum(float(row["cost_usd"] or 0) for row in costs),
        newest=await list_newest_bullets(session, project, MAX_LISTED),
        harmful=await _load_harmful(session, project, first, now),
        unit_costs=_objects(await load_answer(session, Question.UNIT_COSTS, week)),
        helpful_count=await count_helpful_bullets(session, project),
        playbooks=await count_reviews(session, project),
        dead_runs=await list_runs(
            session, select_runs(session, project_id=project, states=("dead",)), limit=MAX_LISTED
        ),
        open_questions=await list_agent_runs(
            session, project_id=project, state="waiting", cursor=None, limit=MAX_LISTED
        ),
    )


async def _load_harmful(
    session: AsyncSession, project: str, first: date, now: datetime
) -> list[HarmfulBullet]:
    """Bullets with more harmful than helpful verdicts since `first`, the most harmful first."""
    before = QuestionFilter(
        project, midnight(first - timedelta(days=EARLIER_DAYS)), midnight(first), limit=MAX_ROWS
    )
    moved = _objects(await load_answer(session, Question.MOVERS, _filter(project, first, now)))
    harmful = [row for row in moved if row["net_count"] < 0 and row["status"] in SHOWN_STATUSES]
    if not harmful:
        return []
    earlier = {
        (row["playbook"], row["key"]): row["helpful_rate"]
        for row in _objects(await load_answer(session, Question.MOVERS, before))
    }
    return [
        HarmfulBullet(row, earlier.get((row["playbook"], row["key"])))
        for row in harmful[:MAX_LISTED]
    ]


def _filter(project: str, first: date, now: datetime) -> QuestionFilter:
    return QuestionFilter(project=project, since=midnight(first), until=now, limit=MAX_ROWS)


def _objects(answer: QuestionAnswer) -> list[dict[str, Any]]:
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def _column_sums(answer: QuestionAnswer) -> dict[str, int]:
    rows = _objects(answer)
    names = [name for name in answer.columns if name.endswith("_count")]
    return {name: sum(int(row[name] or 0) for row in rows) for name in names}
