"""Pages of traces, runs, agent runs, analytics, costs and keys."""

from __future__ import annotations

import asyncio
import csv
import html
import io
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args
from uuid import UUID

import pytest
from playwright.async_api import Browser, Page, expect
from sqlalchemy import update

from bench.analytics_rows import SAMPLE, fill
from memory_api.analytics import queries as analytics_queries
from memory_api.analytics.improvement import first_week
from memory_api.budgets.queries import replace_budgets
from memory_api.budgets.schemas import Purpose
from memory_api.budgets.tables import BudgetRow
from memory_api.console import paging
from memory_api.console import queries as console_queries
from memory_api.console.days import last_days, midnight
from memory_api.console.rendering import format_day
from memory_api.console.traces import router as traces_pages
from memory_api.console.translations import load_translation
from memory_api.core.errors import InvalidRequest
from memory_api.playbooks.tables import BulletVerdictRow, RetrievalRow
from memory_api.runs import lifecycle
from memory_api.runs.tables import RunRow
from memory_api.traces.tables import TraceRow
from tests.conftest import Database, TestTenant
from tests.console.conftest import ConsoleClient
from tests.console.test_browser import log_in
from tests.grace.conftest import Agent, add_handbook, config
from tests.grace.test_agent_runs import KNOWN

JULY = "since=2025-07-01&until=2025-07-31&playbook=support"
UNKNOWN = "Which moon orbits Saturn fastest?"
EVENT = {"event_type": "user_message", "content": "Hello"}
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
async def sample(tenant: TestTenant, database: Database) -> TestTenant:
    await fill(database.url("postgres"), tenant.id, SAMPLE)
    return tenant


@pytest.fixture
async def agent(api, runtime, tenant: TestTenant) -> Agent:
    made = Agent(api, runtime, tenant)
    await add_handbook(api, made.work)
    return made


async def kill_run(runtime, tenant: TestTenant, run_id) -> None:
    """Let a run fail on its only attempt."""
    async with runtime.sessions.for_tenant(tenant.id) as session:
        claimed = await lifecycle.claim_run(session, run_id, "me", timedelta(seconds=30))
        assert claimed.run is not None
        await lifecycle.record_failure(session, claimed.run, InvalidRequest(f"No {HOSTILE}"))


