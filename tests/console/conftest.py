"""A client that is logged in to the console, and a browser."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from playwright.async_api import Browser, async_playwright

from memory_api.analytics.queries import get_sql_credential
from memory_api.core.db import Sessions
from tests.commands.test_sql_logins import run
from tests.conftest import Database, TestTenant
from tests.console.browsing import CHROMIUM_FLAGS

LATER = re.compile(r'<noscript><a class="button" href="([^"]+)"')
CSRF = re.compile(r'name="csrf" value="([0-9a-f]{64})"')


@dataclass
class ConsoleClient:
    """A browser without scripts: cookies, links and forms."""

    http: httpx2.AsyncClient

    async def log_in(self, key: str, target: str = "/console") -> httpx2.Response:
        page = await self.http.get("/console/login")
        token = CSRF.search(page.text)
        assert token
        form = {"csrf": token[1], "key": key, "next": target}
        return await self.http.post("/console/login", data=form)

    async def get(self, path: str) -> httpx2.Response:
        """A page. If a part of it loads later, follow its link for browsers without scripts."""
        page = await self.http.get(path)
        link = LATER.search(page.text)
        return await self.http.get(html.unescape(link[1])) if link else page

    async def send(self, path: str, **fields: str | list[str]) -> httpx2.Response:
        """Send a form with the CSRF token of the session."""
        token = CSRF.search((await self.http.get("/console")).text)
        assert token
        return await self.http.post(path, data={"csrf": token[1], **fields})


@pytest.fixture
async def console(app: FastAPI) -> AsyncIterator[Callable[..., Awaitable[ConsoleClient]]]:
    """Opens clients; with a key, they are logged in."""
    opened: list[httpx2.AsyncClient] = []

    async def open_client(key: str = "") -> ConsoleClient:
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        http = httpx2.AsyncClient(transport=transport, base_url="http://hansei")
        opened.append(http)
        client = ConsoleClient(http)
        if key:
            assert (await client.log_in(key)).status_code == 303
        return client

    yield open_client
    for http in opened:
        await http.aclose()


@pytest.fixture
async def owner_of(console, tenant: TestTenant) -> ConsoleClient:
    return await console(tenant.keys["admin"])


@pytest.fixture
def as_owner(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSEI_OWNER_URL", database.url("hansei_owner"))


@pytest.fixture
async def credential(as_owner: None, tenant: TestTenant, owner: Sessions) -> AsyncIterator[Any]:
    """The login of the page, as the operator creates it."""
    made = await run(tenant.slug, "--console")
    assert made.exit_code == 0, made.output
    async with owner.for_tenant(tenant.id) as session:
        row = await get_sql_credential(session)
    assert row
    assert row.role_name in made.output
    assert row.password not in made.output
    yield row
    assert (await run(tenant.slug, "--drop", row.role_name)).exit_code == 0


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield browser
        await browser.close()
