"""Lessons become bullets by the rules, on a real database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.ids import new_id
from apps.memory_api.curator.lessons import lessons_of
from apps.memory_api.curator.run import MOST_LESSONS
from apps.memory_api.curator.schemas import Curation, HintIn, Merged
from apps.memory_api.memory.prepare import Draft, prepare
from apps.memory_api.memory.put import put
from apps.memory_api.memory.queries import get_memory
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.playbook.edit import delete_bullet, delete_playbook
from apps.memory_api.playbook.quarantine import quarantine
from apps.memory_api.playbook.review import accept, reject
from apps.memory_api.playbook.rows import Author
from apps.memory_api.playbook.schemas import DeltaContextItem
from apps.memory_api.reflection.hints import Hint
from tests.curator.conftest import Book, lesson

SPLIT = "When an upload times out, split the file into parts of 10 MB and send each part again."
CHECK = "Check that the account is open before a refund is booked."
NEVER = "Never send the same export twice without changing the period."


async def test_new_lessons_become_bullets_in_their_sections(book: Book) -> None:
    done = await book.learn(lesson(SPLIT), lesson(NEVER), lesson("決して同じ予約を二回送らない。"))
    assert [(c["action"], c["content"]) for c in done.changes()] == [
        ("added", SPLIT),
        ("added", NEVER),
        ("added", "決して同じ予約を二回送らない。"),
    ]
    bullets = {b.content: b for b in (await book.bullets()).values()}
    assert bullets[SPLIT].section == "PATTERNS & APPROACHES"
    assert bullets[SPLIT].when_to_use == "When an upload times out"
    assert bullets[SPLIT].searchable_text == SPLIT, "no word counts twice"
    assert bullets[NEVER].section == "MISTAKES TO AVOID"
    assert bullets["決して同じ予約を二回送らない。"].section == "MISTAKES TO AVOID"
    assert await book.remembered() == ["added"] * 3


async def test_a_second_pass_changes_nothing(book: Book) -> None:
    lessons = [lesson(SPLIT), lesson(CHECK), lesson(NEVER)]
    await book.learn(*lessons)
    before, version = await book.bullets(), (await book.row()).version
    done = await book.learn(*lessons)
    assert not done.changed
    assert len(done.kept) == 3
    assert await book.bullets() == before
    assert (await book.row()).version == version
    assert [(await book.memory(key)).witnesses for key in before] == [1, 1, 1]


async def test_another_run_that_says_it_in_other_words_is_a_witness(book: Book) -> None:
    await book.learn(lesson(SPLIT))
    again = "If an upload times out, split the file in parts of 10 MB and send each part again!"
    done = await book.learn(lesson(again))
    (change,) = done.changes()
    assert (change["action"], change["key"]) == ("kept", "pat-00001")
    assert (await book.memory("pat-00001")).witnesses == 2
    assert list(await book.bullets()) == ["pat-00001"]
    assert len(await book.links("witnessed_by")) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Play the most listened song of the album.", "Play the least listened song of the album."),
        ("Wait 5 seconds before the next call.", "Wait 60 seconds before the next call."),
        ("Call show_album before you list songs.", "Call show_playlist before you list songs."),
        ("Check the stock before booking a flight.", "Check the stock before booking a hotel."),
        ("予約の前に在庫を確認する。", "予約の後に在庫を確認する。"),
    ],
)
async def test_lessons_that_differ_in_what_matters_stay_apart(
    book: Book, one: str, other: str
) -> None:
    await book.learn(lesson(one))
    await book.learn(lesson(other))
    assert {b.content for b in (await book.bullets()).values()} == {one, other}


async def test_lessons_of_one_run_that_say_the_same_are_one_bullet(book: Book) -> None:
    twice = "When an upload times out, split the file into parts of 10 MB, and send each part again"
    done = await book.learn(lesson(SPLIT), lesson(twice))
    assert [r.key for r in done.results] == ["pat-00001"]
    assert (await book.memory("pat-00001")).witnesses == 2


async def test_a_fuller_lesson_takes_the_place_of_a_bullet(book: Book) -> None:
    (key,) = await book.add(
        "Split a large export into months, fetch each and join the files.", section="pat"
    )
    await book.set(key, helpful=4)
    fuller = (
        "Split a large export into months, fetch each month with export_rows and join the files."
    )
    done = await book.learn(lesson(fuller))
    assert [(r.action, r.key) for r in done.results] == [("updated", key)]
    bullet = (await book.bullets())[key]
    assert (bullet.content, bullet.helpful) == (fuller, 4)
    assert not (await book.learn(lesson(fuller))).changed


async def test_bullets_that_both_say_a_lesson_are_merged_with_their_votes(book: Book) -> None:
    first, second = await book.add(
        SPLIT, "If an upload times out, split the file in parts of 10 MB and send each part again"
    )
    await book.set(first, helpful=2, harmful=1)
    await book.set(second, helpful=3, neutral=1)
    done = await book.learn(lesson(SPLIT.replace("When an", "Whenever an")))
    assert [r.action for r in done.results] == ["merged"]
    (bullet,) = (await book.bullets()).values()
    assert (bullet.helpful, bullet.harmful, bullet.neutral) == (5, 1, 1)
    assert (await book.memory(bullet.id)).witnesses == 3


async def test_a_pinned_bullet_is_never_touched(book: Book) -> None:
    (key,) = await book.add("Split a large export into months and join the files.")
    await book.set(key, pinned=True, version=2)
    before = await book.bullets()
    more = "Split a large export into months with export_rows and join the files."
    hint = HintIn(key=key, action="revise", when_to_use="When an export is large")
    done = await book.learn(lesson(more, hints=[hint]))
    assert (await book.bullets()) == before
    assert [kept.key for kept in done.kept] == [key]


async def test_a_contrary_lesson_is_linked_and_the_weaker_waits(book: Book) -> None:
    (old,) = await book.add("Always retry a booking after it was declined.")
    done = await book.learn(lesson("Never retry a booking after it was declined."))
    new = done.results[0].key or ""
    assert done.quarantined == [new]
    assert (await book.bullets())[new].status == "quarantined"
    assert (await book.bullets())[old].status == "active"
    pair = ((await book.memory(new)).id, (await book.memory(old)).id)
    assert await book.links("contradicts") == [pair]
    assert not (await book.learn(lesson("Never retry a booking after it was declined!"))).changed


async def test_a_bullet_that_harms_gives_way_to_its_contrary(book: Book) -> None:
    (old,) = await book.add("Always retry a booking after it was declined.")
    await book.set(old, harmful=2)
    done = await book.learn(lesson("Never retry a booking after it was declined."))
    assert done.quarantined == [old]
    bullets = await book.bullets()
    assert bullets[old].status == "quarantined"
    assert bullets[done.results[0].key or ""].status == "active"


async def test_a_hint_makes_a_bullets_condition_more_exact(book: Book) -> None:
    (key,) = await book.add(CHECK)
    hint = HintIn(key=key, action="revise", when_to_use="Before a refund of a card", reason="why")
    await book.learn(lesson(NEVER, hints=[hint]))
    bullet = (await book.bullets())[key]
    assert (bullet.when_to_use, bullet.content) == ("Before a refund of a card", CHECK)


async def test_at_most_ten_changes_and_the_weightiest_first(book: Book) -> None:
    many = [
        lesson(f"Ask {name} for the {thing} first.", importance=n / 20, confidence=1.0)
        for n, (name, thing) in enumerate(
            (name, thing)
            for name in ("billing", "sales", "support")
            for thing in ("contract", "invoice", "address", "deadline")
        )
    ]
    done = await book.learn(*many)
    assert len(done.results) == 10
    assert len(done.dropped) == 2
    said = {b.content for b in (await book.bullets()).values()}
    assert said == {o.text for o in many[2:]}
    assert len((await book.learn(*many)).results) == 2  # what was too much is not forgotten


async def test_too_many_lessons_are_refused(book: Book) -> None:
    with pytest.raises(ValueError, match="at most"):
        await book.think(*(lesson(f"Lesson {n}") for n in range(MOST_LESSONS + 1)))


async def test_what_a_person_took_out_does_not_come_back(book: Book) -> None:
    done = await book.learn(lesson(SPLIT))
    key = done.results[0].key or ""
    author = Author("person")
    await delete_bullet(book.runtime, book.tenant_id, book.place, key, author)
    again = await book.learn(lesson(SPLIT))
    assert not again.changed
    assert "was taken out" in again.dropped[0].reason


async def test_a_playbook_that_was_deleted_learns_anew(book: Book) -> None:
    await book.learn(lesson(SPLIT))
    await delete_playbook(book.runtime, book.tenant_id, book.place, Author("person"))
    await book.learn(lesson(SPLIT))
    assert [b.content for b in (await book.bullets()).values()] == [SPLIT]


async def test_a_quarantined_bullet_still_says_its_lesson(book: Book) -> None:
    (key,) = await book.add(SPLIT)
    await book.set(key, harmful=5)
    await quarantine(book.runtime, book.tenant_id, book.place, Author("curator"))
    done = await book.learn(lesson(SPLIT.replace("into parts", "in parts")))
    assert [kept.key for kept in done.kept] == [key]
    assert list(await book.bullets()) == [key]


async def test_where_a_person_reviews_the_deltas_wait_once(book: Book) -> None:
    await book.configure(review="required")
    done = await book.learn(lesson(SPLIT), lesson(CHECK))
    assert done.proposal_id is not None
    assert await book.bullets() == {}
    for again in (lesson(SPLIT), lesson(SPLIT.replace("into parts", "in parts"))):
        assert (await book.learn(again)).proposal_id is None
    await accept(book.runtime, book.tenant_id, book.place, done.proposal_id, "person")
    assert len(await book.bullets()) == 2
    assert len((await book.learn(lesson(SPLIT))).kept) == 1


async def test_runs_at_the_same_time_ask_a_person_once(book: Book) -> None:
    await book.configure(review="required")
    texts = [SPLIT, SPLIT.replace("into parts", "in parts"), SPLIT]
    thought = [await book.think(lesson(text)) for text in texts]
    done = await asyncio.gather(*(book.merge(one) for one in thought))
    assert sum(one.proposal_id is not None for one in done) == 1


async def test_what_a_person_rejected_is_not_proposed_again(book: Book) -> None:
    await book.configure(review="required")
    done = await book.learn(lesson(SPLIT))
    assert done.proposal_id is not None
    await reject(book.runtime, book.tenant_id, book.place, done.proposal_id, "person")
    assert (await book.learn(lesson(SPLIT))).proposal_id is None


async def test_concurrent_runs_end_in_one_history_without_twins(book: Book) -> None:
    """Sixteen curations thought out against the same empty playbook, merged at once."""
    texts = [SPLIT, SPLIT.replace("into parts", "in parts"), CHECK, NEVER]
    thought = [await book.think(lesson(texts[n % 4])) for n in range(16)]
    done = await asyncio.gather(*(book.merge(one) for one in thought))
    assert sum(m.changed for m in done) == 3
    assert len(await book.bullets()) == 3
    versions = await book.versions()
    assert [v.version for v in versions] == [3, 2, 1]
    witnesses = [(await book.memory(key)).witnesses for key in await book.bullets()]
    assert sorted(witnesses) == [4, 4, 8]


async def test_a_lesson_thought_out_before_its_bullet_was_merged_finds_the_survivor(
    book: Book,
) -> None:
    first, second = await book.add(CHECK, NEVER)
    thought = await book.think(lesson(NEVER))
    await book.deltas(DeltaContextItem(type="MERGE", bullet_id=first, source_ids=[second]))
    done = await book.merge(thought)
    assert [kept.key for kept in done.kept] == [first]


async def test_a_bullet_rewritten_meanwhile_is_not_rewritten_again(book: Book) -> None:
    (key,) = await book.add("Split a large export into months and join the files.")
    more = "Split a large export into months with export_rows and join the files."
    thought = await book.think(lesson(more))
    assert [d.type for d in thought.deltas] == ["UPDATE"]
    await book.deltas(DeltaContextItem(type="UPDATE", bullet_id=key, content="Ask a person."))
    done = await book.merge(thought)
    assert not done.changed
    assert (await book.bullets())[key].content == "Ask a person."


async def test_the_caller_settles_in_the_same_transaction(book: Book) -> None:
    async def fail(_session: AsyncSession, _merged: Merged) -> None:
        raise RuntimeError("lost the lease")

    thought = await book.think(lesson(SPLIT))
    with pytest.raises(RuntimeError):
        await book.merge(thought, settle=fail)
    assert (await book.think(lesson(SPLIT))).deltas
    seen: list[Any] = []

    async def note(_session: AsyncSession, merged: Merged) -> None:
        seen.append(merged.summary())

    await book.merge(thought, settle=note)
    await book.merge(await book.think(lesson(SPLIT)), settle=note)
    assert [(s["added"], s["kept"]) for s in seen] == [(1, 0), (0, 1)]


async def test_a_curation_survives_being_stored(book: Book) -> None:
    memory_id = new_id()
    thought = await book.think(lesson(SPLIT), lesson(CHECK, tags=["refund"]))
    again = Curation.model_validate(thought.model_dump(mode="json"))
    assert again == thought
    assert thought.sources == {}
    one = await book.think(lesson(SPLIT, memory_id=memory_id))
    assert one.sources == {0: [memory_id]}


async def test_strategies_and_insights_are_lessons_and_reflections_are_not(book: Book) -> None:
    drafts = [
        Draft(Kind.REFLECTION, "default", "The upload was too large."),
        Draft(Kind.STRATEGY, "default", SPLIT, tags=["upload", "strategy"], importance=0.9),
        Draft(Kind.INSIGHT, "default", CHECK, confidence=0.2),
    ]
    items = await prepare(await book.runtime.embedder_of(book.tenant_id), drafts)
    async with book.runtime.sessions.tenant(book.tenant_id) as session:
        ids = [row.id for row in await put(session, items)]
        rows = [await get_memory(session, one) for one in ids]
    (key,) = await book.add("Ask for the order number first.")
    hint = Hint(key, "revise", "it failed without", "Before a refund")
    found = lessons_of([row for row in rows if row], [hint])
    assert [(o.text, o.kind, o.memory_id) for o in found] == [
        (SPLIT, "strategy", ids[1]),
        (CHECK, "insight", ids[2]),
    ]
    assert (found[0].tags, found[0].importance, found[1].confidence) == (["upload"], 0.9, 0.2)
    done = await book.learn(*found)
    assert (await book.bullets())[key].when_to_use == "Before a refund"
    added = {r.key for r in done.results if r.action == "added"}
    sources = {source for source, _ in await book.links("derived_from")}
    assert {(await book.memory(k or "")).id for k in added} <= sources
    (only,) = lessons_of([], [hint])
    assert not (await book.learn(only)).changed
