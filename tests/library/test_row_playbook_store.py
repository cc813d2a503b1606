"""PlaybookStore's two methods over the rows, for programs without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

from memory_api.core.errors import InvalidRequest
from memory_api.core.settings import Settings
from memory_api.library.row_playbook_store import RowPlaybookStore
from memory_api.playbooks.models import Bullet, Playbook, PlaybookMetadata
from tests.conftest import Database

T = TypeVar("T")


@pytest.fixture
async def in_thread(database: Database, settings: Settings, tenant: Any) -> Any:
    """Runs a function with a store where no event loop is running."""

    async def run(use: Callable[[RowPlaybookStore], T]) -> T:
        def work() -> T:
            url = database.url("hansei_app")
            with RowPlaybookStore(url, tenant.id, settings=settings) as store:
                return use(store)

        return await asyncio.to_thread(work)

    return run


async def test_saved_playbook_is_loaded(in_thread: Any, ace_bullets: list[Bullet]) -> None:
    given = Playbook(bullets=ace_bullets[:50])

    def use(store: RowPlaybookStore) -> tuple[Playbook, Playbook, Playbook]:
        empty = store.load("book")
        store.save("book", given)
        first = store.load("book")
        store.save("book", Playbook(bullets=given.bullets[::-1][:10]))
        return empty, first, store.load("book")

    empty, first, second = await in_thread(use)
    assert empty.bullets == []
    assert first.bullets == given.bullets
    assert first.metadata.updated_at == given.metadata.updated_at, "set by save"
    assert second.bullets == given.bullets[::-1][:10]


async def test_saved_playbook_has_its_own_creation_time(
    in_thread: Any, ace_bullets: list[Bullet]
) -> None:
    created = datetime(2024, 2, 3, 4, 5, tzinfo=UTC)
    naive = datetime(2023, 1, 2, 3, 4)
    metadata = [PlaybookMetadata(created_at=time) for time in (created, naive)]
    given = [Playbook(metadata=times, bullets=ace_bullets[:2]) for times in metadata]

    def use(store: RowPlaybookStore) -> list[Playbook]:
        loaded: list[Playbook] = []
        for playbook in given:
            store.save("dated", playbook)
            loaded.append(store.load("dated"))
        return loaded

    loaded = await in_thread(use)
    assert [p.metadata.created_at for p in loaded] == [created, naive.replace(tzinfo=UTC)]
    assert [p.metadata for p in loaded] == [p.metadata for p in given], "set by save"


async def test_bad_name_is_refused(in_thread: Any) -> None:
    for name in ("", "../../etc/passwd", "a\0b", "x" * 129):
        with pytest.raises(InvalidRequest):
            await in_thread(lambda store, name=name: store.load(name))


async def test_store_refuses_to_block_event_loop(
    database: Database, settings: Settings, tenant: Any
) -> None:
    store = RowPlaybookStore(database.url("hansei_app"), tenant.id, settings=settings)
    with pytest.raises(RuntimeError, match="event loop"):
        store.load("book")
    with pytest.raises(RuntimeError, match="event loop"):
        store.save("book", Playbook())
    await asyncio.to_thread(store.close)
