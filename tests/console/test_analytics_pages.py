"""Pages of analytics: each begins with a sentence that answers, in words."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from httpx2 import AsyncClient
from playwright.async_api import Browser

from bench.analytics_rows import SAMPLE, fill
from memory_api.analytics.questions import Question
from memory_api.console.analytics.nothing_found import NOTHING_FOUND
from memory_api.console.analytics.question_charts import draw_answer
from memory_api.console.translations import load_translation
from memory_api.runtime import Runtime
from tests.conftest import Database, TestTenant
from tests.console.browsing import log_in
from tests.support.playbook_api import Book

URL = "/console/analytics"
JULY = "since=2025-07-01&until=2025-07-31"
SENTENCE = re.compile(r'<div class="prose large"><p>(.*?)</p></div>')
KEYS = [f"pat-{n:05d}" for n in range(1, 4)]
RAW = ("first_helpful_verdict", "strategies_and_insights", "bullets_judged", "unknown_error")


@pytest.fixture
async def sample(tenant: TestTenant, database: Database) -> TestTenant:
    await fill(database.url("postgres"), tenant.id, SAMPLE)
    return tenant


async def test_every_answer_begins_with_a_sentence(owner_of, sample) -> None:
    """With numbers of its own, and the values of columns have names."""
    for question in Question:
        page = (await owner_of.get(f"{URL}/{question}?{JULY}")).text
        found = SENTENCE.search(page)
        assert found, question
        assert re.search(r"\d", found[1]), (question, found[1])
        assert "%(" not in found[1], question
        shown = page[: page.index("<summary>SQL</summary>")]
        assert not [raw for raw in RAW if f">{raw}" in shown], question


async def test_overview_explains_a_cost_without_a_model(owner_of, api, sample) -> None:
    """Without a model, nothing costs anything, but earlier calls did."""
    page = (await owner_of.get("/console")).text
    assert re.search(r"Cost per bullet in use, so far</dt><dd><a [^>]*>\$0\.0*[1-9]", page)
    assert "The cost so far is that of earlier calls." in page
    assert "No model is configured: the rules engine reflects, and costs nothing." not in page


async def test_answer_without_rows_says_what_was_not_found(owner_of) -> None:
    """And whether that is good, or what would fill the page. In Japanese, too."""
    for language in ("en", "ja"):
        owner_of.http.headers["Accept-Language"] = language
        for question in Question:
            found = SENTENCE.search((await owner_of.get(f"{URL}/{question}")).text)
            wanted = load_translation(language).gettext(NOTHING_FOUND[question])
            assert found, question
            assert html.unescape(re.sub("<.*?>", "", found[1])) == wanted.replace("`", "")
    for question in ("NEAR_DUPLICATES", "CONTRADICTIONS", "CONFLICTS", "UNCOVERED_QUERIES"):
        assert re.search(r"is good", NOTHING_FOUND[Question[question]]), question


async def test_agents_get_better_is_the_first_question(owner_of) -> None:
    page = (await owner_of.get(URL)).text
    listed = re.findall(r'href="/console/analytics/(\w+)"', page)
    assert listed[0] == "improvement"
    assert sorted(set(listed)) == sorted(question.value for question in Question)
    assert page.count("Do agents get better") >= 2, "its answer comes first"


async def test_improvement_compares_runs_with_and_without_advice(
    owner_of, api: AsyncClient, runtime: Runtime
) -> None:
    runtime.settings.advice_holdout_share = 0.5
    try:
        book = Book(api)
        await book.deltas({"type": "ADD", "section": "pat", "content": "Say hello."})
        sides = {True: 0, False: 0}
        for number in range(200):
            block = (await book.post("render", session_id=f"s{number}")).json()
            held_out = block["advice_held_out"]
            if sides[held_out] == 14:
                continue
            sides[held_out] += 1
            outcome = "failure" if held_out else "success"
            await book.trace(
                playbook=book.name, outcome=outcome, retrieval_id=block["retrieval_id"]
            )
        assert sides == {True: 14, False: 14}
    finally:
        runtime.settings.advice_holdout_share = 0.0
    page = (await owner_of.get(f"{URL}/improvement")).text
    assert "Yes: 100 % of the runs with advice succeed, and 0 % of those without it." in page
    assert "of 28 runs." in page
    legend = page[page.index('<ul class="legend">') :]
    assert "Success with advice</li>" in legend
    assert "Success without advice</li>" in legend
    assert "Success with it" not in page
    assert "14 of 14" in page
    assert ">whole period<" in page
    own = (await owner_of.get(f"{URL}/improvement?playbook=book")).text
    assert "Yes: 100 % of the runs with advice succeed" in own


async def test_bullet_that_is_never_alone_has_no_effect_on_any_page(
    owner_of, api: AsyncClient
) -> None:
    book = Book(api)
    contents = ("One.", "Two.", "Three.")
    await book.deltas(*({"type": "ADD", "section": "pat", "content": c} for c in contents))
    for outcome in ("success", "success", "failure"):
        block = (await book.post("render")).json()
        await book.trace(playbook="book", outcome=outcome, retrieval_id=block["retrieval_id"])
        await book.trace(playbook="book", outcome="failure")
    page = (await owner_of.get(f"{URL}/effects")).text
    assert "Unknown for all 3 bullets: none was given to some agent runs and, on its own," in page
    assert "turn on a hold-out: set <code>holdout_share</code>" in page
    assert "Do agents get better?</a>" in page
    assert "<figure" not in page, "an unknown effect is no bar of 0"
    life = (await owner_of.get(f"/console/playbooks/book/bullets/{KEYS[0]}")).text
    assert "Unknown. No agent run that had other bullets went without it since it was added" in life
    for text in (page, life):
        assert re.search(r"67 %.{0,400}?2 (of|/) 3", text, re.DOTALL), "the same figure"


async def test_period_of_an_effect_is_the_same_on_both_pages(
    owner_of, api: AsyncClient, database: Database
) -> None:
    """The first of the 30 days counts on both from its midnight on."""
    book = Book(api)
    await book.deltas({"type": "ADD", "section": "pat", "content": "One."})
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = today - timedelta(days=29)
    connection = await asyncpg.connect(database.url("postgres"))
    try:
        for moment in (first - timedelta(minutes=1), first + timedelta(seconds=1)):
            block = (await book.post("render")).json()
            await book.trace(playbook="book", outcome="success", retrieval_id=block["retrieval_id"])
            await connection.execute(
                "update retrievals set created_at = $1 where id = $2",
                moment,
                block["retrieval_id"],
            )
    finally:
        await connection.close()
    page = (await owner_of.get(f"{URL}/effects")).text
    life = (await owner_of.get(f"/console/playbooks/book/bullets/{KEYS[0]}")).text
    assert "1 of 1" in page
    assert "(1 / 1)" in life


async def test_from_after_to_answers_at_once(owner_of) -> None:
    """The first answer, without a part that loads later."""
    wrong = "since=2025-08-01&until=2025-07-01"
    page = await owner_of.http.get(f"{URL}/movers?{wrong}")
    assert page.status_code == 422
    assert "From must not be later than To." in page.text
    assert "Loading" not in page.text
    assert 'value="2025-08-01"' in page.text, "the form keeps what was chosen"
    for typed, reason in (("x", "Must be a day"), ("0001-01-01", "Must be in the years 2000")):
        page = await owner_of.http.get(f"{URL}/movers?since={typed}")
        assert page.status_code == 422
        assert f"From: {reason}" in page.text
        assert f'name="since" value="{typed}"' in page.text
    csv = await owner_of.http.get(f"{URL}/movers?{wrong}&csv=true")
    assert csv.status_code == 422


async def test_refused_part_shows_why(chromium: Browser, live: str, sample: TestTenant) -> None:
    """Not "Loading …" for ever: here, effects of more than 92 days."""
    page = await chromium.new_page()
    await log_in(page, live, sample.keys["read"])
    await page.goto(f"{live}{URL}/effects?since=2025-01-01&until=2025-07-31")
    await page.get_by_text("at most 92 days").wait_for(timeout=10_000)
    assert not await page.get_by_text("Loading …").count()
    await page.close()


def test_weeks_without_a_side_are_gaps() -> None:
    def week(day: int, with_rate: float | None, without_rate: float | None) -> dict[str, Any]:
        sides = {"with_rate": with_rate, "without_rate": without_rate}
        runs = {"with_runs": int(with_rate is not None), "without_runs": 1}
        return {"playbook": None, "week": datetime(2026, 6, day).date(), **sides, **runs}

    rows = [week(1, None, 0.25), week(15, 0.75, 0.5)]
    rows += [row | {"playbook": "other"} for row in rows]
    chart = draw_answer(Question.IMPROVEMENT, "", rows, load_translation("en"))
    assert chart is not None
    assert [name for name, _color in chart.names] == [
        "Success with advice",
        "Success without advice",
    ]
    shares = [list(values) for _, values in chart.rows]
    assert shares == [["–", "25 %"], ["–", "–"], ["75 %", "50 %"]]
