"""Reports of `hansei eval`: the list, and one report."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from hansei._model import Json
from hansei.evaluation.notes import find_gaps, find_notes
from hansei.evaluation.text_report import sections
from hansei.evaluation.wording import (
    MEMORIES,
    Translate,
    count_tasks,
    curve_line,
    first_pass_line,
    headline,
    percent,
    percent_range,
    plan_line,
    shown_direction,
)
from memory_api.api.deps import Reader, Session, Writer
from memory_api.console.charts import Chart, Series, draw_chart
from memory_api.console.pages import ConsoleRoute, CurrentVisit
from memory_api.console.paging import PlaceQuery
from memory_api.console.queries import count_in_project
from memory_api.console.rendering import format_share, render_page
from memory_api.console.translations import N_, Translation
from memory_api.evaluation_reports.router import (
    delete_evaluation_report,
    get_evaluation_report,
    list_evaluation_reports,
)
from memory_api.evaluation_reports.schemas import EvaluationReportPage
from memory_api.evaluation_reports.tables import EvaluationReportRow

router = APIRouter(prefix="/console/evaluations", route_class=ConsoleRoute, include_in_schema=False)

PAGE_SIZE = 20
MAX_TASK_IDS = 2_000


@router.get("")
async def show_evaluations(
    visit: CurrentVisit, session: Session, caller: Reader, place: PlaceQuery, done: str = ""
) -> Response:
    page = await list_evaluation_reports(session, caller, place.cursor, visit.project, PAGE_SIZE)
    total = await count_in_project(session, EvaluationReportRow, visit.project)
    translate = visit.translation.gettext
    return render_page(
        visit,
        "evaluations/list.html",
        page=page,
        headlines={item.id: headline(item.summary, translate) for item in page.items},
        newest=await _describe_newest(session, caller, page, translate) if place.is_first else "",
        arms=_explain_arms([item.summary for item in page.items], translate),
        gaps={item.id: _describe_gaps(item.summary, translate) for item in page.items},
        accuracies={item.id: _describe_accuracy(item.summary, translate) for item in page.items},
        paging=place.followed_by(page.next_cursor, total, PAGE_SIZE),
        done=done,
    )


@router.get("/{report_id}")
async def show_evaluation(
    report_id: UUID, visit: CurrentVisit, session: Session, caller: Reader
) -> Response:
    found = await get_evaluation_report(report_id, session, caller)
    report, translate = found.report, visit.translation.gettext
    return render_page(
        visit,
        "evaluations/report.html",
        found=found,
        findings=_describe_findings(report, translate),
        first_pass=first_pass_line(report, translate),
        notes=find_notes(report, translate),
        plan=plan_line(report, translate),
        arms=_explain_arms([report], translate),
        curve=_draw_curve(report, visit.translation),
        sections=sections(report, translate, max_ids=MAX_TASK_IDS, on_page=True),
    )


@router.post("/{report_id}/delete")
async def delete_evaluation(
    report_id: UUID, visit: CurrentVisit, session: Session, caller: Writer
) -> Response:
    await delete_evaluation_report(report_id, session, caller)
    return RedirectResponse(visit.link("evaluations", done="deleted"), 303)


async def _describe_newest(
    session: Session, caller: Reader, page: EvaluationReportPage, translate: Translate
) -> str:
    if not page.items:
        return ""
    report = (await get_evaluation_report(page.items[0].id, session, caller)).report
    text = N_("The newest report:")
    return f"{translate(text)} {_describe_findings(report, translate)}"


def _describe_findings(report: Json, translate: Translate) -> str:
    """What a report found, against no advice, earlier attempts in the prompt, and on controls."""
    sentences = [headline(report, translate)]
    for row in report["comparisons"]:
        if (row["first"], row["second"]) == ("hansei", "none"):
            text = N_("Tasks that changed with advice: %(better)s better, %(worse)s worse.")
            sentences.append(translate(text) % {"better": row["better"], "worse": row["worse"]})
        if (row["first"], row["second"]) == ("hansei", "icl"):
            text = N_("It is not shown whether advice or earlier attempts in the prompt do better.")
            direction = shown_direction(row)
            if direction > 0:
                text = N_("Advice did better than earlier attempts in the prompt.")
            elif direction < 0:
                text = N_("Earlier attempts in the prompt did better than advice.")
            sentences.append(translate(text))
    for row in report["controls"]:
        if (row["first"], row["second"]) == ("hansei", "none"):
            text = N_("Controls: of %(tasks)s, %(worse)s became wrong with advice.")
            tasks = count_tasks(row["tasks"], translate)
            sentences.append(translate(text) % {"tasks": tasks, "worse": row["worse"]})
    return " ".join(sentences)


def _explain_arms(summaries: list[Json], translate: Translate) -> str:
    """The arms of reports and what each gives to the agent."""
    arms = dict.fromkeys(row["arm"] for each in summaries for row in each["accuracy"])
    texts = {arm: MEMORIES.get(arm, "the agent alone") for arm in arms}
    return "; ".join(f"`{arm}`: {translate(text)}" for arm, text in texts.items())


def _describe_gaps(summary: Json, translate: Translate) -> list[str]:
    return find_gaps(summary["calls"], summary.get("failures", 0), translate)


def _describe_accuracy(summary: Json, translate: Translate) -> list[tuple[str, str]]:
    """Each arm that answered with its accuracy and interval."""
    return [
        (row["arm"], f"{percent(row['mean'])} ({percent_range(row, translate)})")
        for row in summary["accuracy"]
        if row["tasks"]
    ]


def _draw_curve(report: Json, translation: Translation) -> Chart:
    _ = translation.gettext
    curve, arms = report["curve"], report["plan"]["protocol"]["arms"]
    return draw_chart(
        "line",
        _("Learning curve"),
        [str(row["window"]) for row in curve],
        [
            Series(arm, [row["arms"].get(arm) for row in curve])
            for arm in sorted(arms, key=lambda arm: arm != "hansei")
        ],
        format=format_share,
        summary=curve_line(report, _),
        label=_("Window"),
    )
