"""Tidying: what harms is taken out of service, twins become one, a cap is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from apps.memory_api.core.ids import new_id
from apps.memory_api.curator.schemas import Tidied
from apps.memory_api.curator.upkeep import KIND, queue_untidy, tidy
from apps.memory_api.jobs.queries import list_runs
from apps.memory_api.playbook.configure import configure
from apps.memory_api.playbook.edit import edit_bullet
from apps.memory_api.playbook.quarantine import quarantine
from apps.memory_api.playbook.queries import list_proposals
from apps.memory_api.playbook.review import reject
from apps.memory_api.playbook.rows import Author
from tests.curator.conftest import Book, lesson

SPLIT = "When an upload times out, split the file into parts of 10 MB and send each part again."
TWIN = "If an upload times out, split the file in parts of 10 MB, and send each part again."
OTHER = "Never send the same export twice without changing the period."


async def tidied(book: Book) -> Tidied:
    return await tidy(book.runtime, book.tenant_id, book.place, new_id())


async def test_bullets_that_say_the_same_become_one(book: Book) -> None:
    first, second, other = await book.add(SPLIT, TWIN, OTHER)
    await book.set(second, helpful=3, harmful=1)
    done = await tidied(book)
    assert done.merged == ((second, first),)
    bullets = await book.bullets()
    assert set(bullets) == {second, other}
    assert (bullets[second].content, bullets[second].helpful) == (TWIN, 3)
    assert (await book.memory(second)).witnesses == 2
    assert (await book.row()).aliases == {first: second}
    version = (await book.row()).version
    assert await tidied(book) == Tidied()
    assert (await book.row()).version == version


async def test_pinned_bullets_are_left_alone(book: Book) -> None:
    first, second = await book.add(SPLIT, TWIN)
    await book.set(first, pinned=True, version=2, harmful=9)
    assert await tidied(book) == Tidied()
    assert set(await book.bullets()) == {first, second}


async def test_many_twins_are_merged_ten_at_a_time(book: Book) -> None:
    names = [f"When tool{n}_run fails, read the file log{n}.txt and ask again." for n in range(24)]
    for text in names:
        await book.add(text, text.replace("read the", "read its"))
    sizes = []
    while (await book.row()).version > (await book.row()).tidied_version:
        sizes.append(len((await tidied(book)).merged))
    assert sizes == [10, 10, 4]
    assert len(await book.bullets()) == 24


@pytest.mark.parametrize(
    ("helpful", "harmful", "gone"),
    [(0, 2, False), (0, 3, True), (3, 3, False), (3, 4, True), (0, 50, True)],
)
async def test_the_rule_of_quarantine(book: Book, helpful: int, harmful: int, gone: bool) -> None:
    key, usual = await book.add(SPLIT, OTHER)
    await book.set(key, helpful=helpful, harmful=harmful)
    await book.set(usual, helpful=6, harmful=4)
    author = Author("curator")
    found = await quarantine(book.runtime, book.tenant_id, book.place, author)
    assert (list(found) == [key]) is gone
    status = "quarantined" if gone else "active"
    assert (await book.bullets())[key].status == status


async def test_where_harm_is_usual_a_bullet_is_not_blamed_for_it(book: Book) -> None:
    keys = await book.add(SPLIT, OTHER, "Ask for the order number first.")
    for key in keys:
        await book.set(key, helpful=4, harmful=6)
    assert (await tidied(book)).quarantined == ()


async def test_what_was_quarantined_can_be_released(book: Book) -> None:
    (key,) = await book.add(SPLIT)
    await book.set(key, harmful=3)
    assert (await tidied(book)).quarantined == (key,)
    memory = await book.memory(key)
    assert memory.change_reason == "judged harmful 3 times, helpful 0"
    author = Author("person")
    await edit_bullet(book.runtime, book.tenant_id, book.place, key, {"status": "active"}, author)
    version = (await book.row()).version
    assert (await tidied(book)).quarantined == (), "nobody voted since"
    async with book.runtime.sessions.tenant(book.tenant_id) as session:
        await queue_untidy(book.runtime, session)
    assert (await book.row()).version == version
    assert (await book.think(lesson(SPLIT))).kept[0].key == key
    await book.set(key, harmful=4)
    assert (await tidied(book)).quarantined == (key,)


async def test_over_the_cap_the_least_useful_rated_bullets_go(book: Book) -> None:
    texts = [f"Advice about the matter of area{n}_x." for n in range(6)]
    keys = await book.add(*texts)
    for key, votes in zip(keys, ((9, 0), (1, 1), (0, 2), (5, 1), (0, 0), (0, 0)), strict=True):
        await book.set(key, helpful=votes[0], harmful=votes[1])
    await book.configure(max_bullets=4)
    done = await tidied(book)
    assert set(done.retired) == {keys[1], keys[2]}
    bullets = await book.bullets()
    assert {bullets[key].status for key in done.retired} == {"archived"}
    assert (await book.row()).active == 4
    assert (await tidied(book)).retired == ()


async def test_a_full_playbook_makes_room_or_waits(book: Book) -> None:
    rated, unrated, pinned = await book.add(
        "Ask the user for the order number.", "Read mails aloud.", "Greet in French."
    )
    await book.set(rated, helpful=1, harmful=1)
    await book.set(pinned, pinned=True, harmful=9, version=2)
    await book.configure(max_bullets=3)
    done = await book.learn(lesson(SPLIT))
    assert (done.retired, done.results[0].action) == ([rated], "added")
    again = await book.learn(lesson(OTHER))
    assert not again.changed
    assert again.dropped[0].reason == "the playbook may have 3 bullets"
    assert {k for k, b in (await book.bullets()).items() if b.status == "active"} == {
        unrated,
        pinned,
        done.results[0].key,
    }
    await configure(book.runtime, book.tenant_id, book.place, {"max_bullets": 4}, Author("person"))
    weak = lesson("Take the second page of a report as well.", importance=0.1)
    done = await book.learn(weak, lesson(OTHER))
    assert [r.after.content for r in done.results if r.after] == [OTHER]  # one fits: the weightier
    assert len(done.dropped) == 1


async def test_where_a_person_reviews_a_merge_is_proposed_once(book: Book) -> None:
    await book.add(SPLIT, TWIN)
    await book.configure(review="required")
    assert (await tidied(book)).held
    scope = (await book.row()).scope
    async with book.runtime.sessions.tenant(book.tenant_id) as session:
        (held,) = await list_proposals(session, scope, "waiting", None, 10)
    await reject(book.runtime, book.tenant_id, book.place, held.id, "person")
    await book.configure(review="off")
    await book.add(OTHER)
    assert await tidied(book) == Tidied()


async def test_upkeep_queues_what_is_untidy_and_the_worker_does_it(
    book: Book, drain: Callable[[UUID], Awaitable[int]]
) -> None:
    first, second = await book.add(SPLIT, TWIN)

    async def queue() -> int:
        async with book.runtime.sessions.tenant(book.tenant_id) as session:
            return await queue_untidy(book.runtime, session)

    assert await queue() == 1
    assert await queue() == 0  # one is waiting
    assert await drain(book.tenant_id) == 1
    assert set(await book.bullets()) == {first}
    assert await queue() == 0
    await book.set(first, harmful=4)
    assert await queue() == 1
    assert await drain(book.tenant_id) == 1
    async with book.runtime.sessions.tenant(book.tenant_id) as session:
        found = [run for run in await list_runs(session) if run.kind == KIND]
    assert [run.state for run in found] == ["done", "done"]
    assert [run.result["quarantined"] for run in found] == [[first], []]
    assert found[1].result["merged"] == [[first, second]]