def cells(page: str, caption: str) -> list[list[str]]:
    """The rows of the table of a chart."""
    table = page.split(caption, 1)[1].split("<tbody>", 1)[1].split("</tbody>", 1)[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


async def send_outcomes(api, runtime, tenant, withheld: bool | None, *outcomes: str) -> None:
    """Traces of the playbook support whose render withheld the advice, or did not."""
    for number, outcome in enumerate(outcomes):
        block = (await api.post("/api/v1/playbooks/support/render", json={})).json()
        task = f"{withheld} {outcome} {number}"
        body = {
            "playbook": "support",
            "outcome": outcome,
            "task_description": task,
            "retrieval_id": block["retrieval_id"],
            "events": [{"event_type": "user_message", "content": task}],
        }
        sent = await api.post("/api/v1/traces?reflect=never", json=body)
        assert sent.status_code == 201, sent.text
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await session.execute(
                update(RetrievalRow)
                .where(
                    RetrievalRow.tenant_id == tenant.id, RetrievalRow.id == block["retrieval_id"]
                )
                .values(advice_held_out=withheld)
            )


async def test_overview_begins_with_whether_agents_get_better(
    owner_of, api, runtime, tenant
) -> None:
    await send_outcomes(api, runtime, tenant, None, "success", "failure", "success", "success")
    page = html.unescape((await owner_of.get("/console")).text)
    assert "Unknown: no agent run was left without advice to compare with. 75 %" in page
    assert "start the service with HANSEI_ADVICE_HOLDOUT_SHARE=0.1 in its environment" in page
    (week,) = cells(page, "Share of successful agent runs by week")
    assert week[1] == "75 %"
    await send_outcomes(api, runtime, tenant, True, "failure", "success")
    await send_outcomes(api, runtime, tenant, False, "success")
    page = html.unescape((await owner_of.get("/console")).text)
    assert re.search(r"Not enough runs yet: about \d+ more", page)
    await send_outcomes(api, runtime, tenant, True, *["failure"] * 18)
    await send_outcomes(api, runtime, tenant, False, *["success"] * 19)
    page = html.unescape((await owner_of.get("/console")).text)
    assert "Yes: with advice, 100 % of the agent runs succeed, without it 5 %." in page
    assert "40 agent runs with a known outcome are compared; 20 of them" in page
    assert "Difference: 95 points; 95 % interval:" in page


async def test_trend_of_a_playbook_names_the_day_from_which_it_counts(
    owner_of, api, runtime, tenant
) -> None:
    await api.post("/api/v1/playbooks/support/bullets", json={"content": "Pay once."})
    await send_outcomes(api, runtime, tenant, None, "success", "failure")
    monday = first_week(datetime.now(UTC)) + timedelta(weeks=10)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        earlier = midnight(monday) - timedelta(hours=1)
        change = update(TraceRow).where(TraceRow.tenant_id == tenant.id)
        await session.execute(change.values(created_at=earlier))
    await send_outcomes(api, runtime, tenant, None, "success")
    page = html.unescape((await owner_of.get("/console/playbooks")).text)
    day = format_day(monday, load_translation("en"))
    assert f"Since {day}: 100 %; before: 50 %." in page


async def test_outcome_that_only_a_declared_check_knows_counts(
    owner_of, api, runtime, tenant
) -> None:
    for answer in ("4", "4", "5", "4"):
        body = {
            "playbook": "sums",
            "ground_truth": "4",
            "match": "exact",
            "generated_answer": answer,
        }
        body["events"] = [{"event_type": "user_message", "content": "2 + 2?"}]
        assert (await api.post("/api/v1/traces", json=body)).status_code == 201
    await Agent(api, runtime, tenant).work()
    page = html.unescape((await owner_of.get("/console")).text)
    assert "75 % of all agent runs succeed." in page


async def test_trace_shows_evidence_lessons_and_attempts(owner_of, api, runtime, tenant) -> None:
    worker = Agent(api, runtime, tenant)
    events = [
        {"event_type": "user_message", "content": "Refund order 7"},
        {"event_type": "tool_call", "tool_name": "refund", "content": '{"order": 7}'},
        {"event_type": "tool_response", "tool_name": "refund", "content": "Error: order 7 is open"},
        {"event_type": "llm_response", "content": f"It is refunded. {HOSTILE}"},
    ]
    ids = []
    for outcome in ("success", "failure"):
        body = {"playbook": "support", "task_key": "refund-7", "outcome": outcome, "events": events}
        sent = await api.post("/api/v1/traces", json=body)
        assert sent.status_code == 201, sent.text
        ids.append(sent.json()["trace_id"])
    await worker.work()
    shown = (await owner_of.get(f"/console/traces/{ids[1]}")).text
    found = await api.get("/api/v1/memories", params={"kind": "reflection", "trace_id": ids[1]})
    evidence = {event for item in found.json()["items"] for event in item["source_event_ids"]}
    assert evidence
    assert set(re.findall(r'<li class="evidence" id="event-(\w+)"', shown)) == evidence
    assert f"/console/traces/{ids[0]}" in shown.split("Attempts at this task", 1)[1]
    assert HOSTILE not in shown
    listed = (await owner_of.get("/console/traces?outcome=failure")).text
    assert ids[1] in listed
    assert ids[0] not in listed


async def test_trace_says_what_became_of_its_lesson(owner_of, api, runtime, tenant) -> None:
    """A lesson that waits for confirmation is shown, with its bullet."""
    sales = "SELECT * FROM sales", "SELECT count(*) FROM sales"
    events = [
        {"event_type": "tool_call", "tool_name": "sql", "content": sales[0]},
        {"event_type": "error_event", "content": "Query timeout after 30 seconds"},
        {"event_type": "tool_call", "tool_name": "sql", "content": sales[1]},
        {"event_type": "tool_response", "tool_name": "sql", "content": "1200"},
    ]
    body = {"playbook": "sales", "outcome": "success", "events": events}
    sent = await api.post("/api/v1/traces", json=body)
    await Agent(api, runtime, tenant).work()
    shown = (await owner_of.get(f"/console/traces/{sent.json()['trace_id']}")).text
    assert "When <code>sql</code> fails" in shown
    assert "/console/playbooks/sales/bullets/pat-00001" in shown
    review = (await owner_of.get("/console/playbooks/sales/review")).text
    assert "<mark>Query timeout after 30 seconds</mark>" in review
    assert ">Use it</button>" in review


async def test_trace_shows_time_tokens_and_what_only_this_attempt_did(owner_of, api) -> None:
    for price in ("10", "12"):
        events = [
            {"event_type": "user_message", "content": f"Sell it for {price}"},
            {
                "event_type": "tool_call",
                "tool_name": "find",
                "content": "find()",
                "timestamp": "2026-03-01T10:00:00Z",
            },
            {
                "event_type": "tool_response",
                "tool_name": "find",
                "content": "V1",
                "timestamp": "2026-03-01T10:00:07Z",
                "metadata": {"input_tokens": 700, "output_tokens": 20},
            },
            {"event_type": "tool_call", "tool_name": "sell", "content": f"sell(V1, {price})"},
        ]
        body = {"task_key": "sale", "events": events, "metadata": {"usage": {"input_tokens": 1234}}}
        sent = await api.post("/api/v1/traces?reflect=never", json=body)
    shown = (await owner_of.get(f"/console/traces/{sent.json()['trace_id']}")).text
    assert "<dt>Tokens</dt><dd>1,234</dd>" in shown
    assert "+7 s" in shown
    assert "720 tokens" in shown
    assert shown.count('class=" result"') == 1, "the response is below its call"
    events_of_this = shown.rsplit('<ol class="timeline">', 1)[1]
    assert events_of_this.count("only in this attempt") == 1
    assert "sell(V1, 12)" in events_of_this.split("only in this attempt", 1)[1]


async def test_trace_begins_with_its_difference_to_another_attempt(owner_of, api) -> None:
    """One that ended otherwise, if there is one."""

    async def send(outcome: str, *calls: str) -> str:
        user = {"event_type": "user_message", "content": "Name the recipient"}
        called = [{"event_type": "tool_call", "tool_name": "t", "content": call} for call in calls]
        body = {"task_key": "name", "outcome": outcome, "events": [user, *called]}
        sent = await api.post("/api/v1/traces?reflect=never", json=body)
        return sent.json()["trace_id"]

    async def top_of(trace: str) -> str:
        page = (await owner_of.get(f"/console/traces/{trace}")).text
        found = re.search(r'<p class="prose large">(.*?)</p>', page, re.DOTALL)
        assert found
        return " ".join(html.unescape(re.sub("<.*?>", "", found[1])).split())

    failed = await send("failure", "set()")
    assert await top_of(failed) == "The agent did not succeed."
    solved = await send("success", "set()", "notify()")
    again = await send("failure", "set()", "wait()")
    top = await top_of(failed)
    assert top.startswith("The agent did not succeed. Another attempt at this task succeeded (")
    assert top.endswith("). Only that attempt has notify().")
    top = await top_of(again)
    assert top.endswith("). Only that attempt has notify(). Only this one has wait().")
    top = await top_of(solved)
    assert top.startswith("The agent succeeded. Another attempt at this task did not succeed (")
    assert top.endswith("). Only that attempt has wait(). Only this one has notify().")
    same = await send("success", "set()", "notify()", "wait()")
    assert (await top_of(same)).endswith("Only this one has notify().")


async def test_trace_says_why_nothing_was_learned(
    owner_of, api, drain, runtime, tenant, monkeypatch
) -> None:
    monkeypatch.setattr(runtime.settings, "reflective_memory_mode", "lite")

    async def show(query: str = "", **fields: str) -> str:
        body = {"events": [{"event_type": "user_message", "content": "Hello"}], **fields}
        trace = (await api.post(f"/api/v1/traces{query}", json=body)).json()["trace_id"]
        await drain(tenant.id)
        page = (await owner_of.get(f"/console/traces/{trace}")).text
        return page.split("</h1>", 1)[1].split("</section>")[0]

    assert "No outcome is known. State it" in await show()
    never = await show("?reflect=never", outcome="failure")
    assert "Not learned from: the client asked for it" in never
    assert "It taught nothing new." not in never
    plain_success = await show(outcome="success")
    assert "It taught nothing new." in plain_success
    assert "A plain success teaches nothing new" in plain_success
    shown = await show(outcome="failure")
    assert "Nothing to learn: without a model, Hansei learns" in shown, shown
    assert "Declared check" in await show(ground_truth="12", match="number", generated_answer="12")


async def test_traces_are_searched_by_words_of_their_task(owner_of, api) -> None:
    for task in ("Refund the 100 % offer", "Refund the 100 offers", "Cancel it"):
        body = {
            "task_description": task,
            "events": [{"event_type": "user_message", "content": task}],
        }
        sent = await api.post("/api/v1/traces?reflect=never", json=body)
        assert sent.status_code == 201, sent.text
    listed = (await owner_of.get("/console/traces?words=100+%25+OFFER")).text
    assert "Refund the 100 % offer" in listed, "% and _ are characters"
    assert "Refund the 100 offers" not in listed
    assert "The newest 5,000 traces are searched." in listed


async def test_playbook_that_does_not_exist_is_named_as_such(owner_of) -> None:
    page = (await owner_of.get("/console/traces?playbook=nope")).text
    assert "There is no playbook nope" in page
    assert '<option value="nope"' not in page


async def test_trace_shows_its_conflict(owner_of, api, runtime, tenant) -> None:
    said = {"event_type": "llm_response", "content": "The total is 41."}
    body = {"outcome": "success", "ground_truth": 42, "match": "number", "events": [said]}
    sent = await api.post("/api/v1/traces", json=body)
    url = f"/console/traces/{sent.json()['trace_id']}"
    assert "Conflict" not in (await owner_of.get(url)).text
    await Agent(api, runtime, tenant).work()
    shown = (await owner_of.get(url)).text.split("<dt>Conflict</dt>", 1)[1].split("</dd>", 1)[0]
    assert [side in shown for side in ("success", "failure", "41", "42")] == [True] * 4


async def test_dead_run_shows_cause_and_is_retried(
    owner_of, console, runtime, tenant, make_tenant, queue_run, read_run
) -> None:
    run = await queue_run(max_attempts=1)
    await kill_run(runtime, tenant, run.id)
    url = f"/console/runs/{run.id}"
    page = await owner_of.get(f"{url}?project={run.project_id}")
    assert f"No {html.escape(HOSTILE)}" in page.text
    listed = await owner_of.get(f"/console/runs?state=dead&project={run.project_id}")
    assert str(run.id) in listed.text
    assert "1 failed on every attempt." in listed.text
    reader = await console(tenant.keys["read"])
    assert "Retry" not in (await reader.get(url)).text
    assert (await reader.send(f"{url}/retry")).status_code == 403
    stranger = await console((await make_tenant()).keys["admin"])
    assert (await stranger.get(url)).status_code == 404
    assert (await stranger.send(f"{url}/retry")).status_code == 404
    assert (await owner_of.send(f"{url}/retry")).status_code == 303
    assert (await read_run(run.id)).state == "queued"
    part = await owner_of.http.get(url, headers={"Hansei-Part": "true"})
    assert "<html" not in part.text
    assert 'data-every="1"' in part.text


async def test_person_asks_answers_and_judges(owner_of, agent: Agent) -> None:
    asked = await owner_of.send("/console/agent-runs", query=UNKNOWN)
    url = asked.headers["location"]
    assert 'data-every="1"' in (await owner_of.get(url)).text
    await agent.work()
    page = (await owner_of.get(url)).text
    assert "Hansei asks you" in page
    assert "No passage fits the question." in page
    asked = (await owner_of.get("/console/agent-runs")).text
    assert "Questions: 1 asked, 1 waiting for you, 0 judged right, 0 judged wrong." in asked
    runs = (await owner_of.get("/console/runs")).text
    assert "One question waits for your answer.</a>" in runs
    rows = [row for row in re.findall(r"<tr>.*?</tr>", runs, re.DOTALL) if UNKNOWN in row]
    assert rows
    assert all(f'href="{url}"' in row and ">waiting<" in row for row in rows)
    leg = re.search(r"/console/runs/[\w-]+", rows[-1])
    assert leg
    detail = (await owner_of.get(leg[0])).text
    assert url in links(detail, UNKNOWN)
    assert ">waiting<" in detail
    action = re.search(r'action="([^"]+/answer/[^"]+)"', page)
    assert action
    text = "How many working days do parcels to Norway take?"
    assert (await owner_of.send(action[1], action="input", input=text)).status_code == 303
    await agent.work()
    page = (await owner_of.get(url)).text
    assert "nine working days" in page
    assert "handbook.md" in page or "Shipping abroad" in page
    assert (await owner_of.send(f"{url}/feedback", feedback="right")).status_code == 303
    assert (await agent.get(url.rsplit("/", 1)[1]))["feedback"] == "right"
    assert "0 waiting for you, 1 judged right" in (await owner_of.get("/console/agent-runs")).text
    runs = (await owner_of.get("/console/runs")).text
    assert runs.count("nine working days") == 1, "the answer is the result of the last run only"
    assert "Asked a person" in runs
    assert "Ask a follow-up question" in page
    follow = {"query": "And do they need a form?", "previous_run_id": url.rsplit("/", 1)[1]}
    second = (await owner_of.send("/console/agent-runs", **follow)).headers["location"]
    await agent.work()
    page = (await owner_of.get(second)).text
    assert "Earlier in this conversation" in page
    assert UNKNOWN in page
    assert "customs form" in page
    empty = await owner_of.send("/console/agent-runs", query="", playbook="kept")
    assert empty.status_code == 422
    assert 'value="kept"' in empty.text


async def test_list_of_runs_shows_task_result_and_work(owner_of, api, runtime, tenant) -> None:
    worker = Agent(api, runtime, tenant)
    assert "All work is done, and nothing failed." in (await owner_of.get("/console/runs")).text
    for n in range(2):
        body = {
            "playbook": "support",
            "outcome": "failure",
            "task_description": f"Refund order {n}",
            "events": [
                {"event_type": "tool_call", "tool_name": "refund", "content": '{"order": 7}'},
                {"event_type": "error_event", "content": f"Order {n} is open"},
            ],
        }
        assert (await api.post("/api/v1/traces", json=body)).status_code == 201
    page = (await owner_of.get("/console/runs")).text
    assert "2 wait, 0 are running. The oldest waits for" in page
    await worker.work()
    page = (await owner_of.get("/console/runs")).text
    assert "All work is done, and nothing failed." in page
    rows = re.findall(r"<tr>\s*<td>(.*?)</tr>", page, re.DOTALL)
    [reflected, *_] = [row for row in rows if ">Reflection</a>" in row and "Refund order 0" in row]
    assert "One reflection" in reflected
    assert "support" in reflected
    assert re.search(r"\d+ (?:ms|sec|msec)", reflected)
    run = re.search(r"/console/runs/([\w-]+)", reflected)
    assert run
    detail = (await owner_of.get(f"/console/runs/{run[1]}")).text
    assert "One reflection</a></p>" in detail
    assert "<summary>Result as JSON</summary>" in detail


async def test_overview_sums_the_week(owner_of, api, runtime, tenant) -> None:
    made = await api.post("/api/v1/playbooks/support/bullets", json={"content": "Pay twice."})
    key = made.json()["bullet"]["id"]
    for number in range(2):
        event = {"event_type": "user_message", "content": f"Pay invoice {number}"}
        body = {"playbook": "support", "outcome": "failure", "events": [event]}
        sent = await api.post("/api/v1/traces", json=body)
        verdict = {"tag": "harmful", "trace_id": sent.json()["trace_id"]}
        await api.post(f"/api/v1/playbooks/support/bullets/{key}/verdicts", json=verdict)
    page = (await owner_of.get("/console")).text
    assert "last 7 days" not in page
    assert page.count(f"since {format_day(last_days(7)[0], load_translation('en'))}") == 3
    assert "Agents sent 2 traces." in page
    assert "One bullet is new." in page
    harmful = page.split("What does harm", 1)[1]
    assert f">{key}</a>" in harmful
    assert "Pay twice." in harmful
    assert "2 harmful, 0 helpful" in page
    assert f">{key}</a> Pay twice." in page.split("What was learned", 1)[1].split("</ul>", 1)[0]
    assert re.search(r"Bullets that help</dt><dd>0<", page)
    # As for the counters of the bullet, an outcome counts only if it is confirmed.
    async with runtime.sessions.for_tenant(tenant.id) as session:
        change = update(BulletVerdictRow).where(BulletVerdictRow.tenant_id == tenant.id)
        await session.execute(change.values(judge="outcome"))
    assert "No bullet got more harmful" in (await owner_of.get("/console")).text


async def test_keys_of_an_answer_are_links(owner_of, sample) -> None:
    page = await owner_of.get(f"/console/analytics/verdict_drift?{JULY}")
    assert 'href="/console/playbooks/support/bullets/mis-00005">mis-00005</a>' in page.text


async def test_answer_is_downloaded_as_csv(owner_of, sample) -> None:
    answer = await owner_of.get(f"/console/analytics/playbook_sizes?{JULY}&csv=true")
    assert answer.headers["content-type"].startswith("text/csv")
    assert len(list(csv.DictReader(io.StringIO(answer.text)))) == 31
    assert (await owner_of.get("/console/analytics/movers?since=x")).status_code == 422
    assert (await owner_of.get("/console/analytics/movers?since=9999-12-31")).status_code == 422
    assert (await owner_of.get("/console/analytics/weather")).status_code == 404
    quarter = "/console/analytics/effects?since=2025-03-01&until=2025-07-31"
    assert "at most 92 days" in (await owner_of.get(quarter)).text


async def test_error_page_rolls_back(owner_of, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that fails in the database ends the transaction and shows an error page."""
    monkeypatch.setattr(analytics_queries, "MAX_STATEMENT_SECONDS", 0.001)
    answer = await owner_of.get("/console/analytics/funnel")
    assert answer.status_code == 422
    assert "takes longer than" in answer.text


async def test_costs_and_budgets(owner_of, console, tenant, api) -> None:
    fields = {"period": "day", "limit_usd": "5", "when_spent": "rules", "purpose": "reflect"}
    assert (await owner_of.send("/console/costs/budgets", **fields)).status_code == 303
    assert (
        await owner_of.send("/console/costs/budgets", period="month", limit_tokens="9")
    ).is_redirect
    page = (await owner_of.get("/console/costs")).text
    assert "$5.00" in page
    assert "$0.00 so far this month" in page
    assert "Each day · all projects · reflection: $0.00 of $5.00 spent." in page
    reader = await console(tenant.keys["read"])
    assert (await reader.send("/console/costs/budgets", **fields)).status_code == 403
    wrong = await owner_of.send("/console/costs/budgets", period="day", limit_usd="much")
    assert (wrong.status_code, "US dollars: Must be a number, such as 2.50." in wrong.text) == (
        422,
        True,
    )
    neither = await owner_of.send("/console/costs/budgets", period="day")
    assert "Each budget needs US dollars (<code>limit_usd</code>)" in neither.text
    unknown = await owner_of.send("/console/costs/budgets", **fields | {"purpose": "nonsense"})
    assert unknown.status_code == 422
    deleted = await owner_of.send("/console/costs/budgets/delete", budget="month//")
    assert deleted.status_code == 303
    kept = (await api.get("/api/v1/budgets")).json()["items"]
    assert [(item["period"], item["purpose"], item["limit_usd"]) for item in kept] == [
        ("day", "reflect", 5.0)
    ]


def test_each_prompt_of_the_service_has_a_purpose() -> None:
    prompts = {path.stem for path in Path("prompts/maintenance").glob("*.txt")}
    prompts |= {f"grace_{path.stem}" for path in Path("prompts/grace").glob("*.txt")}
    assert prompts <= {*get_args(Purpose)}


async def test_projects_are_suggested_to_keys_that_see_them(owner_of, api) -> None:
    events = [{"event_type": "user_message", "content": "Send it back"}]
    trace = {"project_id": "returns & co", "outcome": "success", "events": events}
    assert (await api.post("/api/v1/traces", json=trace)).status_code == 201
    page = await owner_of.get("/console/projects")
    assert '<option value="returns &amp; co"></option>' in page.text


async def test_key_is_shown_once_and_revoked(owner_of, console, tenant) -> None:
    created = await owner_of.send("/console/keys", name="ci", scope="read")
    key = re.search(r"hsk_[\w-]+", created.text)
    assert key
    assert key[0] not in (await owner_of.get("/console/keys")).text
    user = await console(key[0])
    assert (await user.get("/console")).status_code == 200
    assert (await user.get("/console/keys")).status_code == 403
    action = re.search(r'action="([^"]+/revoke)"[^§]*?Revoke ci', created.text)
    assert action
    row = created.text.split("<strong>ci</strong>", 1)[1]
    revoke = re.search(r'action="([^"]+/revoke)"', row)
    assert revoke
    assert (await owner_of.send(revoke[1])).status_code == 303
    page = (await owner_of.get("/console/keys")).text
    assert re.search(r"Keys that work: \d+; \d+ of them were never used\. Revoked: 1\.", page)
    assert (await user.get("/console")).status_code == 303


async def open_page(chromium: Browser, live: str, key: str) -> Page:
    page = await chromium.new_page()
    await log_in(page, live, key)
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    return page


async def test_refused_form_keeps_what_was_typed_in_browser(
    chromium: Browser, live: str, tenant: TestTenant
) -> None:
    page = await open_page(chromium, live, tenant.keys["admin"])
    await page.goto(f"{live}/console/costs")
    budget = page.locator("form", has=page.get_by_role("button", name="Save budget"))
    await budget.get_by_label("US dollars").fill("much")
    await budget.get_by_label("Tokens").fill("900")
    await budget.get_by_role("button", name="Save budget").click()
    await expect(budget.get_by_role("alert")).to_contain_text("Must be a number")
    await expect(budget.get_by_label("US dollars")).to_have_attribute("aria-invalid", "true")
    await expect(budget.get_by_label("US dollars")).to_be_focused()
    await expect(budget.get_by_label("Tokens")).to_have_value("900")
    await budget.get_by_label("US dollars").fill("5")
    await budget.get_by_role("button", name="Save budget").click()
    await expect(page.get_by_role("status")).to_contain_text("The budget was saved.")
    # A page that is the answer to a form: the key is in no address.
    await page.goto(f"{live}/console/keys")
    await page.get_by_label("Name").fill("ci")
    await page.get_by_role("button", name="Create").click()
    await expect(page.locator("#new-key")).to_contain_text("hsk_")
    await page.context.clear_cookies()
    await page.get_by_label("Name").fill("late")
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("alert")).to_contain_text("Your session has ended.")
    await expect(page.get_by_label("Name")).to_have_value("late")
    await page.close()


async def test_person_answers_agent_in_browser(
    chromium: Browser, live: str, tenant: TestTenant, agent: Agent
) -> None:
    """The page follows the run by itself: nobody loads it again."""
    page = await open_page(chromium, live, tenant.keys["admin"])
    await page.goto(f"{live}/console/agent-runs")
    await page.get_by_label("Question").fill(UNKNOWN)
    async with page.expect_navigation():
        await page.get_by_role("button", name="Ask").click()
    await agent.work()
    words = page.get_by_label("Other words for the question")
    await words.fill("How many working days do parcels to Norway take?")
    await page.get_by_role("button", name="Ask again").click()
    await expect(words).to_have_count(0)
    await agent.work()
    await expect(page.get_by_text("nine working days").first).to_be_visible()
    # An agent that is less sure asks before a step, and goes on when the person says so.
    agent.config = config(thresholds={"silent": 1.0, "notify": 1.0, "confirm": 0.01})
    await page.goto(f"{live}/console/agent-runs")
    await page.get_by_label("Question").fill(KNOWN)
    async with page.expect_navigation():
        await page.get_by_role("button", name="Ask").click()
    await agent.work()
    await page.get_by_role("button", name="Use it").click()
    await expect(page.get_by_role("button", name="Use it")).to_have_count(0)
    await agent.work()
    await expect(page.get_by_role("heading", name="Was it right?")).to_be_visible()
    await page.close()


async def test_person_watches_and_retries_runs_in_browser(
    chromium: Browser, live: str, tenant: TestTenant, runtime, queue_run
) -> None:
    run = await queue_run(max_attempts=1)
    page = await open_page(chromium, live, tenant.keys["write"])
    await page.goto(f"{live}/console/runs/{run.id}?project={run.project_id}")
    await expect(page.locator("#run .badge").first).to_have_text("queued")
    await kill_run(runtime, tenant, run.id)
    await expect(page.locator("#run .badge").first).to_have_text("failed on every attempt")
    await page.get_by_role("button", name="Retry").click()
    await expect(page.get_by_text("The run is queued again.")).to_be_visible()
    await expect(page.locator("#run .badge").first).to_have_text("queued")
    await page.close()


async def test_person_downloads_csv_in_browser(
    chromium: Browser, live: str, sample: TestTenant
) -> None:
    page = await open_page(chromium, live, sample.keys["read"])
    await page.goto(f"{live}/console/analytics/playbook_sizes?{JULY}")
    async with page.expect_download() as started:
        await page.get_by_role("link", name="Download CSV").click()
    path = await (await started.value).path()
    assert len(list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))) == 31
    await page.close()


async def test_collections_are_created_filled_and_emptied(owner_of, agent: Agent) -> None:
    page = await owner_of.get("/console/collections")
    assert "handbook" in page.text
    assert re.search(r"Documents: 1; passages that a search can find: [1-9]", page.text)
    made = await owner_of.send("/console/collections", name="faq", description="Questions")
    address = made.headers["location"]
    assert address.endswith("/console/collections/faq")
    long = await owner_of.send("/console/collections", name="x" * 5_000, description="Kept text")
    assert long.status_code == 422
    field = re.search(r'name="name" value="(x+)".*?At most 128 characters\.', long.text, re.DOTALL)
    assert field, "the error is at the field"
    assert len(field[1]) == 5_000
    assert "Kept text" in long.text
    again = await owner_of.send("/console/collections", name="faq", description="Kept text")
    assert again.status_code == 409
    assert "Kept text" in again.text
    assert "No document yet" in (await owner_of.get(address)).text
    long = await owner_of.send(f"{address}/documents", title="t" * 201, text="Kept text")
    assert "Title: At most 200 characters." in long.text
    wrong = await owner_of.send(f"{address}/documents", title="", text="Kept text")
    assert wrong.status_code == 422
    assert "Kept text" in wrong.text
    added = await owner_of.send(f"{address}/documents", title="Returns", text=f"# A {HOSTILE}")
    assert added.status_code == 303
    await agent.work()
    page = await owner_of.get(address)
    assert "Returns" in page.text
    assert ">done<" in page.text
    delete = re.search(r'action="([^"]+/delete)"', page.text)
    assert delete is not None
    assert (await owner_of.send(delete.group(1))).status_code == 303
    while await agent.work():
        pass
    assert "No document yet" in (await owner_of.get(address)).text
    assert (await owner_of.get("/console/collections/none")).status_code == 404


async def test_budget_is_added_to_the_newest_list(
    owner_of: ConsoleClient, api, runtime, tenant: TestTenant
) -> None:
    """Another person replaces the budgets while the form is sent."""
    limit = {"period": "day", "project_id": "before", "limit_tokens": 1}
    (await api.put("/api/v1/budgets", json={"items": [limit]})).raise_for_status()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        row = BudgetRow(tenant_id=tenant.id, period="day", project_id="now", limit_tokens=1)
        await replace_budgets(session, [row])
        form = {"period": "day", "project": "added", "limit_usd": "1"}
        sent = asyncio.create_task(owner_of.send("/console/costs/budgets", **form))
        await asyncio.wait([sent], timeout=0.5)
    assert (await sent).status_code == 303
    items = (await api.get("/api/v1/budgets")).json()["items"]
    assert {item["project_id"] for item in items} == {"now", "added"}


def links(page: str, text: str) -> list[str]:
    """The addresses of the links with this text, in the main part of a page."""
    main = html.unescape(page).split("<main", 1)[1]
    return re.findall(rf'href="([^"]+)"[^>]*>{re.escape(text)}</a>', main)


async def test_lists_lead_back_and_say_how_much_there_is(
    owner_of, api, tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces_pages, "PAGE_SIZE", 2)
    for number in range(7):
        body = {"task_description": f"task {number}", "outcome": "success", "events": [EVENT]}
        sent = await api.post("/api/v1/traces?reflect=never", json=body)
        assert sent.status_code == 201, sent.text
    pages = [(await owner_of.get("/console/traces?outcome=success")).text]
    assert "Page 1 of 4, 7 in all" in pages[0]
    assert links(pages[0], "Previous page") == links(pages[0], "First page") == []
    addresses = ["/console/traces?outcome=success"]
    while following := links(pages[-1], "Next page"):
        addresses += following
        pages.append((await owner_of.get(following[0])).text)
    tasks = [re.findall(r">task (\d)</a>", page) for page in pages]
    assert tasks == [["6", "5"], ["4", "3"], ["2", "1"], ["0"]]
    assert "Page 4 of 4" in pages[3]
    back = [links(page, "Previous page")[0] for page in pages[1:]]
    assert [re.sub(r"\?.*", "", address) for address in back] == ["/console/traces"] * 3
    shown = [(await owner_of.get(address)).text for address in back]
    assert [re.findall(r">task (\d)</a>", page) for page in shown] == tasks[:3]
    assert links(pages[3], "First page") == addresses[:1]
    for wrong in ("x", "3", "0.x", "1.x", "2.x", f"2.{'é' * 9}", "9" * 30):
        assert (await owner_of.get(f"/console/traces?page={wrong}")).status_code == 422, wrong
    found = (await owner_of.get("/console/traces?words=TASK+3")).text
    assert re.findall(r">task (\d)</a>", found) == ["3"]
    assert "1 in all" in found


async def test_list_that_is_not_counted_to_its_end(
    owner_of, api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (paging, console_queries):
        monkeypatch.setattr(module, "MAX_COUNTED", 2)
    for number in range(4):
        event = EVENT | {"content": f"Hello {number}"}
        sent = await api.post("/api/v1/traces?reflect=never", json={"events": [event]})
        assert sent.status_code == 201, sent.text
    assert "Page 1 of more than 1" in (await owner_of.get("/console/traces")).text


async def test_result_of_a_run_leads_to_what_it_made(owner_of, api, runtime, tenant, drain) -> None:
    events = [
        {"event_type": "user_message", "content": "Fetch the report"},
        {"event_type": "tool_call", "tool_name": "fetch", "content": '{"id": "7"}'},
        {"event_type": "error_event", "tool_name": "fetch", "content": "id must be an integer"},
        {"event_type": "tool_call", "tool_name": "fetch", "content": '{"id": 7}'},
        {"event_type": "tool_response", "tool_name": "fetch", "content": "ok"},
    ]
    body = {"playbook": "support", "task_description": "Fetch the report", "events": events}
    sent = await api.post("/api/v1/traces", json=body | {"outcome": "failure"})
    await drain(tenant.id)
    runs = (await api.get("/api/v1/runs")).json()["items"]
    by_kind = {run["kind"]: run for run in runs}
    trace = f"/console/traces/{sent.json()['trace_id']}"

    async def result_of(kind: str) -> str:
        return (await owner_of.get(f"/console/runs/{by_kind[kind]['id']}")).text

    reflection, *_in_chain = links(await result_of("reflect"), "One reflection")
    assert reflection.startswith(f"{trace}#lesson-")
    assert f'id="{reflection.split("#")[1]}"' in (await owner_of.get(trace)).text
    reflect = f"/console/runs/{by_kind['reflect']['id']}"
    assert reflect in links(await result_of("evaluate"), "a reflection follows")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        row = await session.get(RunRow, (tenant.id, UUID(by_kind["reflect"]["id"])))
        keys = [f"mis-{number:05}" for number in range(12)]
        row.kind, row.result = "apply", {"playbook": "support", "version": 7, "keys": keys}
    page = await result_of("reflect")
    assert "/console/playbooks/support/bullets/mis-00009" in links(page, "mis-00009")
    assert "</a> and 2 more in <a" in page
    version, *_in_chain = links(page, "version 7")
    assert version == "/console/playbooks/support/timeline?at=7"
    listed = html.unescape((await owner_of.get("/console/runs")).text)
    assert f'href="{version}"' in listed
    assert "The newest change from learning:" in listed
