"""Log in with an API key: cookie, CSRF token, headers, scopes, end of a session."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import httpx2
import pytest
from sqlalchemy import update

from memory_api.console.session import IDLE, LOGIN_COOKIE, SESSION_COOKIE, csrf_token
from memory_api.console.tables import ConsoleSessionRow
from memory_api.console.visit import local_address
from tests.console.conftest import ConsoleClient
from tests.support.cases import each_case
from tests.support.live_service import with_runtime


async def test_stranger_is_sent_to_login(console) -> None:
    client = await console()
    answer = await client.get("/console/playbooks/support?x=1")
    assert answer.status_code == 303
    assert answer.headers["location"] == (
        "/console/login?next=%2Fconsole%2Fplaybooks%2Fsupport%3Fx%3D1"
    )
    part = await client.http.get("/console", headers={"Hansei-Part": "true"})
    assert part.status_code == 401


async def test_login_sets_strict_cookie_and_goes_on(console, tenant) -> None:
    client = await console()
    answer = await client.log_in(tenant.keys["read"], "/console/playbooks")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/playbooks")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Path=/console" in cookie
    assert "Secure" not in cookie
    assert tenant.keys["read"].split("_", 2)[2] not in cookie
    page = await client.get("/console")
    assert page.status_code == 200
    assert "Log out" in page.text


async def test_cookie_is_secure_over_https(app, console, tenant) -> None:
    client = await console()
    client.http.base_url = "https://hansei"
    answer = await client.log_in(tenant.keys["read"])
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("key", ["", "nonsense", "hsk_" + "a" * 26 + "_" + "x" * 43])
async def test_wrong_key_opens_no_session(console, key: str) -> None:
    client = await console()
    answer = await client.log_in(key)
    assert answer.status_code == 401
    assert "not valid" in answer.text
    assert (await client.get("/console")).status_code == 303


async def test_attempts_with_wrong_keys_are_limited(app, runtime, tenant) -> None:
    settings = runtime.settings.model_copy(update={"rate_limit_failed_keys": "3/hour"})
    changed = with_runtime(app, replace(runtime, settings=settings))
    transport = httpx2.ASGITransport(changed, client=("203.0.113.9", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://hansei") as http:
        client = ConsoleClient(http)
        unknown = "hsk_" + "a" * 26 + "_" + "x" * 42
        statuses = [(await client.log_in(f"{unknown}{n}")).status_code for n in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        assert "Too many attempts" in (await client.log_in(tenant.keys["read"])).text


async def test_operator_key_may_not_read(console, tenant) -> None:
    client = await console()
    assert (await client.log_in(tenant.keys["operator"])).status_code == 403


async def test_login_form_needs_its_token(console, tenant) -> None:
    client = await console()
    form = {"key": tenant.keys["read"]}
    assert (await client.http.post("/console/login", data=form)).status_code == 403
    await client.get("/console/login")
    forged = {**form, "csrf": "0" * 64}
    assert (await client.http.post("/console/login", data=forged)).status_code == 403


async def test_token_of_no_cookie_logs_nobody_in(console, tenant) -> None:
    """A foreign page knows its own key, and what the token is without a cookie. Its form must not
    log a person into its tenant, in a browser that sends no `Sec-Fetch-Site`."""
    client = await console()
    for cookies in ({}, {LOGIN_COOKIE: ""}):
        client.http.cookies.update(cookies)
        form = {"key": tenant.keys["read"], "csrf": csrf_token("")}
        answer = await client.http.post("/console/login", data=form)
        assert answer.status_code == 403
        assert SESSION_COOKIE not in answer.headers.get("set-cookie", "")


async def test_form_of_other_site_or_session_is_refused(console, tenant) -> None:
    client, other = await console(tenant.keys["admin"]), await console(tenant.keys["admin"])
    token = re.search(r'name="csrf" value="(\w+)"', (await other.get("/console")).text)
    assert token
    foreign = await client.http.post("/console/logout", data={"csrf": token[1]})
    assert foreign.status_code == 403
    none = await client.http.post("/console/logout")
    assert none.status_code == 403
    own = re.search(r'name="csrf" value="(\w+)"', (await client.get("/console")).text)
    assert own
    cross = {"Sec-Fetch-Site": "cross-site"}
    answer = await client.http.post("/console/logout", data={"csrf": own[1]}, headers=cross)
    assert answer.status_code == 403
    assert (await client.get("/console")).status_code == 200


async def test_logout_ends_session_for_a_stolen_cookie(console, tenant) -> None:
    client, thief = await console(tenant.keys["read"]), await console()
    thief.http.cookies.update(client.http.cookies)
    assert (await thief.get("/console")).status_code == 200
    assert (await client.send("/console/logout")).status_code == 303
    assert (await thief.get("/console")).status_code == 303


async def test_session_ends_when_idle_and_with_its_key(console, tenant, runtime, api) -> None:
    client, second = await console(tenant.keys["read"]), await console(tenant.keys["write"])
    async with runtime.sessions.for_tenant(tenant.id) as session:
        row = ConsoleSessionRow
        idle = update(row).values(last_used_at=datetime.now(UTC) - IDLE)
        await session.execute(idle.where(row.tenant_id == tenant.id))
    assert (await client.get("/console")).status_code == 303
    assert (await second.get("/console")).status_code == 303
    third = await console(tenant.keys["write"])
    keys = (await api.get("/api/v1/keys")).json()["items"]
    key_id = next(key["id"] for key in keys if key["name"] == "write")
    await api.delete(f"/api/v1/keys/{key_id}")
    assert (await third.get("/console")).status_code == 303


async def test_pages_have_strict_policy_and_are_not_stored(console, tenant) -> None:
    client = await console(tenant.keys["read"])
    for path in ("/console", "/console/login", "/console/nothing"):
        answer = await client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert "style=" not in answer.text
        assert not re.search(r"<script>|<style|\son\w+=", answer.text)
    assert (await client.get("/console/nothing")).status_code == 404


async def test_static_files_are_served_by_name_only(console) -> None:
    client = await console()
    sheet = await client.get("/console/static/console.css")
    assert sheet.headers["content-type"].startswith("text/css")
    assert "immutable" in sheet.headers["cache-control"]
    for name in ("router.py", "none.css"):
        assert (await client.get(f"/console/static/{name}")).status_code == 404


async def test_language_and_theme(console, tenant) -> None:
    client = await console(tenant.keys["read"])
    japanese = await client.http.get("/console", headers={"Accept-Language": "fr, ja-JP;q=0.8"})
    assert '<html lang="ja"' in japanese.text
    assert "概要" in japanese.text
    answer = await client.get("/console/preferences?language=ja&theme=dark&next=/console/playbooks")
    assert answer.headers["location"] == "/console/playbooks"
    assert 'data-theme="dark"' in (await client.get("/console")).text


@each_case(
    "address",
    ["//evil", "https://evil", "/console//evil", "/consoleevil", "/console/../x", "/console\\x"],
)
def test_only_pages_of_the_console_are_targets(address: str) -> None:
    assert local_address(address) == "/console"


def test_page_is_a_target() -> None:
    assert local_address("/console/playbooks/a?b=c") == "/console/playbooks/a?b=c"
