"""Pictures of every page at both widths and in both themes: `python -m tests.console.screenshots
FOLDER [WORD]`. With WORD, only the pictures whose name contains it; with `readme`, those of
`README_PICTURES`, without what is below the window.

Starts an embedded PostgreSQL and a service in a temporary folder, with the data of `hansei demo`.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import uvicorn
from playwright.async_api import Browser, async_playwright

from memory_api.auth.identity import KeyScope
from memory_api.auth.queries import create_key
from memory_api.commands.demo import create_demo
from memory_api.core.db import Sessions, open_engine
from memory_api.core.ids import to_tenant_id
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging
from memory_api.main import create_app
from tests.console.browsing import CHROMIUM_FLAGS, log_in, open_whole_page, pages_of
from tests.console.sample import Sample
from tests.support import postgres

DATABASE = "pictures"
WIDTHS = {"wide": 1280, "narrow": 390}
THEMES = ("light", "dark")
README_PICTURES = {"overview-wide-light", "review-wide-dark"}


@contextmanager
def served(url: str) -> Iterator[str]:
    """The URL of a service in its own thread."""
    settings = Settings(_env_file=None, curation_interval=0, rate_limit_failed_keys="off")  # type: ignore[call-arg]
    config = uvicorn.Config(create_app(settings, url), port=0, loop="asyncio", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(timeout=20)


async def load_demo(server: postgres.Server) -> str:
    """The tenant of the pictures with all of `hansei demo`, and a key of each scope. Returns the
    admin key of the support team.
    """
    owner = Sessions(open_engine(server.url("hansei_owner", DATABASE), pool_size=1))
    settings = Settings(_env_file=None)  # type: ignore[call-arg]
    await create_demo(settings, owner, server.url("hansei_worker", DATABASE), "pictures")
    async with owner.for_tenant(to_tenant_id("pictures")) as session:
        for scope in (KeyScope.READ, KeyScope.WRITE, KeyScope.ADMIN):
            name = f"{scope.value} of the support team"
            _row, key = await create_key(session, scopes=[scope], name=name)
    await owner.close()
    return key.text


async def find_sample(api: httpx2.AsyncClient) -> Sample:
    """What the pictures of single bullets, traces and runs show."""

    async def ids(path: str, **query: str) -> list[str]:
        answer = await api.get(path, params={"limit": "5", **query})
        return [item["id"] for item in answer.raise_for_status().json()["items"]]

    traces = await ids("/api/v1/traces", playbook="orders", outcome="failure")
    runs = await ids("/api/v1/runs", kind="reflect")
    keys = ["ctx-00001", "mis-00002", "ctx-00003", "ctx-00004"]
    waiting, *answered = await ids("/api/v1/agents/runs")
    report = (await ids("/api/v1/evaluation-reports"))[0]
    query = "add+30+pieces+to+an+order"
    return Sample(keys, traces, runs, [answered[2], waiting], report, "orders", query)


async def take_pictures(
    browser: Browser, url: str, key: str, sample: Sample, to: tuple[Path, str]
) -> None:
    folder, word = to
    is_readme = word == "readme"
    for width_name, width in WIDTHS.items():
        for theme in THEMES:
            context = await browser.new_context(
                viewport={"width": width, "height": 860},
                color_scheme=theme,
                device_scale_factor=1 if is_readme else 1.5,
            )
            page = await context.new_page()
            await page.goto(f"{url}/console/login")
            login = f"login-{width_name}-{theme}"
            if word in login:
                await page.screenshot(path=folder / f"{login}.png")
            await log_in(page, url, key)
            for page_name, path in pages_of(sample).items():
                name = f"{page_name}-{width_name}-{theme}"
                if name in README_PICTURES if is_readme else word in name:
                    await open_whole_page(page, f"{url}{path}")
                    if page_name == "sql":
                        await page.get_by_role("button", name="Run").click()
                        await page.get_by_role("heading", name="Result").wait_for()
                    await page.screenshot(path=folder / f"{name}.png", full_page=not is_readme)
            await context.close()


async def make_pictures(server: postgres.Server, folder: Path, word: str) -> None:
    await server.make_template()
    await server.clone(DATABASE)
    key = await load_demo(server)
    with served(server.url("hansei_app", DATABASE)) as url:
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=30) as api:
            sample = await find_sample(api)
        async with async_playwright() as playwright:
            chromium = shutil.which("chromium")
            browser = await playwright.chromium.launch(
                executable_path=chromium, args=CHROMIUM_FLAGS
            )
            await take_pictures(browser, url, key, sample, (folder, word))
            await browser.close()


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    configure_logging("console", "error")
    with tempfile.TemporaryDirectory() as scratch, postgres.embedded(Path(scratch)) as server:
        asyncio.run(make_pictures(server, folder, arguments[1] if len(arguments) > 1 else ""))


if __name__ == "__main__":
    main(sys.argv[1:])
