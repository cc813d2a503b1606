"""Dry runs: what a change would come to, with nothing written; and who may change what is under
review.
"""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient

from tests.support.playbook_api import Book
from tests.support.problems import assert_problem

KEY = "mis-00001"
ADD = {"type": "ADD", "section": "mis", "content": "Never close a ticket early"}
OTHER = {"bullets": [{"id": "x-1", "section": "OWN", "content": "Else"}]}


@pytest.fixture
async def book(api: AsyncClient) -> Book:
    book = Book(api)
    await book.deltas(ADD)
    return book


async def state(book: Book) -> Any:
    return await book.now(), (await book.api.get(f"{book.url}/versions")).json()


async def test_dry_run_on_unknown_playbook_matches_real_run(api: AsyncClient) -> None:
    book = Book(api)
    dry = (await book.post("deltas", deltas=[ADD], dry_run=True)).json()
    assert (dry["version"], dry["applied"]) == (0, False)
    assert (await api.get("/api/v1/playbooks")).json()["items"] == []
    assert (await book.deltas(ADD))["results"] == dry["results"]


async def test_import_and_restore_have_dry_run(book: Book) -> None:
    before = await state(book)
    put = (await book.api.put(f"{book.url}?dry_run=true", json=OTHER)).json()
    assert (put["version"], put["active_bullet_count"], put["applied"]) == (1, 1, False)
    assert [b["id"] for b in put["diff"]["added"]] == ["x-1"]
    assert [b["id"] for b in put["diff"]["removed"]] == [KEY]
    assert "OWN" in [s["name"] for s in put["diff"]["sections_added"]]
    back = (await book.post("restore", version=0, dry_run=True)).json()
    assert (back["version"], back["changed"], back["applied"]) == (1, True, False)
    assert [b["id"] for b in back["diff"]["removed"]] == [KEY]
    assert (await book.post("restore", version=1, dry_run=True)).json()["changed"] is False
    assert await state(book) == before
    done = (await book.put(OTHER)).json()
    real = (await book.api.get(f"{book.url}/diff?from=1")).json()
    assert (done["active_bullet_count"], done["diff"]) == (put["active_bullet_count"], None)
    assert {b["id"] for b in real["added"]} == {b["id"] for b in put["diff"]["added"]}


async def test_dry_run_is_refused_like_real_run(book: Book) -> None:
    await book.api.patch(book.url, json={"max_bullets": 1})
    more = [{"type": "ADD", "content": "one more"}]
    assert_problem(await book.post("deltas", deltas=more, dry_run=True), 409, "playbook_full")
    stale = await book.post("deltas", deltas=more, dry_run=True, headers={"If-Match": '"7"'})
    assert_problem(stale, 412, "precondition_failed")


async def test_proposal_has_dry_run(book: Book) -> None:
    await book.api.patch(book.url, json={"review_mode": "required"})
    deltas = [{"type": "ADD", "content": "one"}]
    tried = (await book.post("deltas", deltas=deltas, dry_run=True)).json()
    assert (tried["held"], tried["applied"]) == (False, False)
    held = (await book.post("deltas", deltas=deltas)).json()
    url = f"proposals/{held['proposal_id']}/accept"
    dry = (await book.post(url, dry_run=True)).json()
    assert (dry["version"], dry["applied"], dry["results"]) == (2, False, held["results"])
    assert (await book.post(url)).json()["version"] == 3


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "", OTHER),
        ("PUT", "?dry_run=true", OTHER),
        ("PATCH", "", {"max_bullets": 5}),
        ("DELETE", "", None),
        ("POST", "/bullets", {"content": "mine"}),
        ("PATCH", f"/bullets/{KEY}", {"content": "other words"}),
        ("DELETE", f"/bullets/{KEY}", None),
        ("POST", "/restore", {"version": 0}),
    ],
)
async def test_agent_may_only_propose_under_review(
    book: Book, tenant: Any, method: str, path: str, body: Any
) -> None:
    agent = tenant.auth("write")
    await book.api.patch(book.url, json={"review_mode": "required"})
    before = await state(book)
    refused = await book.api.request(method, f"{book.url}{path}", json=body, headers=agent)
    assert "admin" in assert_problem(refused, 403, "under_review")["detail"]
    assert await state(book) == before
    held = await book.post("deltas", deltas=[{"type": "ADD", "content": "one"}], headers=agent)
    assert held.status_code == 202
    done = await book.api.request(method, f"{book.url}{path}", json=body)
    assert done.is_success, "an admin key decides"
