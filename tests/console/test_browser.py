"""The console in Debian's chromium."""

from __future__ import annotations

from playwright.async_api import Browser, Page, expect


async def log_in(page: Page, live: str, key: str) -> None:
    await page.goto(f"{live}/console")
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Log in").click()


async def test_person_logs_in_and_out(chromium: Browser, live: str, tenant) -> None:
    page = await chromium.new_page()
    problems: list[str] = []
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    await log_in(page, live, tenant.keys["read"])
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    assert problems == []
    await page.close()
