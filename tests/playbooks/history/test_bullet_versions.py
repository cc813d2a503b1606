"""The versions of a bullet and their reasons, also of bullets that are gone."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient

from tests.conftest import TestTenant
from tests.support.playbook_api import Book
from tests.support.problems import assert_problem


@pytest.fixture
async def book(api: AsyncClient) -> Book:
    """`mis-00001` lives through everything; `mis-00002` is merged into `mis-00003`."""
    book = Book(api)
    await book.deltas(
        {"type": "ADD", "section": "mis", "content": "first", "reasoning": "It failed."},
        {"type": "ADD", "section": "mis", "content": "second"},
        {"type": "ADD", "section": "mis", "content": "third", "reasoning": "Seen twice."},
    )
    changes: list[dict[str, Any]] = [
        {"content": "first, better", "reason": "Clearer."},
        {"status": "quarantined"},
        {"status": "active", "reason": "It was right."},
        {"status": "archived"},
        {"status": "active"},
    ]
    for change in changes:
        answer = await api.patch(f"{book.url}/bullets/mis-00001", json=change)
        assert answer.status_code == 200, answer.text
    await api.delete(f"{book.url}/bullets/mis-00001", params={"reason": "Outdated."})
    merge = {"type": "MERGE", "bullet_id": "mis-00003", "source_ids": ["mis-00002"]}
    await book.deltas({**merge, "content": "second and third", "reasoning": "They say the same."})
    return book


async def versions(book: Book, key: str, **params: Any) -> dict[str, Any]:
    answer = await book.api.get(f"{book.url}/bullets/{key}/versions", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_life_of_deleted_bullet(book: Book, tenant: TestTenant) -> None:
    items = (await versions(book, "mis-00001"))["items"]
    assert [(item["change_type"], item["reason"]) for item in items] == [
        ("created", "It failed."),
        ("changed", "Clearer."),
        ("quarantined", None),
        ("released", "It was right."),
        ("archived", None),
        ("restored", None),
        ("deleted", "Outdated."),
    ]
    assert [item["playbook_version"] for item in items] == list(range(1, 8))
    assert {item["actor"][:4] for item in items} == {"key:"}
    assert items[1]["content"] == "first, better"


async def test_life_of_merged_bullet(book: Book) -> None:
    merged = (await versions(book, "mis-00002"))["items"][-1]
    assert (merged["change_type"], merged["merged_into"]) == ("merged", "mis-00003")
    assert merged["reason"] == "Merged into mis-00003. They say the same."
    survivor = (await versions(book, "mis-00003"))["items"]
    assert [item["change_type"] for item in survivor] == ["created", "changed"]


async def test_version_list_says_why(book: Book) -> None:
    items = (await book.api.get(f"{book.url}/versions")).json()["items"]
    reasons = {item["version"]: item["reason"] for item in items}
    assert reasons[1] == "mis-00001: It failed.\nmis-00003: Seen twice."
    assert reasons[2] == "Clearer."
    assert reasons[8].splitlines() == [
        "mis-00003: They say the same.",
        "mis-00002: Merged into mis-00003. They say the same.",
    ]


async def test_reason_of_version_is_bounded(api: AsyncClient) -> None:
    book = Book(api, "long")
    await book.deltas(
        *(
            {"type": "ADD", "section": "mis", "content": f"bullet {n}", "reasoning": "x" * 300}
            for n in range(20)
        )
    )
    (version,) = (await api.get(f"{book.url}/versions")).json()["items"]
    lines = version["reason"].splitlines()
    assert len(version["reason"]) < 2_100
    assert lines[-1] == f"{20 - len(lines) + 1} more reasons: see the versions of the bullets."


async def test_view_agrees_with_route(book: Book) -> None:
    """`analytics.bullet_versions` and the route tell the same of every version."""
    answer = await book.api.get("/api/v1/analytics/bullet_versions", params={"playbook": book.name})
    rows = answer.json()["rows"]
    names = ("change_type", "reason", "merged_into", "content", "status")
    for key in ("mis-00001", "mis-00002", "mis-00003"):
        items = (await versions(book, key))["items"]
        shown = sorted((row for row in rows if row["key"] == key), key=lambda r: r["revision"])
        assert [[row[n] for n in names] for row in shown] == [[i[n] for n in names] for i in items]


async def test_pages_and_missing_bullets(book: Book, make_tenant) -> None:
    first = await versions(book, "mis-00001", limit=4)
    rest = await versions(book, "mis-00001", limit=4, cursor=first["next_cursor"])
    assert [item["revision"] for item in first["items"] + rest["items"]] == list(range(1, 8))
    url = f"{book.url}/bullets/mis-00001/versions"
    assert_problem(await book.api.get(f"{book.url}/bullets/mis-00099/versions"), 404, "not_found")
    stranger = await make_tenant()
    assert_problem(await book.api.get(url, headers=stranger.auth()), 404, "not_found")
    await book.api.delete(book.url)
    assert len((await versions(book, "mis-00001"))["items"]) == 7
