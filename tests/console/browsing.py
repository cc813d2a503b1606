"""What browser tests and pictures share: how Chromium starts, the log-in, and the list of pages."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.console.sample import Sample

CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pages_of(sample: Sample) -> dict[str, str]:
    """Every page of the console by name, filled with the sample."""
    book = f"/console/playbooks/{sample.playbook}"
    return {
        "overview": "/console",
        "playbooks": "/console/playbooks",
        "bullets": book,
        "new": f"{book}/new",
        "search": f"{book}/search?q={sample.query}",
        "review": f"{book}/review",
        "timeline": f"{book}/timeline?since=2",
        "life": f"{book}/bullets/{sample.keys[1]}",
        "harmful": f"{book}/bullets/{sample.harmful}",
        "edit": f"{book}/bullets/{sample.keys[1]}/edit",
        "traces": "/console/traces",
        "trace": f"/console/traces/{sample.traces[2]}",
        "runs": "/console/runs",
        "run": f"/console/runs/{sample.runs[2]}",
        "dead-run": f"/console/runs/{sample.runs[4]}",
        "agent-runs": "/console/agent-runs",
        "agent-answer": f"/console/agent-runs/{sample.agent_runs[0]}",
        "agent-question": f"/console/agent-runs/{sample.agent_runs[1]}",
        "collections": "/console/collections",
        "collection": "/console/collections/handbook",
        "analytics": "/console/analytics",
        "answer": "/console/analytics/verdicts",
        "evaluations": "/console/evaluations",
        "evaluation": f"/console/evaluations/{sample.report}",
        "sql": "/console/sql",
        "costs": "/console/costs",
        "keys": "/console/keys",
        "missing": "/console/none",
    }


async def open_whole_page(page: Page, address: str) -> None:
    """Open a page and wait for the part that loads later."""
    await page.goto(address)
    await expect(page.locator(".later")).to_have_count(0)


async def log_in(page: Page, url: str, key: str) -> None:
    await page.goto(f"{url}/console/login")
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Log in").click()
    await page.wait_for_url(f"{url}/console")
