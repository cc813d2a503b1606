"""Charts of analytics: their numbers are those of the answer, and they are drawn to scale."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pytest
from playwright.async_api import Browser

from bench.analytics_rows import SAMPLE, fill
from memory_api.analytics.questions import Question
from memory_api.console.analytics.question_charts import (
    FORMS,
    MAX_BARS,
    chart_form,
    draw_answer,
    select_rows,
)
from memory_api.console.charts import HEIGHT
from memory_api.console.translations import load_translation
from tests.conftest import Database, TestTenant
from tests.console.browsing import log_in, open_whole_page

JULY = "since=2025-07-01&until=2025-07-31&playbook=support"
PERIOD = {"since": "2025-07-01T00:00:00Z", "until": "2025-08-01T00:00:00Z"}
ENGLISH = load_translation("en")

MEASURE = """() => {
  const svg = [...document.querySelectorAll('.chart svg[role=img]')]
    .find(one => getComputedStyle(one).display !== 'none');
  const box = e => { const b = e.getBBox(); return [b.x, b.y, b.width, b.height]; };
  return {
    ticks: [...svg.querySelectorAll('line.grid')].map(line =>
      [line.y1.baseVal.value, line.nextElementSibling.textContent]),
    base: svg.querySelector('line.base').y1.baseVal.value,
    width: svg.viewBox.baseVal.width,
    series: [...svg.querySelectorAll('g')].map(g => [...g.querySelectorAll('.bar, .point')].map(
      mark => [mark.tagName, box(mark), mark.querySelector('title').textContent])),
    rows: [...document.querySelectorAll('.chart tbody tr')].map(row =>
      [...row.children].map(cell => cell.textContent)),
  };
}"""
"""The positions of all marks of the visible chart, as the browser lays them out, and its table."""


@pytest.fixture
async def sample(tenant: TestTenant, database: Database) -> TestTenant:
    await fill(database.url("postgres"), tenant.id, SAMPLE)
    return tenant


def cells(page: str) -> list[list[str]]:
    """The rows of the table of the chart."""
    table = page.split("Values as a table", 1)[1].split("<tbody>", 1)[1].split("</tbody>", 1)[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def number(text: str) -> float:
    if text.endswith(("%", " points")):
        return float(text.removesuffix("%").removesuffix(" points")) / 100
    return float(re.sub(r"[$,]", "", text))


def rounding(text: str) -> float:
    """How far a number may be from its text."""
    if text.endswith(("%", " points")):
        return 0.005 + 1e-9
    return 0.5 * 10.0 ** -len(text.partition(".")[2]) + 1e-9


def expected_values(question: Question, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Name of a series → values of all its rows that the chart shows."""
    form = chart_form(question, rows)
    rows = [row for row in select_rows(form, rows) if row[form.by] is not None]
    if form.by == "key":
        shown = list(dict.fromkeys(row["key"] for row in rows))[:MAX_BARS]
        rows = [row for row in rows if row["key"] in shown]
    values: dict[str, list[Any]] = defaultdict(list)
    if form.split:
        values |= {name: [] for name in form.split[1].values()}
    for row in rows:
        for column, name in form.values.items():
            series = form.split[1][row[form.split[0]]] if form.split else name
            values[series].append(float(row[column] or 0))
    return {name: found for name, found in values.items() if found}


async def test_every_chart_has_the_numbers_of_its_question(owner_of, api, sample) -> None:
    """The sum of each column of the table is that of the rows."""
    for question in FORMS:
        page = await owner_of.get(f"/console/analytics/{question}?{JULY}")
        assert page.status_code == 200, (question, page.text)
        selected = PERIOD | {"playbook": "support", "limit": "10000"}
        found = await api.get(f"/api/v1/analytics/{question}", params=selected)
        expected = expected_values(question, found.json()["rows"])
        assert expected, question
        drawn = cells(page.text)
        assert len(drawn[0]) == 1 + len(expected), question
        for column, (name, values) in enumerate(expected.items(), start=1):
            shown = [row[column] for row in drawn if row[column] != "–"]
            if question == Question.SURVIVAL:  # the line holds its value between the rows
                numbers = [number(text) for text in shown]
                assert numbers == sorted(numbers, reverse=True), name
                assert {1.0, *(round(value, 2) for value in values)} == {1.0, *numbers}, name
                continue
            total = sum(map(number, shown))
            assert abs(total - sum(values)) <= sum(map(rounding, shown)), (question, name)


async def test_every_chart_is_drawn_to_scale(
    chromium: Browser, live: str, sample: TestTenant
) -> None:
    """In a browser, at both widths: the height of each bar and point, measured on the scale of its
    axis, is the number in the table.
    """
    page = await chromium.new_page()
    await log_in(page, live, sample.keys["read"])
    for question in FORMS:
        await page.set_viewport_size({"width": 1280, "height": 860})
        await open_whole_page(page, f"{live}/console/analytics/{question}?{JULY}")
        await page.locator(".chart details summary").click()
        for width in (1280, 390):
            await page.set_viewport_size({"width": width, "height": 860})
            drawn = await page.evaluate(MEASURE)
            assert drawn["width"] == (720 if width == 1280 else 400), question
            check_drawing(question, drawn)
    await page.close()


