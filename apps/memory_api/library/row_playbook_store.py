"""`RowPlaybookStore`: the methods of `PlaybookStore` (S2) on the database."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from uuid import UUID

from memory_api.bootstrap import open_runtime
from memory_api.core.settings import Settings
from memory_api.library.blocking import LoopThread, require_no_event_loop
from memory_api.playbooks.formats.transfer import load_playbook, save_playbook
from memory_api.playbooks.models import Playbook
from memory_api.playbooks.queries import get_playbook
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.runtime import Runtime


class RowPlaybookStore:
    """Loads and saves whole playbooks of one project in the database. Opens its own `Runtime` on
    first use; call `close()` or use it in a `with` statement.

    The methods raise RuntimeError inside an event loop: await `load_playbook` and `save_playbook`
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
        self._loop = LoopThread()
        self._opened = AsyncExitStack()
        self._runtime: Runtime | None = None

    def load(self, dataset: str) -> Playbook:
        """The playbook of a dataset, empty if there is none. Raises `Invalid` for an
        invalid name.
        """
        require_no_event_loop("`load_playbook`")
        return self._loop.run(self._load(PlaybookRef(self.project_id, dataset)))

    def save(self, dataset: str, playbook: Playbook) -> None:
        """Replaces the playbook in one version and sets its `updated_at`."""
        require_no_event_loop("`save_playbook`")
        self._loop.run(self._save(PlaybookRef(self.project_id, dataset), playbook))

    def close(self) -> None:
        require_no_event_loop("`asyncio.to_thread(store.close)`")
        self._loop.run(self._opened.aclose())
        self._loop.close()

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

    async def _load(self, ref: PlaybookRef) -> Playbook:
        runtime = await self._open()
        async with runtime.sessions.for_tenant(self.tenant_id) as session:
            playbook = await get_playbook(session, ref)
            if playbook is None or playbook.deleted_at is not None:
                return Playbook()
            return await load_playbook(session, playbook)

    async def _save(self, ref: PlaybookRef, playbook: Playbook) -> None:
        runtime = await self._open()
        author = ChangeAuthor("playbook_store", "Saved the whole playbook.")
        await save_playbook(runtime, self.tenant_id, ref, playbook, author)
        async with runtime.sessions.for_tenant(self.tenant_id) as session:
            row = await get_playbook(session, ref)
            assert row is not None, "just saved"
            playbook.metadata.updated_at = row.updated_at
