"""Forms and cookies that no person sends: a clear refusal, and nothing is held."""

from __future__ import annotations

import time

from memory_api.console.sql.router import MAX_STATEMENT_LENGTH
from tests.console.conftest import ConsoleClient


async def test_key_with_a_nul_opens_no_session(console, tenant) -> None:
    key = tenant.keys["read"]
    for bad in (f"{key}\0", f"{key[:20]}\0{key[20:]}"):
        client: ConsoleClient = await console()
        assert (await client.log_in(bad)).status_code == 401


async def test_cookie_of_another_installation_opens_no_session(console, tenant) -> None:
    stranger = f"{'0' * 32}.{'x' * 43}"
    own = f"{tenant.id.hex}.{'x' * 43}"
    for cookie in (stranger, own, "", ".", "\u00e4", "x" * 8_000, f"{tenant.id.hex}.' or true --"):
        client: ConsoleClient = await console()
        headers = {"Cookie": f"hansei_console={cookie}".encode()}
        answer = await client.http.get("/console", headers=headers)
        assert (answer.status_code, answer.headers["location"][:14]) == (303, "/console/login")


async def test_long_statement_is_refused(owner_of: ConsoleClient) -> None:
    started = time.monotonic()
    huge = await owner_of.send("/console/sql", statement="select 1 " + "x" * 10_000_000)
    assert huge.status_code == 413
    long = await owner_of.send("/console/sql", statement="select 1 " + "x" * 900_000)
    assert long.status_code == 422
    assert len(long.text) < 3 * MAX_STATEMENT_LENGTH, "the page does not repeat it"
    assert time.monotonic() - started < 20


async def test_page_with_a_nul_in_its_address_is_refused(owner_of: ConsoleClient) -> None:
    pages = ("", "/traces", "/runs", "/costs", "/playbooks", "/agent-runs", "/collections")
    for page in pages:
        for name in ("project", "playbook", "kind"):
            refused = await owner_of.http.get(f"/console{page}?{name}=%00")
            assert refused.status_code == 422, page
            assert "NUL" in refused.text
    assert (await owner_of.http.get("/console/playbooks/%00")).status_code == 422
