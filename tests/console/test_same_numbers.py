"""Each number has one definition: API, console, command line, analytics and the tables give the
same, on the data of the demo.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from hansei import Hansei
from hansei.cli.main import app as command_line
from hansei.models import Bullet, SettableStatus
from tests.console.conftest import CSRF
from tests.support.demo import Demo

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("demo"), pytest.mark.timeout(400)]
ALWAYS = "2000-01-01"
STATUSES: tuple[SettableStatus, ...] = ("active", "quarantined", "archived")
DESKS = ("airline", "orders")
Counters = dict[tuple[str, str], tuple[int, int, int]]
"""Playbook and key → helpful, harmful and neutral verdicts."""


@dataclass
class Doors:
    """The ways to ask the service about the demo."""

    demo: Demo
    api: Hansei
    browser: httpx2.Client
    url: str

    def bullets(self, desk: str) -> list[Bullet]:
        lists = (self.api.playbooks.bullets.list(desk, status=status) for status in STATUSES)
        return [bullet for found in lists for bullet in found]

    def page(self, path: str) -> str:
        answer = self.browser.get(path)
        assert answer.status_code == 200, (path, answer.text)
        return answer.text

    def command(self, *arguments: str) -> Any:
        env = {"HANSEI_URL": self.url, "HANSEI_API_KEY": self.demo.key}
        done = CliRunner().invoke(command_line, [*arguments, "--json"], env=env)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def analytics(self, question: str, **filters: Any) -> list[dict[str, Any]]:
        return self.api.analytics.get(question, since=ALWAYS, **filters).rows  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def doors(demo: Demo, live: str) -> Iterator[Doors]:
    with Hansei(live, demo.key) as api, httpx2.Client(base_url=live) as browser:
        token = CSRF.search(browser.get("/console/login").text)
        assert token
        form = {"csrf": token[1], "key": demo.key, "next": "/console"}
        assert browser.post("/console/login", data=form).status_code == 303
        yield Doors(demo, api, browser, live)


def figures_of(page: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>([^<]+)</dt><dd>(?:<a [^>]*>)?([^<]*)<", page))


def by_bullet(rows: list[dict[str, Any]], playbook: str | None, *names: str) -> Counters:
    return {
        (playbook or row["playbook"], row.get("key") or row["id"]): tuple(row[n] for n in names)  # type: ignore[misc]
        for row in rows
    }


def without_unjudged(counters: Counters) -> Counters:
    return {bullet: counts for bullet, counts in counters.items() if any(counts)}


async def test_verdicts_of_a_bullet(doors: Doors) -> None:
    stored: Counters = {
        (playbook, key): (helpful, harmful, neutral)
        for playbook, key, helpful, harmful, neutral in await doors.demo.fetch(
            "select p.name, m.key, m.helpful, m.harmful, m.neutral from memories m"
            " join playbooks p using (tenant_id, scope_id) where m.status <> 'deleted'"
        )
    }
    assert len(stored) >= 17
    listed: Counters = {}
    on_pages: Counters = {}
    on_command_line: Counters = {}
    for desk in DESKS:
        for bullet in doors.bullets(desk):
            listed[desk, bullet.id] = (bullet.helpful, bullet.harmful, bullet.neutral)
            text = doors.page(f"/console/playbooks/{desk}/bullets/{bullet.id}")
            figures = figures_of(text)
            counts = (int(figures.get(name, 0)) for name in ("Helpful", "Harmful", "Neutral"))
            on_pages[desk, bullet.id] = tuple(counts)  # type: ignore[assignment]
        shown = doors.command("playbook", "show", desk, "--status", "all")
        on_command_line |= {
            (desk, b["id"]): (b.get("helpful", 0), b.get("harmful", 0), b.get("neutral", 0))
            for b in shown["bullets"]
        }
    moved = by_bullet(
        doors.analytics("movers"), None, "helpful_count", "harmful_count", "neutral_count"
    )
    listed_by_analytics = by_bullet(
        doors.analytics("bullets"), None, "helpful", "harmful", "neutral"
    )
    expected = without_unjudged(stored)
    assert without_unjudged(listed) == expected
    assert without_unjudged(on_pages) == expected
    assert without_unjudged(on_command_line) == expected
    assert {k: v for k, v in moved.items() if k in stored} == expected
    assert {k: v for k, v in listed_by_analytics.items() if any(v) and k in stored} == expected


async def test_weeks_of_the_page_add_up_to_its_counters(doors: Doors) -> None:
    text = doors.page("/console/playbooks/orders/bullets/ctx-00004")
    table = text[text.index("<svg") :]
    cells = re.findall(
        r"<tr><t[hd][^>]*>(\d{4}-\d\d-\d\d|[A-Z][a-z]{2} \d+[^<]*)</t[hd]>(.*?)</tr>", table
    )
    weeks = [[int(n) for n in re.findall(r"<td[^>]*>(\d+)</td>", rest)] for _week, rest in cells]
    bullet = next(b for b in doors.bullets("orders") if b.id == "ctx-00004")
    assert [sum(column) for column in zip(*weeks, strict=True)][:2] == [
        bullet.helpful,
        bullet.harmful,
    ]


async def test_agent_runs(doors: Doors) -> None:
    """Each answered question is a trace, too. It has no playbook, so no advice could improve it."""
    answered = sum(run.trace_id is not None for run in doors.api.agents.runs.list())
    assert answered == 4
    stored = (await doors.demo.fetch("select count(*) from traces"))[0][0]
    listed = sum(1 for _ in doors.api.traces.list())
    improvement = [
        row
        for row in doors.analytics("improvement")
        if row["week"] is None and row["playbook"] is None
    ]
    assert [stored - answered, listed - answered, improvement[0]["runs"]] == [320, 320, 320]
    successes = await doors.demo.fetch(
        "select count(*) from traces where effective_outcome = 'success' and playbook is not null"
    )
    assert improvement[0]["successes"] == successes[0][0]


async def test_costs_and_calls(doors: Doors) -> None:
    calls, usd = (await doors.demo.fetch("select count(*), sum(cost_usd) from llm_calls"))[0]
    usage = list(doors.api.usage.list(("day",), since=ALWAYS))
    costs = doors.analytics("costs")
    assert sum(row.call_count for row in usage) == calls == sum(row["call_count"] for row in costs)
    expected = pytest.approx(float(usd))
    assert sum(row.cost_usd for row in usage) == expected
    assert sum(row["cost_usd"] for row in costs) == expected


async def test_cost_of_playbooks_is_the_cost_of_all_calls(doors: Doors) -> None:
    """All calls of the demo are made for its two playbooks."""
    [(usd,)] = await doors.demo.fetch("select sum(cost_usd) from llm_calls")
    rows = doors.analytics("unit_costs")
    assert sum(row["cost_usd"] for row in rows) == pytest.approx(float(usd))
    each = float(usd) / sum(row["bullet_count"] for row in rows)
    assert f"${each:.4f}".rstrip("0") in doors.page("/console?later=page")


async def test_bullets_in_use(doors: Doors) -> None:
    stored = await doors.demo.fetch(
        "select p.name, count(*) from memories m join playbooks p using (tenant_id, scope_id)"
        " where m.kind = 'bullet' and m.status = 'active' group by p.name"
    )
    counts: dict[str, int] = {row[0]: row[1] for row in stored}
    assert counts == {p.name: p.active_bullet_count for p in doors.api.playbooks.list()}
    assert counts == {row["playbook"]: row["bullet_count"] for row in doors.analytics("unit_costs")}
    overview = figures_of(doors.page("/console?later=page"))
    assert overview["Active bullets"] == str(sum(counts.values()))
    for desk, count in counts.items():
        assert f"Agents get the {count} active ones." in doors.page(f"/console/playbooks/{desk}")
        shown = doors.command("playbook", "show", desk)["bullets"]
        assert len(shown) == count


async def test_success_with_and_without_advice(doors: Doors) -> None:
    total = next(
        row
        for row in doors.analytics("improvement")
        if row["week"] is None and row["playbook"] is None
    )
    told = doors.command("analytics", "improvement", "--since", ALWAYS)["rows"]
    assert total in told
    with_advice = (total["with_successes"], total["with_runs"])
    controls = (total["without_successes"], total["without_runs"])
    assert (with_advice[1], controls[1]) == (140, 140)
    traces = doors.page("/console/traces")
    assert "With advice in the prompt: {} of {}.".format(*with_advice) in traces
    assert "Controls without advice: {} of {}.".format(*controls) in traces
    playbooks = doors.page("/console/playbooks?later=page")
    shares = [(int(a), int(b)) for a, b in re.findall(r">(\d+) / (\d+)<", playbooks)]
    assert tuple(map(sum, zip(*shares[::2], strict=True))) == with_advice
    assert tuple(map(sum, zip(*shares[1::2], strict=True))) == controls
    sentence = "with advice, {:.0f} % of the agent runs succeed, without it {:.0f} %"
    assert sentence.format(100 * total["with_rate"], 100 * total["without_rate"]) in doors.page(
        "/console?later=page"
    )


async def test_overview_and_movers_name_the_same_bullets(doors: Doors) -> None:
    page = doors.page("/console?later=page")
    since = re.search(r'movers\?since=([\d-]+)"', page)
    assert since
    moved = doors.api.analytics.get("movers", since=since[1]).rows
    harmful = [row["key"] for row in moved if row["net_count"] < 0]
    section = page[page.index('id="harmful"') :]
    shown = re.findall(r"/bullets/([a-z]+-\d+)\"", section)
    assert shown == harmful != []


async def test_what_waits_for_a_person(doors: Doors) -> None:
    stored = await doors.demo.fetch(
        "select p.name, m.key from memories m join playbooks p using (tenant_id, scope_id)"
        " where m.kind = 'bullet' and m.status = 'quarantined'"
    )
    listed = {
        (desk, bullet.id)
        for desk in DESKS
        for bullet in doors.api.playbooks.bullets.list(desk, status="quarantined")
    }
    pages = {desk: doors.page(f"/console/playbooks/{desk}/review") for desk in DESKS}
    shown = {
        (desk, key)
        for desk, page in pages.items()
        for key in re.findall(r"/bullets/((?:ctx|mis)-\d+)", page)
    }
    proposed = {("orders", "mis-00002")}
    assert set(stored) == listed == shown - proposed
    assert len(listed) == 3


async def test_demo_fills_the_pages_beside_its_playbooks(doors: Doors) -> None:
    """Evaluations, Collections, Ask and SQL have something to show, and each statement has rows."""
    for evaluation in doors.api.evaluation_reports.list():
        report = doors.page(f"/console/evaluations/{evaluation.id}")
        assert "RECORDED: the tasks are House Rules" in report
        assert "Learning curve" in report
        assert re.search(r"became better.*(airline|warehouse)-plain-\d+-\d+", report, re.DOTALL)
    assert "2 in all" in doors.page("/console/evaluations")
    assert "5 in all" in doors.page("/console/collections/handbook")
    assert "5 in all" in doors.page("/console/agent-runs")
    runs = {run.query: run for run in doors.api.agents.runs.list()}
    asked = runs["What does a bicycle cost?"]
    assert asked.state == "waiting"
    assert "Hansei asks you" in doors.page(f"/console/agent-runs/{asked.id}")
    follow_up = doors.page(f"/console/agent-runs/{runs['And a flexible ticket?'].id}")
    assert "Earlier in this conversation" in follow_up
    assert "A flexible ticket is refunded less 30 euros" in follow_up
    assert [run.feedback for run in runs.values()].count("right") == 2
    links = re.findall(r'"(/console/sql\?saved=[^"]+)"', doors.page("/console/sql"))
    assert len(links) == 4
    for link in links:
        form = doors.page(link)
        token = CSRF.search(form)
        statement = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", form, re.DOTALL)
        assert token
        assert statement
        sent = {"csrf": token[1], "statement": html.unescape(statement[1])}
        result = doors.browser.post("/console/sql", data=sent)
        assert re.search(r"(One row|\d+ rows) in", result.text), sent
