"""History over the rows: as_of, diff, restore, provenance."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from httpx2 import AsyncClient

from memory_api.core.db import Sessions
from memory_api.memories.queries import NewLink, add_links
from memory_api.playbooks.editing.edits import apply_deltas_to_playbook
from memory_api.playbooks.models import DeltaContextItem
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.runtime import Runtime
from tests.support.playbook_api import Book
from tests.support.problems import assert_problem

TRACE = {
    "outcome": "failure",
    "task_description": "Refund an order",
    "events": [
        {"event_id": "e1", "event_type": "user_message", "content": "Refund it"},
        {"event_id": "e2", "event_type": "error_event", "content": "order is pending"},
    ],
}

COUNTS = ("version", "added_count", "updated_count", "removed_count", "active_bullet_count")


@pytest.fixture
async def book(api: AsyncClient) -> Book:
    """Three versions: two bullets, one reworded and moved, one deleted and one new."""
    book = Book(api)
    await book.deltas(
        {"type": "ADD", "section": "pat", "content": "first", "keywords": ["k"]},
        {"type": "ADD", "section": "mis", "content": "second"},
    )
    await api.patch(
        f"{book.url}/bullets/pat-00001", json={"content": "first, better", "section": "ctx"}
    )
    await book.deltas(
        {"type": "DELETE", "bullet_id": "mis-00001", "reasoning": "wrong"},
        {"type": "ADD", "content": "third"},
    )
    return book


def texts(document: dict[str, Any]) -> dict[str, str]:
    return {b["id"]: b["content"] for b in document["bullets"]}


async def test_every_version_can_be_read(book: Book) -> None:
    expected = [
        {},
        {"pat-00001": "first", "mis-00001": "second"},
        {"pat-00001": "first, better", "mis-00001": "second"},
        {"pat-00001": "first, better", "oth-00001": "third"},
    ]
    for version, bullets in enumerate(expected):
        number, document = await book.now(as_of=version)
        assert (number, texts(document)) == (version, bullets)
    first = (await book.now(as_of=1))[1]["bullets"][0]
    assert first["section"] == "PATTERNS & APPROACHES"
    assert first["searchable_text"] == "first\nk"
    answer = await book.api.get(book.url, params={"as_of": 4})
    assert_problem(answer, 404, "not_found")
    for bad in ("yesterday", "-1", "1.5", ""):
        assert_problem(await book.api.get(book.url, params={"as_of": bad}), 422, "invalid")


async def test_time_selects_version_valid_then(book: Book) -> None:
    before = datetime(2020, 1, 1, tzinfo=UTC).isoformat()
    number, document = await book.now(as_of=before)
    assert (number, document["bullets"]) == (0, [])
    assert document["metadata"]["updated_at"] == document["metadata"]["created_at"]
    versions = (await book.api.get(f"{book.url}/versions")).json()["items"]
    for version in versions:
        assert (await book.now(as_of=version["created_at"]))[0] == version["version"]
    assert (await book.now(as_of="2999-01-01T00:00:00+09:00"))[0] == 3


async def test_history_has_author_and_reason_in_pages(book: Book, tenant: Any) -> None:
    url = f"{book.url}/versions"
    first = (await book.api.get(url, params={"limit": 2})).json()
    rest = (await book.api.get(url, params={"limit": 2, "cursor": first["next_cursor"]})).json()
    items = first["items"] + rest["items"]
    assert [tuple(i[name] for name in COUNTS) for i in items] == [
        (3, 1, 0, 1, 2),
        (2, 0, 1, 0, 2),
        (1, 2, 0, 0, 2),
    ]
    assert rest["next_cursor"] is None
    assert all(i["actor"].startswith("key:") for i in items)
    assert_problem(await book.api.get(url, params={"cursor": "eA"}), 422, "invalid")


async def test_diff_between_any_two_versions(book: Book) -> None:
    async def diff(**ends: Any) -> dict[str, Any]:
        return (await book.api.get(f"{book.url}/diff", params=ends)).json()

    whole = await diff(**{"from": 0})
    assert (whole["from_version"], whole["to_version"]) == (0, 3)
    assert [b["id"] for b in whole["added"]] == ["pat-00001", "oth-00001"]
    later = await diff(**{"from": 1, "to": 3})
    assert [b["id"] for b in later["added"]] == ["oth-00001"]
    assert [b["id"] for b in later["removed"]] == ["mis-00001"]
    (changed,) = later["changed"]
    assert (changed["before"]["content"], changed["after"]["content"]) == ("first", "first, better")
    back = await diff(**{"from": 3, "to": 1})
    assert [b["id"] for b in back["removed"]] == ["oth-00001"]
    nothing = await diff(**{"from": 2, "to": 2})
    assert nothing["added"] == nothing["removed"] == nothing["changed"] == []


async def test_restore_is_new_version_and_keeps_counters(book: Book) -> None:
    await book.post("bullets/pat-00001/verdicts", tag="helpful")
    answer = await book.post("restore", version=1, reason="it was better")
    assert answer.json() == {"version": 4, "changed": True, "applied": True, "diff": None}
    assert texts((await book.now())[1]) == {"pat-00001": "first", "mis-00001": "second"}
    assert (await book.bullets())[1]["helpful"] == 1
    assert texts((await book.now(as_of=3))[1])["oth-00001"] == "third"
    assert await book.problems() == []
    added = await book.deltas({"type": "ADD", "content": "fourth"})
    assert added["results"][0]["key"] == "oth-00002", "oth-00001 was given, also if it is gone"
    same = await book.post("restore", version=5)
    assert (same.json()["version"], same.json()["changed"]) == (5, False)
    assert_problem(await book.post("restore"), 422, "invalid")
    assert_problem(await book.post("restore", version=1, time="2026-01-01"), 422, "invalid")
    assert_problem(await book.post("restore", version=99), 404, "not_found")


async def test_deleted_playbook_can_be_restored(book: Book) -> None:
    assert (await book.api.delete(book.url)).status_code == 204
    assert_problem(await book.api.get(book.url), 404, "not_found")
    assert (await book.api.get("/api/v1/playbooks")).json()["items"] == []
    versions = (await book.api.get(f"{book.url}/versions")).json()["items"]
    assert (versions[0]["version"], versions[0]["change_type"]) == (4, "delete")
    assert (await book.post("restore", version=3)).json()["version"] == 5
    assert texts((await book.now())[1]) == {"pat-00001": "first, better", "oth-00001": "third"}
    assert await book.problems() == []


async def test_restore_includes_sections(book: Book) -> None:
    own = [{"name": "Refunds", "slug": "ref"}]
    await book.api.patch(book.url, json={"sections": own})
    await book.post("restore", version=3)
    (shown,) = (await book.api.get("/api/v1/playbooks")).json()["items"]
    assert [s["slug"] for s in shown["sections"]] == ["pat", "mis", "pref", "ctx", "oth"]
    diff = (await book.api.get(f"{book.url}/diff?from=4")).json()
    assert "ref" in [s["slug"] for s in diff["sections_removed"]]


async def test_provenance_leads_to_the_events(
    api: AsyncClient, runtime: Runtime, tenant: Any
) -> None:
    trace_id = (await api.post("/api/v1/traces?reflect=never", json=TRACE)).json()["trace_id"]
    lesson = {"kind": "insight", "content": "Pending orders cannot be refunded."}
    insight = (await api.post("/api/v1/memories", json={**lesson, "trace_id": trace_id})).json()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await add_links(session, [NewLink(insight["id"], "derived_from", "trace", trace_id)])
    add = DeltaContextItem(type="ADD", content="Cancel pending orders", reasoning="it was pending")
    sources = {0: [insight["id"]]}
    place = PlaybookRef("default", "book")
    await apply_deltas_to_playbook(
        runtime, tenant.id, place, [add], ChangeAuthor("run"), sources=sources
    )
    await Book(api).deltas(
        {"type": "ADD", "content": "The same again"},
        {"type": "KEEP", "bullet_id": "oth-00001"},
    )
    await Book(api).deltas({"type": "MERGE", "source_ids": ["oth-00002", "oth-00001"]})
    found = (await api.get(f"{Book(api).url}/bullets/oth-00002/provenance")).json()["links"]
    steps = [(x["relation"], x["target_kind"], x["kind"], x["depth"]) for x in found]
    assert steps == [
        ("supersedes", "memory", "bullet", 1),
        ("derived_from", "memory", "insight", 2),
        ("derived_from", "trace", None, 3),
    ]
    assert found[2]["target_id"] == trace_id
    assert found[2]["task_description"] == "Refund an order"
    (revision,) = (await api.get(f"/api/v1/memories/{found[0]['target_id']}/revisions")).json()[
        "items"
    ][:1]
    assert revision["reason"] == "it was pending"


async def test_history_cannot_be_rewritten(book: Book, runtime: Runtime, tenant: Any) -> None:
    for statement in (
        "update memory_revisions set content = 'other'",
        "delete from memory_revisions",
        "update playbook_versions set actor = 'nobody'",
        "delete from playbook_versions",
    ):
        with pytest.raises(Exception, match="permission denied"):
            async with runtime.sessions.for_tenant(tenant.id) as session:
                await (await session.connection()).exec_driver_sql(statement)
    change = "update memories set content = 'smuggled' where key = 'pat-00001'"
    with pytest.raises(Exception, match="through its playbook"):
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await (await session.connection()).exec_driver_sql(change)


async def test_versions_are_in_the_order_of_their_times(api: AsyncClient) -> None:
    book = Book(api)
    adds = [[{"type": "ADD", "content": f"number {n}"}] for n in range(8)]
    await asyncio.gather(*(book.post("deltas", deltas=add) for add in adds))
    items = (await api.get(f"{book.url}/versions")).json()["items"]
    assert [i["version"] for i in items] == list(range(8, 0, -1))
    times = [i["created_at"] for i in items]
    assert times == sorted(set(times), reverse=True)


async def test_older_revision_has_no_version(owner: Sessions) -> None:
    """Memories that are no bullets have revisions without one, and no index entry for it."""
    async with owner.without_tenant() as session:
        connection = await session.connection()
        rows = await connection.exec_driver_sql(
            "select indexdef from pg_indexes where indexname like 'memory_revisions_%%_idx'"
        )
        assert all("WHERE (playbook_version IS NOT NULL)" in definition for (definition,) in rows)
