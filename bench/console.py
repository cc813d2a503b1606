"""Server time of every page of the console at size: `python -m bench console [--short]`.

The playbook of `bench analytics` with its year of history, ending now, and one trace of 200 events.
Each page is requested from the application in this process, with a session, without a network.
"""

from __future__ import annotations

import asyncio
import html
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID, uuid4

import httpx2
import typer
from fastapi import FastAPI

from bench.analytics import FULL, SHORT, describe_run, prepare
from bench.analytics_rows import History
from bench.report import Report
from bench.server import MeasuredServer, connect, measured_server
from bench.timing import Call, spread
from memory_api.analytics.queries import create_login, replace_sql_credential
from memory_api.analytics.questions import Question
from memory_api.auth.identity import KeyScope
from memory_api.auth.queries import create_key
from memory_api.bootstrap import freeze_startup_objects, open_runtime
from memory_api.commands.sql_logins import scram_verifier
from memory_api.console.router import PAGES
from memory_api.core.db import Sessions, open_engine
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging
from memory_api.main import create_app

LIMIT_MS = 150
LATER = re.compile(r'class="later" data-part="([^"]+)"')
TIMES = 10
BOOK = "/console/playbooks/{name}"
PAGE_QUERIES = {
    f"{BOOK}": ("", "?sort=usefulness", "?status=quarantined"),
    f"{BOOK}/search": ("?q=check+an+argument",),
    f"{BOOK}/timeline": ("", "?since=100"),
    "/console/traces": ("", "?outcome=failure"),
    "/console/runs": ("", "?state=done"),
    "/console/analytics/{question}": ("?playbook=support",),
}
"""The query strings with which a page is measured. Default: none."""


def page_paths() -> list[str]:
    """The path of every page, with placeholders."""
    paths = {
        route.path
        for router in PAGES
        for route in router.routes
        if "GET" in getattr(route, "methods", ()) and not route.path.endswith("/")
    }
    return sorted(paths)


async def add_key(server: MeasuredServer, tenant: UUID) -> str:
    """Create an API key of the tenant, and its login for the SQL page."""
    owner = Sessions(open_engine(server.url("hansei_owner"), pool_size=1))
    password = uuid4().hex
    async with owner.for_tenant(tenant) as session:
        key = (await create_key(session, scopes=[KeyScope.ADMIN]))[1]
        login = await create_login(session, scram_verifier(password))
        await replace_sql_credential(session, login, password)
    await owner.close()
    return key.text


async def log_in(client: httpx2.AsyncClient, key: str) -> None:
    page = await client.get("/console/login")
    token = page.text.split('name="csrf" value="')[1].split('"')[0]
    answer = await client.post("/console/login", data={"csrf": token, "key": key})
    assert answer.status_code == 303, answer.text


async def add_trace(client: httpx2.AsyncClient, key: str) -> str:
    """Send a trace of 200 events and return its ID."""
    events = [
        {"event_type": "llm_response", "content": f"Step {n}. " + "word " * 50} for n in range(200)
    ]
    answer = await client.post(
        "/api/v1/traces",
        json={
            "playbook": "support",
            "task_description": "Close a ticket",
            "outcome": "failure",
            "events": events,
        },
        headers={"Authorization": f"Bearer {key}"},
    )
    assert answer.is_success, answer.text
    return answer.json()["trace_id"]


async def measure(server: MeasuredServer, report: Report, tenant: UUID) -> None:
    configure_logging("console", "error")
    key = await add_key(server, tenant)
    settings = Settings(_env_file=None)  # type: ignore[call-arg]
    async with open_runtime(settings, server.url("hansei_app")) as runtime:
        app = create_app(settings, runtime=runtime)
        async with app.router.lifespan_context(app), open_client(app) as client:
            await log_in(client, key)
            freeze_startup_objects()  # as the service does
            examples = await find_examples(server, tenant, await add_trace(client, key))
            for path in page_paths():
                for query in PAGE_QUERIES.get(path, ("",)):
                    for address in fill_in(path, examples):
                        await measure_page(client, report, address + query)


def open_client(app: FastAPI) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://hansei")


async def find_examples(
    server: MeasuredServer, tenant: UUID, trace_id: str
) -> dict[str, list[str]]:
    """Values of the placeholders of paths. The bullet is the one with the most verdicts."""
    superuser = await connect(server.url("postgres"))
    bullet = await superuser.fetchval(
        "select key from memories where tenant_id = $1 and kind = 'bullet' and status = 'active'"
        " order by helpful + harmful desc, key limit 1",
        tenant,
    )
    run = await superuser.fetchval("select id from runs where tenant_id = $1 limit 1", tenant)
    agent_run = await superuser.fetchval(
        "select id from agent_runs where tenant_id = $1 order by created_at desc limit 1", tenant
    )
    await superuser.close()
    return {
        "name": ["support"],
        "key": [bullet],
        "trace_id": [trace_id],
        "run_id": [str(run)],
        "agent_run_id": [str(agent_run)],
        "question": [question.value for question in Question],
    }


def fill_in(path: str, examples: dict[str, list[str]]) -> list[str]:
    """The addresses of a path, one for each value of its placeholder."""
    for name, values in examples.items():
        if f"{{{name}}}" in path:
            return [
                address
                for value in values
                for address in fill_in(path.replace(f"{{{name}}}", value), examples)
            ]
    assert "{" not in path, f"add an example for {path}"
    return [path]


async def measure_page(client: httpx2.AsyncClient, report: Report, address: str) -> None:
    page = await client.get(address)
    assert page.status_code == 200, (address, page.status_code)
    later = LATER.search(page.text)

    def loading(target: str) -> Call:
        async def load(_: int) -> None:
            answer = await client.get(target)
            assert answer.status_code == 200, (target, answer.text)

        return load

    spent = await spread(loading(address), TIMES, warm=1)
    part = await spread(loading(html.unescape(later[1])), TIMES, warm=1) if later else ""
    verdict = "" if spent.p95 <= LIMIT_MS else f"over {LIMIT_MS} ms"
    report.row("pages", f"`{address}`", spent, part, verdict)


def open_report(history: History) -> Report:
    report = Report("console", f"{describe_run(history)} Server time, p50 / p95 in ms.")
    report.table("pages", "Pages", "page", "ms", "part that loads later, ms", "")
    return report


def main(
    short: Annotated[bool, typer.Option(help="A twentieth of the rows; writes no file.")] = False,
) -> None:
    history = SHORT if short else FULL
    history = replace(history, starts_at=datetime.now(UTC) - timedelta(days=history.days))
    with measured_server() as server:
        tenant = asyncio.run(prepare(server, history))
        report = open_report(history)
        asyncio.run(measure(server, report, tenant))
    report.finish(write=not short)


if __name__ == "__main__":
    typer.run(main)
