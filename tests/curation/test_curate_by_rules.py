"""Lessons become bullets by the rules, on a real database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.ids import new_id
from memory_api.curation.schemas import ApplyResult, CurationPlan, lesson_from_inbox, sources_of
from memory_api.memories.index.drafts import MemoryDraft, prepare_memories
from memory_api.memories.index.writer import insert_memories
from memory_api.memories.queries import get_memory
from memory_api.memories.schemas import MemoryKind
from memory_api.playbooks.editing.edits import delete_bullet, delete_playbook
from memory_api.playbooks.models import DeltaContextItem
from memory_api.playbooks.proposals.review import accept_proposal, reject_proposal
from memory_api.playbooks.ref import ChangeAuthor
from memory_api.playbooks.tables import InboxLessonRow
from memory_api.playbooks.verdicts.quarantine import quarantine_harmful_bullets
from tests.curation.conftest import Book, lesson

SPLIT = "When an upload times out, split the file into parts of 10 MB and send each part again."
CHECK = "Check that the account is open before a refund is booked."
NEVER = "Never send the same export twice without changing the period."


SAME = "when an upload times out: split the file into parts of 10 MB, and send each part again"
"""SPLIT with another case, punctuation and no other word."""


async def test_new_lessons_become_bullets_in_their_sections(book: Book) -> None:
    done = await book.learn(
        lesson(SPLIT),
        lesson(NEVER, section="mistakes to avoid"),
        lesson("決して同じ予約を二回送らない。", kind="insight"),
    )
    assert [(c["action"], c["content"]) for c in done.bullet_changes()] == [
        ("added", SPLIT),
        ("added", NEVER),
        ("added", "決して同じ予約を二回送らない。"),
    ]
    bullets = {b.content: b for b in (await book.bullets()).values()}
    assert bullets[SPLIT].section == "PATTERNS & APPROACHES"
    assert bullets[SPLIT].searchable_text == SPLIT, "no word counts twice"
    assert bullets[NEVER].section == "MISTAKES TO AVOID"
    assert bullets["決して同じ予約を二回送らない。"].section == "OTHERS"
    assert await book.remembered() == ["added"] * 3


async def test_second_curation_changes_nothing(book: Book) -> None:
    lessons = [lesson(SPLIT), lesson(CHECK), lesson(NEVER)]
    await book.learn(*lessons)
    before, version = await book.bullets(), (await book.row()).version
    done = await book.learn(*lessons)
    assert not done.changed
    assert len(done.known_lessons) == 3
    assert await book.bullets() == before
    assert (await book.row()).version == version
    assert [(await book.memory(key)).observation_count for key in before] == [1, 1, 1]


async def test_same_words_are_counted_as_observation(book: Book) -> None:
    await book.learn(lesson(SPLIT))
    done = await book.learn(lesson(SAME))
    (change,) = done.bullet_changes()
    assert (change["action"], change["key"]) == ("kept", "pat-00001")
    assert (await book.memory("pat-00001")).observation_count == 2
    assert list(await book.bullets()) == ["pat-00001"]
    assert len(await book.links("witnessed_by")) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Play the most listened song of the album.", "Play the least listened song of the album."),
        ("Wait 5 seconds before the next call.", "Wait 60 seconds before the next call."),
        ("Call show_album before you list songs.", "Call show_playlist before you list songs."),
        ("Check the stock before booking a flight.", "Check the stock before booking a hotel."),
        ("Call search before book.", "Call book before search."),
        ("Retry the call.", "Do not retry the call."),
        ("予約の前に在庫を確認する。", "予約の後に在庫を確認する。"),
    ],
)
async def test_lessons_with_relevant_difference_stay_separate(
    book: Book, one: str, other: str
) -> None:
    await book.learn(lesson(one))
    await book.learn(lesson(other))
    assert {b.content for b in (await book.bullets()).values()} == {one, other}


async def test_equal_lessons_of_one_run_become_one_bullet(book: Book) -> None:
    done = await book.learn(lesson(SPLIT), lesson(SAME))
    assert [r.key for r in done.results] == ["pat-00001"]
    assert (await book.memory("pat-00001")).observation_count == 2


async def test_pinned_bullet_is_never_changed(book: Book) -> None:
    (key,) = await book.add("Split a large export into months and join the files.")
    await book.set(key, pinned=True, playbook_version=2)
    before = await book.bullets()
    same = "split a large export into months, and join the files"
    done = await book.learn(lesson(same))
    assert (await book.bullets()) == before
    assert [kept.key for kept in done.known_lessons] == [key]


async def test_quotation_of_another_waiting_lesson_does_not_hold_a_confirmed_one(
    book: Book,
) -> None:
    quotation = "the ledger is sealed"
    confirmed = lesson(f"If “{quotation}”, ask the owner.", quotations=[quotation])
    waiting = lesson(f"If “{quotation}”, stop.", quotations=[quotation], awaiting_confirmation=True)
    done = await book.learn(confirmed, waiting)
    statuses = {b.content: b.status for b in (await book.bullets()).values()}
    assert statuses == {confirmed.text: "active", waiting.text: "quarantined"}
    assert len(done.results) == 2


async def test_all_lessons_of_batch_are_added(book: Book) -> None:
    many = [
        lesson(f"Ask {name} for the {thing} first.", importance=n / 20, confidence=1.0)
        for n, (name, thing) in enumerate(
            (name, thing)
            for name in ("billing", "sales", "support")
            for thing in ("contract", "invoice", "address", "deadline")
        )
    ]
    done = await book.learn(*many)
    assert (len(done.results), len(done.rejected_lessons)) == (12, 0)
    assert {b.content for b in (await book.bullets()).values()} == {o.text for o in many}
    assert len((await book.learn(*many)).known_lessons) == 12


async def test_bullet_deleted_by_person_is_not_added_again(book: Book) -> None:
    done = await book.learn(lesson(SPLIT))
    key = done.results[0].key or ""
    author = ChangeAuthor("person")
    await delete_bullet(book.runtime, book.tenant_id, book.place, key, author)
    again = await book.learn(lesson(SPLIT))
    assert not again.changed
    assert "was deleted" in again.rejected_lessons[0].reason


async def test_deleted_playbook_stays_deleted(book: Book) -> None:
    await book.learn(lesson(SPLIT))
    await delete_playbook(book.runtime, book.tenant_id, book.place, ChangeAuthor("person"))
    await book.learn(lesson(SPLIT))
    assert await book.bullets() == {}


async def test_quarantined_bullet_still_covers_its_lesson(book: Book) -> None:
    (key,) = await book.add(SPLIT)
    await book.set(key, harmful=5)
    await quarantine_harmful_bullets(
        book.runtime, book.tenant_id, book.place, ChangeAuthor("curator")
    )
    done = await book.learn(lesson(SAME))
    assert [kept.key for kept in done.known_lessons] == [key]
    assert list(await book.bullets()) == [key]


async def test_reviewed_playbook_gets_one_proposal(book: Book) -> None:
    await book.configure(review_mode="required")
    done = await book.learn(lesson(SPLIT), lesson(CHECK))
    assert done.proposal_id is not None
    assert await book.bullets() == {}
    for again in (lesson(SPLIT), lesson(SAME)):
        assert (await book.learn(again)).proposal_id is None
    await accept_proposal(book.runtime, book.tenant_id, book.place, done.proposal_id, "person")
    assert len(await book.bullets()) == 2
    assert len((await book.learn(lesson(SPLIT))).known_lessons) == 1


async def test_concurrent_runs_create_one_proposal(book: Book) -> None:
    await book.configure(review_mode="required")
    texts = [SPLIT, SAME, SPLIT]
    thought = [await book.think(lesson(text)) for text in texts]
    done = await asyncio.gather(*(book.merge(one) for one in thought))
    assert sum(one.proposal_id is not None for one in done) == 1


async def test_rejected_change_is_not_proposed_again(book: Book) -> None:
    await book.configure(review_mode="required")
    done = await book.learn(lesson(SPLIT))
    assert done.proposal_id is not None
    await reject_proposal(book.runtime, book.tenant_id, book.place, done.proposal_id, "person")
    assert (await book.learn(lesson(SPLIT))).proposal_id is None


async def test_concurrent_runs_create_no_duplicates(book: Book) -> None:
    """Sixteen curations thought out against the same empty playbook, merged at once."""
    texts = [SPLIT, SAME, CHECK, NEVER]
    thought = [await book.think(lesson(texts[n % 4])) for n in range(16)]
    done = await asyncio.gather(*(book.merge(one) for one in thought))
    assert sum(m.changed for m in done) == 3
    assert len(await book.bullets()) == 3
    versions = await book.versions()
    assert [v.version for v in versions] == [3, 2, 1]
    observation_count = [(await book.memory(key)).observation_count for key in await book.bullets()]
    assert sorted(observation_count) == [4, 4, 8]


async def test_lesson_planned_before_merge_goes_to_survivor(
    book: Book,
) -> None:
    first, second = await book.add(CHECK, NEVER)
    thought = await book.think(lesson(NEVER))
    await book.deltas(DeltaContextItem(type="MERGE", bullet_id=first, source_ids=[second]))
    done = await book.merge(thought)
    assert [kept.key for kept in done.known_lessons] == [first]


async def test_caller_finishes_in_same_transaction(book: Book) -> None:
    async def fail(_session: AsyncSession, _merged: ApplyResult) -> None:
        raise RuntimeError("lost the lease")

    thought = await book.think(lesson(SPLIT))
    with pytest.raises(RuntimeError):
        await book.merge(thought, on_applied=fail)
    assert (await book.think(lesson(SPLIT))).deltas
    seen: list[Any] = []

    async def note(_session: AsyncSession, merged: ApplyResult) -> None:
        seen.append(merged.to_json())

    await book.merge(thought, on_applied=note)
    await book.merge(await book.think(lesson(SPLIT)), on_applied=note)
    assert [(s["added_count"], s["known_count"]) for s in seen] == [(1, 0), (0, 1)]


async def test_curation_plan_survives_storage(book: Book) -> None:
    memory_id = new_id()
    thought = await book.think(lesson(SPLIT), lesson(CHECK, tags=["refund"]))
    again = CurationPlan.model_validate(thought.model_dump(mode="json"))
    assert again == thought
    assert sources_of(thought.changes, thought.lessons) == {}
    one = await book.think(lesson(SPLIT, memory_id=memory_id))
    assert sources_of(one.changes, one.lessons) == {0: [memory_id]}


async def test_only_strategies_and_insights_are_lessons(book: Book) -> None:
    drafts = [
        MemoryDraft(MemoryKind.REFLECTION, "default", "The upload was too large."),
        MemoryDraft(
            MemoryKind.STRATEGY,
            "default",
            SPLIT,
            tags=["upload", "strategy"],
            importance=0.9,
            is_guarded=True,
        ),
        MemoryDraft(MemoryKind.INSIGHT, "default", CHECK, confidence=0.2, is_guarded=True),
    ]
    items = await prepare_memories(await book.runtime.get_tenant_embedder(book.tenant_id), drafts)
    async with book.runtime.sessions.for_tenant(book.tenant_id) as session:
        ids = [row.id for row in await insert_memories(session, items)]
        rows = [await get_memory(session, one) for one in ids]
    waiting = [InboxLessonRow(memory_id=row.id) for row in (rows[1], rows[2], rows[0])]
    by_id = {row.id: row for row in rows if row}
    found = [lesson_from_inbox(row, by_id[row.memory_id]) for row in waiting]
    assert found.pop() is None, "a reflection is no lesson"
    assert [(o.text, o.kind, o.memory_id) for o in found] == [
        (SPLIT, "strategy", ids[1]),
        (CHECK, "insight", ids[2]),
    ]
    assert (found[0].tags, found[0].importance, found[1].confidence) == (["upload"], 0.9, 0.2)
    done = await book.learn(*found)
    added = {r.key for r in done.results if r.action == "added"}
    sources = {source for source, _ in await book.links("derived_from")}
    assert {(await book.memory(k or "")).id for k in added} <= sources
    assert lesson_from_inbox(waiting[0], None) is None, "its memory was deleted"
