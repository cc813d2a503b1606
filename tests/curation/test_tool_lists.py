"""The same advice on another tool extends the tool list of its bullet."""

from __future__ import annotations

import pytest

from memory_api.text.advice import append_tool_list
from tests.curation.conftest import Book, lesson

RULE = (
    "When a request has several parts, do not finish before each part has its call. "
    "List the parts first."
)


def on(*tools: str) -> str:
    return append_tool_list(RULE, "Previously missing", dict.fromkeys(tools, ()))


async def contents(book: Book) -> list[str]:
    return [bullet.content for bullet in (await book.bullets()).values()]


async def test_tools_share_one_bullet(book: Book) -> None:
    await book.learn(lesson(on("book")))
    done = await book.learn(lesson(on("cancel")))
    assert [result.action for result in done.results] == ["updated"]
    assert await contents(book) == [on("book", "cancel")]
    (key,) = await book.bullets()
    assert (await book.memory(key)).observation_count == 2


async def test_tool_already_in_list_changes_nothing(book: Book) -> None:
    await book.learn(lesson(on("book", "cancel")))
    for again in (on("cancel"), on("book"), on("book", "cancel")):
        done = await book.learn(lesson(again))
        assert (done.changed, len(done.known_lessons)) == (False, 1)
    assert await contents(book) == [on("book", "cancel")]


async def test_lessons_of_one_run_share_tool_list(book: Book) -> None:
    await book.learn(lesson(on("book")), lesson(on("cancel")), lesson("Read it first."))
    assert sorted(await contents(book)) == ["Read it first.", on("book", "cancel")]
    await book.learn(lesson(on("send")), lesson(on("pay")))
    assert on("book", "cancel", "pay", "send") in await contents(book)


@pytest.mark.parametrize("before", [(), ("book",)])
async def test_concurrent_runs_lose_no_tool(book: Book, before: tuple[str, ...]) -> None:
    if before:
        await book.learn(lesson(on(*before)))
    thought = [await book.think(lesson(on(tool))) for tool in ("cancel", "pay", "send")]
    for curation in thought:
        await book.merge(curation)
    assert await contents(book) == [on(*before, "cancel", "pay", "send")]


async def test_pinned_bullet_keeps_its_tool_list(book: Book) -> None:
    (key,) = await book.add(on("book"))
    await book.set(key, pinned=True, playbook_version=2)
    done = await book.learn(lesson(on("cancel")))
    assert [kept.key for kept in done.known_lessons] == [key]
    assert await contents(book) == [on("book")]
