"""Tidying: what harms is taken out of service, twins become one, a cap is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from memory_api.core.ids import new_id
from memory_api.curation import cleanup
from memory_api.curation.cleanup import (
    CLEANUP,
    CleanupResult,
    clean_up_playbook,
    enqueue_cleanups,
)
from memory_api.playbooks.editing.edits import edit_bullet, update_settings
from memory_api.playbooks.proposals.review import reject_proposal
from memory_api.playbooks.queries import list_proposals
from memory_api.playbooks.ref import ChangeAuthor
from memory_api.playbooks.verdicts.quarantine import quarantine_harmful_bullets
from memory_api.runs.queries import list_runs, select_runs
from tests.curation.conftest import Book, lesson

SPLIT = "When an upload times out, split the file into parts of 10 MB and send each part again."
TWIN = "When an upload times out: split a file into parts of 10 MB, and send each part again."
OTHER = "Never send the same export twice without changing the period."


async def tidied(book: Book) -> CleanupResult:
    return await clean_up_playbook(book.runtime, book.tenant_id, book.place, new_id())


async def test_bullets_with_same_advice_are_merged(book: Book) -> None:
    first, second, other = await book.add(SPLIT, TWIN, OTHER)
    await book.set(second, helpful=3, harmful=1)
    done = await tidied(book)
    assert done.merged_keys == ((second, first),)
    bullets = await book.bullets()
    assert set(bullets) == {second, other}
    assert (bullets[second].content, bullets[second].helpful) == (TWIN, 3)
    assert (await book.memory(second)).observation_count == 2
    assert (await book.row()).aliases == {first: second}
    version = (await book.row()).version
    assert await tidied(book) == CleanupResult()
    assert (await book.row()).version == version


async def test_pinned_bullets_are_not_changed(book: Book) -> None:
    first, second = await book.add(SPLIT, TWIN)
    await book.set(first, pinned=True, playbook_version=2, harmful=9)
    assert await tidied(book) == CleanupResult()
    assert set(await book.bullets()) == {first, second}


async def test_duplicates_are_merged_ten_per_version(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "MAX_MERGES_PER_RUN", 20)
    names = [f"When tool{n}_run fails, read the file log{n}.txt and ask again." for n in range(24)]
    for text in names:
        await book.add(text, text.replace("read the", "read a"))
    sizes, versions = [], []
    while (before := (await book.row()).version) > (await book.row()).cleaned_version:
        sizes.append(len((await tidied(book)).merged_keys))
        versions.append((await book.row()).version - before)
    assert (sizes, versions) == ([20, 4], [2, 1])
    assert len(await book.bullets()) == 24


@pytest.mark.parametrize(
    ("helpful", "harmful", "gone"),
    [(0, 2, False), (0, 3, True), (3, 3, False), (3, 4, True), (0, 50, True)],
)
async def test_quarantine_rule(book: Book, helpful: int, harmful: int, gone: bool) -> None:
    key, usual = await book.add(SPLIT, OTHER)
    await book.set(key, helpful=helpful, harmful=harmful)
    await book.set(usual, helpful=6, harmful=4)
    author = ChangeAuthor("curator")
    found = await quarantine_harmful_bullets(book.runtime, book.tenant_id, book.place, author)
    assert (list(found) == [key]) is gone
    status = "quarantined" if gone else "active"
    assert (await book.bullets())[key].status == status


async def test_quarantine_considers_base_rate_of_harm(book: Book) -> None:
    keys = await book.add(SPLIT, OTHER, "Ask for the order number first.")
    for key in keys:
        await book.set(key, helpful=4, harmful=6)
    assert (await tidied(book)).quarantined_keys == ()


async def test_quarantined_bullet_can_be_released(book: Book) -> None:
    (key,) = await book.add(SPLIT)
    await book.set(key, harmful=3)
    assert (await tidied(book)).quarantined_keys == (key,)
    memory = await book.memory(key)
    assert memory.change_reason == "Harmful verdicts: 3. Helpful verdicts: 0."
    author = ChangeAuthor("person")
    await edit_bullet(book.runtime, book.tenant_id, book.place, key, {"status": "active"}, author)
    version = (await book.row()).version
    assert (await tidied(book)).quarantined_keys == (), "nobody voted since"
    async with book.runtime.sessions.for_tenant(book.tenant_id) as session:
        await enqueue_cleanups(book.runtime, session)
    assert (await book.row()).version == version
    assert (await book.think(lesson(SPLIT))).known_lessons[0].key == key
    await book.set(key, harmful=4)
    assert (await tidied(book)).quarantined_keys == (key,)


async def test_least_useful_rated_bullets_are_archived_over_capacity(book: Book) -> None:
    texts = [f"Advice about the matter of area{n}_x." for n in range(6)]
    keys = await book.add(*texts)
    for key, votes in zip(keys, ((9, 0), (1, 1), (0, 2), (5, 1), (0, 0), (0, 0)), strict=True):
        await book.set(key, helpful=votes[0], harmful=votes[1])
    await book.configure(max_bullets=4)
    done = await tidied(book)
    assert set(done.archived_keys) == {keys[1], keys[2]}
    bullets = await book.bullets()
    assert {bullets[key].status for key in done.archived_keys} == {"archived"}
    assert (await book.row()).active_count == 4
    assert (await tidied(book)).archived_keys == ()


async def test_full_playbook_makes_room_or_postpones_lesson(book: Book) -> None:
    rated, unrated, pinned = await book.add(
        "Ask the user for the order number.", "Read mails aloud.", "Greet in French."
    )
    await book.set(rated, helpful=1, harmful=1)
    await book.set(pinned, pinned=True, harmful=9, playbook_version=2)
    await book.configure(max_bullets=3)
    done = await book.learn(lesson(SPLIT))
    assert (done.archived_keys, done.results[0].action) == ([rated], "added")
    again = await book.learn(lesson(OTHER))
    assert not again.changed
    assert again.rejected_lessons[0].reason == "The playbook has reached its limit of 3 bullets."
    assert {k for k, b in (await book.bullets()).items() if b.status == "active"} == {
        unrated,
        pinned,
        done.results[0].key,
    }
    await update_settings(
        book.runtime, book.tenant_id, book.place, {"max_bullets": 4}, ChangeAuthor("person")
    )
    weak = lesson("Take the second page of a report as well.", importance=0.1)
    done = await book.learn(weak, lesson(OTHER))
    assert [r.after.content for r in done.results if r.after] == [OTHER]  # one fits: the weightier
    assert len(done.rejected_lessons) == 1


async def test_reviewed_playbook_gets_one_merge_proposal(book: Book) -> None:
    await book.add(SPLIT, TWIN)
    await book.configure(review_mode="required")
    assert (await tidied(book)).proposal_id
    scope = (await book.row()).scope_id
    async with book.runtime.sessions.for_tenant(book.tenant_id) as session:
        (held,) = await list_proposals(session, scope, "waiting", None, 10)
    await reject_proposal(book.runtime, book.tenant_id, book.place, held.id, "person")
    await book.configure(review_mode="off")
    await book.add(OTHER)
    assert await tidied(book) == CleanupResult()


async def test_upkeep_queues_cleanup_and_worker_runs_it(
    book: Book, drain: Callable[[UUID], Awaitable[int]]
) -> None:
    first, second = await book.add(SPLIT, TWIN)

    async def queue() -> int:
        async with book.runtime.sessions.for_tenant(book.tenant_id) as session:
            return await enqueue_cleanups(book.runtime, session)

    assert await queue() == 1
    assert await queue() == 0  # one is waiting
    assert await drain(book.tenant_id) == 1
    assert set(await book.bullets()) == {first}
    assert await queue() == 0
    await book.set(first, harmful=4)
    assert await queue() == 1
    assert await drain(book.tenant_id) == 1
    async with book.runtime.sessions.for_tenant(book.tenant_id) as session:
        found = [
            run for run in await list_runs(session, select_runs(session)) if run.kind == CLEANUP
        ]
    assert [run.state for run in found] == ["done", "done"]
    assert [run.result["quarantined_keys"] for run in found] == [[first], []]
    assert found[1].result["merged_keys"] == [[first, second]]
