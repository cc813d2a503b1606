"""Lists by pages: complete, in order, stable while rows are added; a cursor belongs to its list."""

from __future__ import annotations

import base64
import json

import pytest
from httpx2 import AsyncClient

from tests.support.api_calls import (
    event,
    ndjson,
    new_key,
    new_memory,
    new_trace,
    pages_of,
    send_lines,
    trace,
)
from tests.support.problems import assert_names

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
async def test_pages_together_are_the_whole_list(filled: AsyncClient, url: str, limit: int) -> None:
    whole = [item["id"] for item in (await filled.get(url)).json()["items"]]
    assert len(whole) == 7
    assert await walk(filled, url, limit) == whole


@pytest.mark.parametrize("url", LISTS)
async def test_row_added_while_paging_moves_nothing(filled: AsyncClient, url: str) -> None:
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


def cursor_of(*parts: object) -> str:
    return cursor(json.dumps(parts))


ID = "0" * 32
TIME = "2026-01-01T00:00:00+00:00"
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
    cursor_of("{t}"),
    cursor_of("{t}", "2026-01-01T00:00:00", ID),
    cursor_of("{t}", TIME, "5"),
    cursor_of("{t}", TIME, 5),
    cursor_of("{t}", "yesterday", ID),
    cursor_of("{t}", "99999-01-01T00:00:00+00:00", ID),
    cursor_of("users", TIME, ID),
    cursor_of("{t}", TIME, ID, "more"),
    cursor_of("{t}", TIME, "\0"),
    cursor_of("{t}", TIME, "\ud800"),
)


@pytest.mark.parametrize("url", LISTS)
@pytest.mark.parametrize("text", FOREIGN)
async def test_invalid_cursor_is_reported_by_field(api, url: str, text: str) -> None:
    table = url.rpartition("/")[2]
    if text and len(text) > 8:
        text = cursor(base64.urlsafe_b64decode(text).decode().replace("{t}", table))
    assert_names(await api.get(url, params={"cursor": text}), "cursor")


async def test_cursor_of_another_list_is_refused(filled: AsyncClient) -> None:
    for url in LISTS:
        made = (await filled.get(f"{url}?limit=1")).json()["next_cursor"]
        for other in LISTS:
            answer = await filled.get(other, params={"cursor": made})
            if other == url:
                assert answer.status_code == 200
            else:
                assert_names(answer, "cursor")


async def test_cursor_of_other_tenant_shows_no_rows_of_it(filled, http, make_tenant) -> None:
    made = (await filled.get("/api/v1/traces?limit=1")).json()["next_cursor"]
    other = await make_tenant()
    answer = await http.get("/api/v1/traces", params={"cursor": made}, headers=other.auth())
    assert answer.json() == {"items": [], "next_cursor": None}


async def test_keys_are_listed_without_pages(api: AsyncClient) -> None:
    for n in range(5):
        await new_key(api, "read", name=f"n{n}")
    names = [key["name"] for key in (await api.get("/api/v1/keys")).json()["items"]]
    assert names[-5:] == [f"n{n}" for n in range(5)]


async def test_events_are_paged_and_a_trace_shows_the_first_200(api: AsyncClient) -> None:
    trace_id = await new_trace(api, events=[event(f"step {n}") for n in range(205)])
    url = f"/api/v1/traces/{trace_id}"
    whole = (await api.get(url)).json()
    assert [e["seq"] for e in whole["events"]] == list(range(200))
    assert whole["event_count"] == 205
    rest = await api.get(f"{url}/events", params={"cursor": whole["next_cursor"]})
    assert [e["content"] for e in rest.json()["items"]] == [f"step {n}" for n in range(200, 205)]
    assert [e["seq"] for e in await pages_of(api, f"{url}/events", 100)] == list(range(205))
    short = (await api.get(f"/api/v1/traces/{await new_trace(api)}")).json()
    assert len(short["events"]) == 2
    assert short["next_cursor"] is None


async def test_revisions_are_paged_oldest_first(api: AsyncClient) -> None:
    memory_id = await new_memory(api, "first")
    for n in range(4):
        await api.patch(f"/api/v1/memories/{memory_id}", json={"importance": n / 10})
    items = await pages_of(api, f"/api/v1/memories/{memory_id}/revisions", 2)
    assert [item["revision"] for item in items] == [1, 2, 3, 4, 5]


async def test_links_are_paged(api: AsyncClient) -> None:
    lesson = {"reflection_text": "It failed.", "strategy_text": "Check it first."}
    for _ in range(3):
        trace_id = await new_trace(api)
        stored = await api.post("/api/v1/reflections", json=lesson | {"trace_id": trace_id})
    url = f"/api/v1/memories/{stored.json()['reflection_id']}/links"
    whole = (await api.get(url)).json()["items"]
    assert len(whole) >= 3
    assert await pages_of(api, url, 1) == whole


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("traces/{trace_id}/events", ["trace_events", "x"]),
        ("traces/{trace_id}/events", ["trace_events", "99999999999"]),
        ("traces/{trace_id}/events", ["memory_revisions", "1"]),
        ("memories/{memory_id}/revisions", ["memory_revisions", "-1"]),
        ("memories/{memory_id}/links", ["memory_links", TIME, "supports", ID]),
        ("memories/{memory_id}/links", ["memory_links", TIME, "supports", ID, "x"]),
    ],
)
async def test_invalid_cursor_of_a_part_is_named(api, path: str, key: list[str]) -> None:
    ids = {"trace_id": await new_trace(api), "memory_id": await new_memory(api, "first")}
    url = f"/api/v1/{path.format(**ids)}"
    assert_names(await api.get(url, params={"cursor": cursor_of(*key)}), "cursor")
