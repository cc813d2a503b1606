"""The console in Debian's chromium: what a person does, and what axe-core finds on every page."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.console.browsing import log_in, open_whole_page, pages_of
from tests.console.sample import Sample, fill_sample
from tests.grace.conftest import Agent

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
FIND_FAULTS = """async () => (await axe.run()).violations.map(
  v => [v.impact, v.id,
        v.nodes.slice(0, 3).map(n => n.target.join(' ') + ' ' + n.failureSummary)])"""
HAS_OUTLINE = """e => {
  const style = getComputedStyle(e);
  return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
}"""
MAX_TABS = 200
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


@dataclass
class Keyboard:
    """A person who has no mouse."""

    page: Page

    async def move_to(self, target: Locator) -> None:
        """Press Tab until the element has the focus, which must be visible."""
        await expect(target).to_be_attached()
        for _ in range(MAX_TABS):
            await self.page.keyboard.press("Tab")
            if await target.evaluate("e => e === document.activeElement"):
                assert await target.evaluate(HAS_OUTLINE), f"{target} has no visible focus"
                return
        pytest.fail(f"Tab does not reach {target}")

    async def press(self, role: Any, name: str, **options: Any) -> None:
        await self.move_to(
            self.page.get_by_role(role, name=name, **options).locator("visible=true")
        )
        await self.page.keyboard.press("Enter")

    async def type_into(self, label: str, text: str) -> None:
        await self.move_to(self.page.get_by_label(label))
        await self.page.keyboard.press("Control+A")
        await self.page.keyboard.type(text)

    async def skip_navigation(self) -> None:
        """The first Tab shows the skip link; after it, Tab goes on in the content."""
        await self.page.evaluate("document.activeElement.blur()")
        skip = self.page.get_by_role("link", name="Skip to content")
        await self.move_to(skip)
        await expect(skip).to_be_in_viewport()
        await self.page.keyboard.press("Enter")
        await self.page.keyboard.press("Tab")
        assert await self.page.evaluate("document.activeElement.closest('main') !== null")
        await self.page.keyboard.press("Shift+Tab")


async def test_person_with_a_keyboard_searches_edits_judges_and_restores(
    page: Page, live: str, tenant, sample
) -> None:
    keyboard = Keyboard(page)
    await page.context.clear_cookies()
    await page.goto(f"{live}/console/login?next=/console/playbooks/support")
    await keyboard.type_into("API key", tenant.keys["admin"])
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="support")).to_be_visible()
    await keyboard.skip_navigation()
    await keyboard.press("link", "Search", exact=True)
    await keyboard.type_into("Query", "refund")  # the script searches
    await expect(page.locator("#hits")).to_contain_text("The agent gets")
    await keyboard.press("link", sample.keys[1])
    await keyboard.press("link", "Edit")
    await keyboard.type_into("Text", "Ask before a refund.")
    await keyboard.press("button", "Compare")
    await expect(page.locator("ins").first).to_contain_text("Ask")
    await keyboard.press("button", "Save")
    await expect(page.get_by_role("status")).to_contain_text("saved")
    await keyboard.move_to(page.get_by_label("helpful"))
    await page.keyboard.press("ArrowRight")
    await expect(page.get_by_label("harmful")).to_be_checked()
    await keyboard.press("button", "Record the verdict")
    await expect(page.get_by_role("status")).to_contain_text("verdict")
    await page.goto(f"{live}/console/playbooks/support/timeline")
    await keyboard.move_to(page.get_by_role("slider"))
    await page.keyboard.press("ArrowLeft")  # the script shows the version before
    await expect(page.locator("#moment")).to_contain_text("Restore version")
    await keyboard.press("button", "Restore version")
    await keyboard.press("button", "Restore", exact=True)
    await expect(page.get_by_role("status")).to_contain_text("restored")
    await keyboard.move_to(page.get_by_role("link", name="Skip to content"))  # no trap on the way
    await keyboard.press("button", "Log out")
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()


HOSTILE = "<script>document.title = 'gone'</script> [x](javascript:alert(2)) " + "w" * 10_000


async def test_axe_finds_nothing_on_any_page(
    page: Page, live: str, api, runtime, tenant, sample: Sample
) -> None:
    """Accessible in both themes, no page is wider than a phone, and stored text stays text."""
    made = await api.post("/api/v1/playbooks/support/bullets", json={"content": HOSTILE})
    hostile = f"/console/playbooks/support/bullets/{made.json()['bullet']['id']}"
    await Agent(api, runtime, tenant).work()
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
            if faults or await page.evaluate(OVERFLOW) > 0:
                found[f"{name} {theme}"] = faults or "too wide"
            assert "gone" not in await page.title()
    assert found == {}


async def test_chart_shows_the_numbers_of_its_table(page: Page, live: str, sample: Sample) -> None:
    await open_whole_page(page, f"{live}/console/analytics/playbook_sizes?playbook=support")
    titles = await page.locator("svg.wide .point title").all_text_contents()
    cells = await page.locator(".chart td").all_text_contents()
    assert [title.split()[-1] for title in titles] == cells
    assert cells[-1] == "7"


HOSTILE_ERROR = (
    '<b hx-post="/console/keys" hx-trigger="load" hx-include="[name=csrf]"'
    ' hx-vals=\'{"name":"mine","scope":"admin"}\' data-part="/console/keys"'
    ' onclick="alert(1)">here</b><form data-target="content"><script src="/console/static/x.js">'
)


async def test_error_text_of_a_statement_runs_nothing(
    credential, chromium: Browser, live: str, api, tenant
) -> None:
    """A bullet that a write key stored is the text of an error that an administrator sees."""
    await api.post("/api/v1/playbooks/support/bullets", json={"content": HOSTILE_ERROR})
    before = (await api.get("/api/v1/keys")).json()["items"]
    page = await chromium.new_page()
    sent: list[str] = []
    page.on("request", lambda request: sent.append(f"{request.method} {request.url}"))
    await log_in(page, live, tenant.keys["admin"])
    await page.goto(f"{live}/console/sql")
    await page.locator("[name=statement]").fill("select content::int from bullets")
    sent.clear()
    await page.get_by_role("button", name="Run").click()
    await expect(page.get_by_role("alert")).to_contain_text('<b hx-post="/console/keys"')
    await page.wait_for_timeout(1_000)
    assert await page.locator("[hx-post], [data-part], [role=alert] b").count() == 0
    assert sent[0] == f"POST {live}/console/sql"
    assert not [request for request in sent[1:] if "/console/static/" not in request]
    assert (await api.get("/api/v1/keys")).json()["items"] == before
    await page.close()
