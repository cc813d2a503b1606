"""Lists by pages: complete, in order, stable while rows are added; a cursor belongs to its list."""

from __future__ import annotations

import base64

import pytest
from httpx2 import AsyncClient

from tests.http.calls import ndjson, new_key, new_memory, new_trace, send_lines, trace
from tests.http.problems import assert_names

LISTS = ("/api/v1/traces", "/api/v1/memories", "/api/v1/runs")


async def walk(
    api: AsyncClient, url: str, limit: int, cursor: str | None = None, **filters: str
) -> list[str]:
    """The ids of all pages from here on."""
    found: list[str] = []
    while True:
        more = {"cursor": cursor} if cursor else {}
        answer = await api.get(url, params={"limit": limit} | more | filters)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert len(body["items"]) <= limit
        found += [item["id"] for item in body["items"]]
        cursor = body["next_cursor"]
        if cursor is None:
            return found
        assert len(body["items"]) == limit


async def add(api: AsyncClient, url: str) -> None:
    """One more item in front of a list."""
    if url == "/api/v1/memories":
        await new_memory(api, "one more")
    else:
        await new_trace(api, reflect="always")


@pytest.fixture
async def filled(api: AsyncClient) -> AsyncClient:
    await send_lines(api, ndjson([trace()] * 7), "?reflect=always")
    for n in range(7):
        await new_memory(api, f"number {n}")
    return api


@pytest.mark.parametrize("url", LISTS)
@pytest.mark.parametrize("limit", [1, 3, 7, 8, 200])
async def test_the_pages_are_the_list(filled: AsyncClient, url: str, limit: int) -> None:
    whole = [item["id"] for item in (await filled.get(url)).json()["items"]]
    assert len(whole) == 7
    assert await walk(filled, url, limit) == whole


@pytest.mark.parametrize("url", LISTS)
async def test_what_is_added_meanwhile_moves_nothing(filled: AsyncClient, url: str) -> None:
    whole = [item["id"] for item in (await filled.get(url)).json()["items"]]
    first = (await filled.get(f"{url}?limit=3")).json()
    await add(filled, url)
    rest = await walk(filled, url, 3, first["next_cursor"])
    assert [item["id"] for item in first["items"]] + rest == whole


async def test_filters_hold_on_every_page(filled: AsyncClient) -> None:
    await new_trace(filled, task_key="other")
    await new_trace(filled, task_key="other")
    assert len(await walk(filled, "/api/v1/traces", 1, task_key="other")) == 2


def cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


ID = "0" * 32
FOREIGN = (
    "",
    "x",
    "äöü",
    "%00",
    "====",
    cursor(""),
    cursor("[]"),
    cursor("null"),
    cursor("[" * 20_000),
    cursor(f"{{t}} 2026-01-01T00:00:00 {ID}"),
    cursor("{t} 2026-01-01T00:00:00+00:00 5"),
    cursor(f"{{t}} yesterday {ID}"),
    cursor(f"{{t}} 99999-01-01T00:00:00+00:00 {ID}"),
    cursor(f"users 2026-01-01T00:00:00+00:00 {ID}"),
    cursor(f"{{t}} 2026-01-01T00:00:00+00:00 {ID} more"),
)


@pytest.mark.parametrize("url", LISTS)
@pytest.mark.parametrize("text", FOREIGN)
async def test_what_is_no_cursor_of_this_list_is_named(api, url: str, text: str) -> None:
    table = url.rpartition("/")[2]
    if text and len(text) > 8:
        text = cursor(base64.urlsafe_b64decode(text).decode().replace("{t}", table))
    assert_names(await api.get(url, params={"cursor": text}), "cursor")


async def test_a_cursor_of_another_list_is_refused(filled: AsyncClient) -> None:
    for url in LISTS:
        made = (await filled.get(f"{url}?limit=1")).json()["next_cursor"]
        for other in LISTS:
            answer = await filled.get(other, params={"cursor": made})
            if other == url:
                assert answer.status_code == 200
            else:
                assert_names(answer, "cursor")


async def test_a_cursor_of_another_tenant_shows_nothing_of_it(filled, http, make_tenant) -> None:
    made = (await filled.get("/api/v1/traces?limit=1")).json()["next_cursor"]
    other = await make_tenant()
    answer = await http.get("/api/v1/traces", params={"cursor": made}, headers=other.auth())
    assert answer.json() == {"items": [], "next_cursor": None}


async def test_keys_are_listed_whole(api: AsyncClient) -> None:
    for n in range(5):
        await new_key(api, "read", name=f"n{n}")
    names = [key["name"] for key in (await api.get("/api/v1/keys")).json()["items"]]
    assert names[-5:] == [f"n{n}" for n in range(5)]
