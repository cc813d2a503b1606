"""`PlaybookStore` over the rows: the same two methods, for programs without an event loop."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from uuid import UUID

from apps.memory_api.core.settings import Settings
from apps.memory_api.playbook.import_export import read_playbook, save_playbook
from apps.memory_api.playbook.queries import get_playbook
from apps.memory_api.playbook.rows import Author, Place
from apps.memory_api.playbook.schemas import Playbook
from apps.memory_api.runtime import Runtime, open_runtime


class RowPlaybookStore:
    """Loads and saves whole playbooks of one project. Opens a `Runtime` of its own when it is first
    used; `close()` it, or use it in a `with`.

    Both methods raise RuntimeError inside an event loop: await `read_playbook` and `save_playbook`
    there.
    """

    def __init__(
        self,
        database_url: str,
        tenant_id: UUID,
        project_id: str = "default",
        settings: Settings | None = None,
    ) -> None:
        self.tenant_id = tenant_id
        self.project_id = project_id
        self._database_url = database_url
        self._settings = settings or Settings.load()
        self._runner = asyncio.Runner()
        self._opened = AsyncExitStack()
        self._runtime: Runtime | None = None

    def load(self, dataset: str) -> Playbook:
        """The playbook of a dataset, empty when there is none. Raises `Invalid` for a bad name."""
        _refuse_loop()
        return self._runner.run(self._load(Place(self.project_id, dataset)))

    def save(self, dataset: str, playbook: Playbook) -> None:
        """Make the playbook exactly this one, as a version, and set its `updated_at`."""
        _refuse_loop()
        self._runner.run(self._save(Place(self.project_id, dataset), playbook))

    def close(self) -> None:
        _refuse_loop()
        self._runner.run(self._opened.aclose())
        self._runner.close()

    def __enter__(self) -> RowPlaybookStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def _open(self) -> Runtime:
        if self._runtime is None:
            opened = open_runtime(self._settings, self._database_url)
            self._runtime = await self._opened.enter_async_context(opened)
        return self._runtime

    async def _load(self, place: Place) -> Playbook:
        runtime = await self._open()
        async with runtime.sessions.tenant(self.tenant_id) as session:
            playbook = await get_playbook(session, place)
            if playbook is None or playbook.deleted_at is not None:
                return Playbook()
            return await read_playbook(session, playbook)

    async def _save(self, place: Place, playbook: Playbook) -> None:
        runtime = await self._open()
        author = Author("playbook_store", "saved as a whole")
        await save_playbook(runtime, self.tenant_id, place, playbook, author)
        async with runtime.sessions.tenant(self.tenant_id) as session:
            row = await get_playbook(session, place)
            assert row is not None, "just saved"
            playbook.metadata.updated_at = row.updated_at


def _refuse_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("RowPlaybookStore blocks; inside an event loop await its async functions")