def check_drawing(question: Question, drawn: dict[str, Any]) -> None:
    ticks = [(y, number(text)) for y, text in drawn["ticks"]]
    (low_y, low), (high_y, high) = ticks[0], ticks[-1]
    per_pixel = (high - low) / (low_y - high_y)
    assert per_pixel > 0, question
    for y, value in ticks:
        assert (low_y - y) * per_pixel + low == pytest.approx(value, abs=rounding("0.00")), question
    assert (low_y - drawn["base"]) * per_pixel + low == pytest.approx(0, abs=per_pixel / 2)
    for column, marks in enumerate(drawn["series"], start=1):
        rows = [row for row in drawn["rows"] if row[column] != "–"]
        assert len(marks) == len(rows) > 0, question
        for (tag, (x, y, _, height), title), row in zip(marks, rows, strict=True):
            assert title.startswith(f"{row[0]}: "), question
            assert title.endswith(f" {row[column]}"), question
            if tag == "circle":
                measured = (low_y - (y + height / 2)) * per_pixel + low
            else:  # a bar below zero hangs from the base
                is_below = y + height > drawn["base"] + 0.2
                measured = -height * per_pixel if is_below else height * per_pixel
            allowed = rounding(row[column]) + 0.15 * per_pixel
            assert abs(measured - number(row[column])) <= allowed, (question, title, measured)
            assert 0 <= x <= drawn["width"], question
            assert 0 <= y <= y + height <= HEIGHT, question


def test_several_playbooks_are_not_added_up() -> None:
    """Shares and keys of two playbooks stay apart; counts are added up."""
    both = ("support", "billing")

    def table(question: Question, rows: list[dict[str, Any]]) -> tuple[list[str], list[Any]]:
        chart = draw_answer(question, "", rows, ENGLISH)
        assert chart is not None
        return [name for name, _color in chart.names], [
            (label, *values) for label, values in chart.rows
        ]

    sizes = [{"playbook": p, "day": date(2026, 1, 1), "active_count": 5} for p in both]
    names, rows = table(Question.PLAYBOOK_SIZES, sizes)
    assert names == ["support: Active bullets", "billing: Active bullets"]
    assert rows == [("Jan 1, 2026", "5", "5")]
    assert table(Question.PLAYBOOK_SIZES, sizes[:1])[0] == ["Active bullets"]

    drift = [{"playbook": p, "key": "mis-00001", "difference": -0.5} for p in both]
    assert table(Question.VERDICT_DRIFT, drift)[1] == [
        ("mis-00001 (support)", "-50 points"),
        ("mis-00001 (billing)", "-50 points"),
    ]
    none = {"failed_count": 0, "error_category": "timeout_error", "reflection_count": 2}
    assert table(Question.ERROR_CATEGORIES, [{"playbook": p, **none} for p in both])[1] == [
        ("Timeout", "4")
    ]
    shares = [
        {"playbook": p, "event": "left_use", "day": day, "survival": share}
        for p, day, share in [("support", 2, 0.8), ("billing", 4, 0.5), ("support", 6, 0.6)]
    ]
    assert table(Question.SURVIVAL, shares)[1] == [
        ("0", "100 %", "100 %"),
        ("2", "80 %", "100 %"),
        ("4", "80 %", "50 %"),
        ("6", "60 %", "–"),
    ]


def test_chart_says_what_it_leaves_out() -> None:
    rows = [{"playbook": "a", "key": f"k{n}", "difference": 0.1} for n in range(25)]
    chart = draw_answer(Question.VERDICT_DRIFT, "", rows, ENGLISH)
    assert chart is not None
    assert (len(chart.rows), chart.summary) == (20, "The chart shows the first 20 of 25 bullets.")
    sizes = [{"playbook": f"p{n}", "day": date(2026, 1, 1), "active_count": n} for n in range(9)]
    chart = draw_answer(Question.PLAYBOOK_SIZES, "", sizes, ENGLISH)
    assert chart is not None
    assert len(chart.names) == 6
    assert chart.summary == "The chart shows 6 of 9 playbooks. Choose one above."


def test_ranges_have_no_gaps() -> None:
    counts = {"run_count": 1, "right_count": 0, "wrong_count": 0}
    rows = [{"playbook": "a", "confidence_band": band, **counts} for band in (0.5, 0.5, 0.8)]
    chart = draw_answer(Question.AGENT_RUNS, "", rows, ENGLISH)
    assert chart is not None
    assert [(label, values[0]) for label, values in chart.rows] == [
        ("0.5–0.6", "2"),
        ("0.6–0.7", "0"),
        ("0.7–0.8", "0"),
        ("0.8–0.9", "1"),
    ]
