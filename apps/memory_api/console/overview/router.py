"""The first page of the console."""

from __future__ import annotations

from fastapi import APIRouter, Response

from memory_api.api.deps import Reader, RuntimeDep, Session
from memory_api.console.charts import Chart, Series, draw_chart
from memory_api.console.days import mondays
from memory_api.console.overview.summary import OverviewData, load_overview
from memory_api.console.pages import ConsoleRoute, CurrentVisit
from memory_api.console.rendering import (
    format_share,
    format_short_day,
    render_page,
)
from memory_api.console.visit import Visit

router = APIRouter(prefix="/console", route_class=ConsoleRoute, include_in_schema=False)


@router.get("")
@router.get("/")
async def show_overview(
    visit: CurrentVisit, session: Session, caller: Reader, runtime: RuntimeDep
) -> Response:
    if not visit.later:
        return render_page(visit, "overview.html")
    share = runtime.settings.advice_holdout_share
    data = await load_overview(session, visit.project, share)
    return render_page(
        visit,
        "overview.html",
        data=data,
        has_model=runtime.llm is not None,
        improvement=data.improvement,
        success=_success_chart(visit, data),
    )


def _success_chart(visit: Visit, data: OverviewData) -> Chart:
    _ = visit.translation.gettext
    rows = {row["week"]: row for row in data.improvement.weeks}
    weeks = mondays(min(rows)) if rows else []
    sides = [(_("With advice"), "with_rate"), (_("Without advice"), "without_rate")]
    if not any(row[name] is not None for row in rows.values() for _text, name in sides):
        sides = [(_("Success"), "rate")]
    return draw_chart(
        "bar",
        _("Share of successful agent runs by week"),
        [format_short_day(week, visit.translation) for week in weeks],
        [Series(text, [rows.get(week, {}).get(name) for week in weeks]) for text, name in sides],
        format=format_share,
        summary=_("By week, from its Monday. A week without such runs has no bar."),
    )
