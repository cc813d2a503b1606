"""Playbooks over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient

from tests.support.playbook_api import Book
from tests.support.problems import assert_names, assert_problem

ADD = {"type": "ADD", "section": "MISTAKES TO AVOID", "content": "Never close a ticket early"}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("GET", "?as_of=1", None),
        ("DELETE", "", None),
        ("POST", "/search", {"query_text": "x"}),
        ("GET", "/versions", None),
        ("GET", "/diff?from=0", None),
        ("POST", "/restore", {"version": 1}),
        ("GET", "/bullets", None),
        ("GET", "/bullets/pat-00001", None),
        ("PATCH", "/bullets/pat-00001", {"pinned": True}),
        ("POST", "/bullets/pat-00001/verdicts", {"tag": "helpful"}),
        ("GET", "/proposals", None),
    ],
)
async def test_unknown_playbook_is_404_and_not_created(
    api: AsyncClient, method: str, path: str, body: Any
) -> None:
    answer = await api.request(method, f"/api/v1/playbooks/nobody{path}", json=body)
    assert_problem(answer, 404, "not_found")
    assert (await api.get("/api/v1/playbooks")).json()["items"] == []


@pytest.mark.parametrize("name", ["a%20b\u200b", "%00", "x" * 129, "..%2F..%2Fetc%2Fpasswd", "%20"])
async def test_invalid_playbook_name_is_refused(api: AsyncClient, name: str) -> None:
    answer = await api.put(f"/api/v1/playbooks/{name}", json={"bullets": []})
    assert 400 <= answer.status_code < 500
    assert (await api.get("/api/v1/playbooks")).json()["items"] == []


async def test_names_of_any_language(api: AsyncClient) -> None:
    for name in ("客服", "a.b-c_d", "x" * 128, "q?#&=%"):
        book = Book(api, name)
        assert (await book.deltas(ADD))["version"] == 1
        assert [b["content"] for b in await book.bullets()] == [ADD["content"]]


async def test_deltas_create_playbook_and_versions(api: AsyncClient) -> None:
    book = Book(api)
    first = await book.deltas(ADD, {"type": "ADD", "content": "Be kind"})
    assert (first["version"], first["applied"], first["held"]) == (1, True, False)
    assert [r["key"] for r in first["results"]] == ["mis-00001", "oth-00001"]
    second = await book.deltas(
        {"type": "update", "id": "oth-00001", "text": "Be very kind", "reason": "clearer"}
    )
    assert second["version"] == 2
    merged = await book.deltas({"type": "MERGE", "source_ids": ["mis-00001", "oth-00001"]})
    assert merged["results"][0]["absorbed"][0]["id"] == "oth-00001"
    gone = await api.get(f"{book.url}/bullets/oth-00001")
    assert_problem(gone, 404, "not_found")
    assert gone.json()["merged_into"] == "mis-00001"
    kept = await book.deltas({"type": "KEEP", "bullet_id": "mis-00001"})
    assert kept["version"] == merged["version"], "nothing changed, so there is no new version"
    await book.deltas({"type": "DELETE", "bullet_id": "mis-00001"})
    again = await book.deltas(ADD)
    assert again["results"][0]["key"] == "mis-00002", "a number is never given twice"
    assert await book.problems() == []


async def test_deltas_apply_all_or_none(api: AsyncClient) -> None:
    book = Book(api)
    await book.deltas(ADD)
    for bad, field in (
        ({"type": "UPDATE", "bullet_id": "pat-00009", "content": "x"}, "deltas.1.bullet_id"),
        ({"type": "MERGE", "source_ids": ["mis-00001"]}, "deltas.1.source_ids"),
        ({"type": "ADD", "content": " "}, "deltas.1.content"),
    ):
        answer = await book.post("deltas", deltas=[{"type": "ADD", "content": "new"}, bad])
        assert_problem(answer, 422, "invalid")
        assert answer.json()["errors"][0]["field"] == field
        assert answer.json()["index"] == 1
    twice = [{"type": "DELETE", "bullet_id": "mis-00001"}] * 2
    assert_problem(await book.post("deltas", deltas=twice), 422, "invalid")
    assert (await book.now())[0] == 1
    assert [b["id"] for b in await book.bullets()] == ["mis-00001"]


async def test_dry_run_writes_nothing(api: AsyncClient) -> None:
    book = Book(api)
    await book.deltas(ADD)
    change = {"type": "UPDATE", "bullet_id": "mis-00001", "content": "Other words"}
    answer = (await book.post("deltas", deltas=[change], dry_run=True)).json()
    assert (answer["version"], answer["applied"]) == (1, False)
    (result,) = answer["results"]
    assert (result["before"]["content"], result["after"]["content"]) == (
        ADD["content"],
        "Other words",
    )
    assert (await book.bullets())[0]["content"] == ADD["content"]
    assert (await book.now())[0] == 1


async def test_if_match(api: AsyncClient) -> None:
    book = Book(api)
    tag = (await book.post("deltas", deltas=[ADD])).headers["etag"]
    assert tag == '"1"'
    match = {"If-Match": tag}
    other = [{"type": "ADD", "content": "two"}]
    assert (await book.post("deltas", headers=match, deltas=other)).status_code == 200
    stale = await book.post("deltas", headers=match, deltas=[{"type": "ADD", "content": "three"}])
    assert_problem(stale, 412, "precondition_failed")
    assert stale.json()["version"] == 2
    for method, path, body in (
        ("PUT", "", {"bullets": []}),
        ("DELETE", "", None),
        ("PATCH", "/bullets/mis-00001", {"pinned": True}),
        ("DELETE", "/bullets/mis-00001", None),
        ("POST", "/bullets", {"content": "four"}),
        ("POST", "/restore", {"version": 1}),
    ):
        answer = await api.request(method, book.url + path, json=body, headers=match)
        assert_problem(answer, 412, "precondition_failed")
    nonsense = await book.post("deltas", headers={"If-Match": "seven"}, deltas=[ADD])
    assert_problem(nonsense, 422, "invalid")
    assert (await book.now())[0] == 2


async def test_bullet_created_by_person(api: AsyncClient) -> None:
    book = Book(api)
    made = await book.post(
        "bullets", content="Ask first", section="user preferences", tags=["t"], pinned=True
    )
    assert made.status_code == 201
    assert made.headers["location"].endswith("/bullets/pref-00001")
    assert made.json()["bullet"]["pinned"] is True
    assert_problem(await book.post("bullets", content=" ask  FIRST "), 409, "conflict")
    assert_problem(await book.post("bullets", content="x", section="no such"), 422, "invalid")
    delta = {"type": "UPDATE", "bullet_id": "pref-00001", "content": "Never ask"}
    (refused,) = (await book.deltas(delta))["results"]
    assert (refused["action"], refused["reason"]) == ("rejected", "Bullet pref-00001 is pinned.")
    patched = await api.patch(
        f"{book.url}/bullets/pref-00001",
        json={"content": "Ask twice", "section": "mis", "status": "quarantined", "reason": "why"},
    )
    assert patched.json()["bullet"]["section"] == "MISTAKES TO AVOID"
    shown = (await api.get(f"{book.url}/bullets/pref-00001")).json()
    assert (shown["content"], shown["status"]) == ("Ask twice", "quarantined")
    revisions = await api.get(f"/api/v1/memories/{shown['memory_id']}/revisions")
    assert [r["reason"] for r in revisions.json()["items"]] == [None, "why"]
    assert await book.problems() == []
    await api.patch(f"{book.url}/bullets/pref-00001", json={"status": "active"})
    assert await book.problems() == []
    assert (await api.delete(f"{book.url}/bullets/pref-00001")).status_code == 204
    assert await book.bullets() == []
    assert await book.problems() == []


async def test_bullets_are_listed_by_key_in_pages(api: AsyncClient) -> None:
    book = Book(api)
    await book.deltas(*({"type": "ADD", "content": f"number {n}"} for n in range(7)))
    await api.patch(f"{book.url}/bullets/oth-00003", json={"status": "archived"})
    seen: list[str] = []
    cursor = None
    for _ in range(4):
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await api.get(f"{book.url}/bullets", params=params)).json()
        seen += [b["id"] for b in page["items"]]
        cursor = page["next_cursor"]
    assert seen == [f"oth-0000{n}" for n in range(1, 8)]
    assert cursor is None
    archived = (await api.get(f"{book.url}/bullets", params={"status": "archived"})).json()
    assert [b["id"] for b in archived["items"]] == ["oth-00003"]
    bad = await api.get(f"{book.url}/bullets", params={"cursor": "zzz"})
    assert_problem(bad, 422, "invalid")


async def test_bullets_are_listed_by_usefulness_in_pages(api: AsyncClient) -> None:
    book = Book(api)
    await book.deltas(*({"type": "ADD", "content": f"number {n}"} for n in range(4)))
    for key, tag in (("oth-00002", "harmful"), ("oth-00003", "helpful")):
        await api.post(f"{book.url}/bullets/{key}/verdicts", json={"tag": tag})

    async def listed(sort: str) -> list[str]:
        found, cursor = [], None
        while cursor or not found:
            params = {"sort": sort, "limit": 1} | ({"cursor": cursor} if cursor else {})
            page = (await api.get(f"{book.url}/bullets", params=params)).json()
            found += [b["id"] for b in page["items"]]
            cursor = page["next_cursor"]
        return found

    least = await listed("usefulness")
    assert least == ["oth-00002", "oth-00001", "oth-00004", "oth-00003"]
    assert await listed("-usefulness") == least[::-1]
    first = (await api.get(f"{book.url}/bullets", params={"limit": 1})).json()
    for sort in ("usefulness", "sideways"):
        params = {"sort": sort, "cursor": first["next_cursor"]}
        assert_problem(await api.get(f"{book.url}/bullets", params=params), 422, "invalid")


async def test_review_turns_deltas_into_proposal(api: AsyncClient, tenant: Any) -> None:
    book = Book(api)
    await book.deltas(ADD)
    agent = tenant.auth("write")
    settings = {"review_mode": "required"}
    assert_problem(await api.patch(book.url, json=settings, headers=agent), 403, "forbidden")
    await api.patch(book.url, json=settings)
    held = await book.post("deltas", deltas=[{"type": "ADD", "content": "one"}])
    assert (held.status_code, held.json()["held"]) == (202, True)
    other = await book.post("deltas", deltas=[{"type": "ADD", "content": "two"}])
    first, second = (a.json()["proposal_id"] for a in (held, other))
    assert [b["id"] for b in await book.bullets()] == ["mis-00001"]
    waiting = (await api.get(f"{book.url}/proposals")).json()["items"]
    assert [p["id"] for p in waiting] == [second, first]
    refused = await api.post(f"{book.url}/proposals/{first}/accept", json={}, headers=agent)
    assert_problem(refused, 403, "forbidden")
    taken = await api.post(f"{book.url}/proposals/{first}/accept", json={"reason": "good"})
    assert (taken.json()["version"], taken.json()["results"][0]["key"]) == (3, "oth-00001")
    again = await api.post(f"{book.url}/proposals/{first}/accept", json={})
    assert_problem(again, 409, "conflict")
    away = await api.post(f"{book.url}/proposals/{second}/reject", json={})
    assert away.status_code == 204
    done = (await api.get(f"{book.url}/proposals?state=accepted")).json()["items"]
    assert [(p["accepted_version"], p["decision_reason"]) for p in done] == [(3, "good")]
    assert (await book.now())[0] == 3


async def test_playbook_size_is_limited(api: AsyncClient) -> None:
    book = Book(api)
    await api.patch(book.url, json={"max_bullets": 1})
    await book.deltas(ADD)
    full = await book.post("deltas", deltas=[{"type": "ADD", "content": "one more"}])
    assert_problem(full, 409, "playbook_full")
    swap = [{"type": "DELETE", "bullet_id": "mis-00001"}, {"type": "ADD", "content": "instead"}]
    assert (await book.post("deltas", deltas=swap)).status_code == 200


async def test_playbook_has_own_sections(api: AsyncClient) -> None:
    book = Book(api)
    given = [{"name": "返金", "slug": "ref", "description": "返金のこと"}]
    shown = (await api.patch(book.url, json={"sections": given})).json()
    assert [s["slug"] for s in shown["sections"]] == ["ref", "oth"]
    added = await book.deltas({"type": "ADD", "section": "返金", "content": "配送済みのみ返金"})
    assert added["results"][0]["key"] == "ref-00001"
    twice = [{"name": "A", "slug": "x"}, {"name": "B", "slug": "x"}]
    assert_problem(await api.patch(book.url, json={"sections": twice}), 422, "invalid")


async def test_other_tenants_see_nothing(api: AsyncClient, make_tenant: Any) -> None:
    await Book(api).deltas(ADD)
    other = await make_tenant()
    url = Book(api).url
    assert_problem(await api.get(url, headers=other.auth()), 404, "not_found")
    assert_problem(await api.get(f"{url}?project_id=elsewhere"), 404, "not_found")


async def test_unstorable_characters_are_sanitized_and_reported(api: AsyncClient) -> None:
    answer = await Book(api).post("deltas", deltas=[{"type": "ADD", "content": "a\0b"}])
    assert answer.json()["sanitized"] is True
    assert answer.json()["results"][0]["after"]["content"] == "a\ufffdb"


async def test_bullet_cannot_be_changed_as_memory(api: AsyncClient) -> None:
    book = Book(api)
    await book.deltas(ADD)
    memory_id = (await book.bullets())[0]["memory_id"]
    for answer in (
        await api.patch(f"/api/v1/memories/{memory_id}", json={"content": "smuggled"}),
        await api.delete(f"/api/v1/memories/{memory_id}"),
    ):
        assert_problem(answer, 409, "conflict")
    assert (await book.bullets())[0]["content"] == ADD["content"]


@pytest.mark.parametrize("dry_run", [True, False])
async def test_unknown_section_is_reported(api: AsyncClient, dry_run: bool) -> None:
    """On every route that takes one; no section at all is OTHERS."""
    book = Book(api)
    await book.deltas(ADD)
    wrong = {"type": "ADD", "section": "MISTAEKS", "content": "x"}
    answer = await book.post("deltas", deltas=[{"type": "KEEP", "id": "mis-00001"}, wrong],
                             dry_run=dry_run)  # fmt: skip
    told = assert_names(answer, "deltas.1.section")
    assert "MISTAKES TO AVOID" in told["detail"]
    assert_names(await book.post("bullets", section="MISTAEKS", content="x"), "section")
    changed = await api.patch(f"{book.url}/bullets/mis-00001", json={"section": "MISTAEKS"})
    assert_names(changed, "section")
    await api.patch(book.url, json={"review_mode": "required"})
    assert_names(await book.post("deltas", deltas=[wrong]), "deltas.0.section")
    assert (await book.now())[0] == 2
