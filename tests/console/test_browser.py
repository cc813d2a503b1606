"""The console in Debian's chromium: what a person does, and what axe-core finds on every page."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.console.browsing import log_in, open_whole_page, pages_of
from tests.console.sample import Sample, fill_sample

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
SERIOUS = ("serious", "critical")
FIND_FAULTS = """async () => (await axe.run()).violations.map(
  v => [v.impact, v.id,
        v.nodes.slice(0, 3).map(n => n.target.join(' ') + ' ' + n.failureSummary)])"""
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
async def sample(api, tenant) -> Sample:
    return await fill_sample(api, tenant.keys["write"])


@pytest.fixture
async def page(chromium: Browser, live: str, tenant):
    """A page of an administrator. Fails if the browser reports an error or a blocked script."""
    opened = await chromium.new_page()
    problems: list[str] = []
    opened.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    opened.on("pageerror", lambda error: problems.append(str(error)))
    await log_in(opened, live, tenant.keys["admin"])
    yield opened
    await opened.close()
    assert problems == []


async def test_person_searches_edits_judges_and_restores(page: Page, live: str, sample) -> None:
    await page.get_by_role("link", name="Playbooks").first.click()
    await page.get_by_role("link", name="support", exact=True).click()
    await page.get_by_role("link", name="Search", exact=True).click()
    await page.get_by_label("Query").press_sequentially("refund", delay=5)  # htmx searches
    await expect(page.locator("#hits")).to_contain_text("cosine")
    await page.locator("#hits").get_by_role("link", name=sample.keys[1]).click()
    await page.get_by_role("link", name="Edit").click()
    await page.get_by_label("Text").fill("Ask before a refund.")
    await page.get_by_role("button", name="Compare").click()
    await expect(page.locator("ins").first).to_contain_text("Ask")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status")).to_contain_text("saved")
    await page.get_by_text("harmful", exact=True).click()
    await page.get_by_role("button", name="Record the verdict").click()
    await expect(page.get_by_role("status")).to_contain_text("verdict")
    await page.goto(f"{live}/console/playbooks/support/timeline")
    slider = page.get_by_role("slider")
    await slider.focus()
    await slider.press("ArrowLeft")  # htmx shows the version before
    await expect(page.locator("#moment")).to_contain_text("Restore version")
    await page.get_by_role("button", name="Restore version").click()
    await page.get_by_role("button", name="Restore", exact=True).click()
    await expect(page.get_by_role("status")).to_contain_text("restored")
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()


HOSTILE = "<script>document.title = 'gone'</script> [x](javascript:alert(2)) " + "w" * 10_000


async def test_pages_have_no_serious_fault(page: Page, live: str, api, sample: Sample) -> None:
    """Accessible in both themes, no page is wider than a phone, and stored text stays text."""
    made = await api.post("/api/v1/playbooks/support/bullets", json={"content": HOSTILE})
    hostile = f"/console/playbooks/support/bullets/{made.json()['bullet']['id']}"
    found: dict[str, object] = {}
    pages = {"login": "/console/login", "hostile": hostile, **pages_of(sample)}
    del pages["missing"]  # its status would be an error of the browser
    for name, path in pages.items():
        for theme in ("light", "dark"):
            await page.emulate_media(color_scheme=theme)
            await page.set_viewport_size(
                {"width": 1280 if theme == "light" else 390, "height": 900}
            )
            await open_whole_page(page, live + path)
            await page.evaluate(AXE)
            faults = await page.evaluate(FIND_FAULTS)
            serious = [fault for fault in faults if fault[0] in SERIOUS]
            if serious or await page.evaluate(OVERFLOW) > 0:
                found[f"{name} {theme}"] = serious or "too wide"
            assert "gone" not in await page.title()
    assert found == {}


async def test_chart_shows_the_numbers_of_its_table(page: Page, live: str, sample: Sample) -> None:
    await page.goto(f"{live}/console/playbooks/support/timeline")
    titles = await page.locator("svg.wide .point title").all_text_contents()
    cells = await page.locator(".chart td").all_text_contents()
    assert [title.split()[-1] for title in titles] == cells
    assert cells[-1] == "7"
