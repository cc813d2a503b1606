"""The same advice on another tool goes into the roll of the bullet that gives it."""

from __future__ import annotations

import pytest

from apps.memory_api.playbook.rolls import with_roll
from tests.curator.conftest import Book, lesson

RULE = "When a request has several parts, never close before each has its call."


def on(*tools: str) -> str:
    return with_roll(RULE, "Left out before", dict.fromkeys(tools, ()))


async def contents(book: Book) -> list[str]:
    return [bullet.content for bullet in (await book.bullets()).values()]


async def test_one_bullet_for_all_tools(book: Book) -> None:
    await book.learn(lesson(on("book")))
    done = await book.learn(lesson(on("cancel")))
    assert [result.action for result in done.results] == ["updated"]
    assert await contents(book) == [on("book", "cancel")]
    (key,) = await book.bullets()
    assert (await book.memory(key)).witnesses == 2


async def test_what_the_roll_has_changes_nothing(book: Book) -> None:
    await book.learn(lesson(on("book", "cancel")))
    for again in (on("cancel"), on("book"), on("book", "cancel")):
        done = await book.learn(lesson(again))
        assert (done.changed, len(done.kept)) == (False, 1)
    assert await contents(book) == [on("book", "cancel")]


async def test_lessons_of_one_run_join(book: Book) -> None:
    await book.learn(lesson(on("book")), lesson(on("cancel")), lesson("Read it first."))
    assert sorted(await contents(book)) == ["Read it first.", on("book", "cancel")]
    await book.learn(lesson(on("send")), lesson(on("pay")))
    assert on("book", "cancel", "pay", "send") in await contents(book)


@pytest.mark.parametrize("before", [(), ("book",)])
async def test_runs_at_the_same_time_lose_no_tool(book: Book, before: tuple[str, ...]) -> None:
    if before:
        await book.learn(lesson(on(*before)))
    thought = [await book.think(lesson(on(tool))) for tool in ("cancel", "pay", "send")]
    for curation in thought:
        await book.merge(curation)
    assert await contents(book) == [on(*before, "cancel", "pay", "send")]


async def test_a_pinned_bullet_stays_as_it_is(book: Book) -> None:
    (key,) = await book.add(on("book"))
    await book.set(key, pinned=True, version=2)
    done = await book.learn(lesson(on("cancel")))
    assert [kept.key for kept in done.kept] == [key]
    assert await contents(book) == [on("book")]
