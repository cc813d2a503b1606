"""`PlaybookStore` (S2) on JSON files, and `RowPlaybookStore` with the same methods on the
database.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from uuid import UUID

from pydantic import ValidationError

from memory_api.bootstrap import open_runtime
from memory_api.core.settings import Settings
from memory_api.playbooks.formats.transfer import load_playbook, save_playbook
from memory_api.playbooks.models import CorruptPlaybook, Playbook
from memory_api.playbooks.queries import get_playbook
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.runtime import Runtime

logger = logging.getLogger(__name__)
MAX_NAME_BYTES = 200
"""Most file systems limit a file name to 255 bytes; the rest is for the suffix."""


class UnsafePlaybookName(ValueError):
    """A dataset name that could point outside the data directory, or that a file cannot have."""


class PlaybookStore:
    """Loads and saves whole playbooks as JSON files. Writes are atomic; the last of two writers
    wins.
    """

    def __init__(self, data_dir: str | Path = "data/playbooks") -> None:
        self.data_dir = Path(data_dir)

    def load(self, dataset: str) -> Playbook:
        """The playbook of a dataset, empty if it has no file.

        Raises UnsafePlaybookName; logs and raises CorruptPlaybook if the file is not a playbook.
        """
        path = self._path(dataset)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return Playbook()
        try:
            return Playbook.model_validate_json(data.removeprefix(b"\xef\xbb\xbf"))
        except ValidationError as error:
            first_error = error.errors(include_url=False)[0]
            location = ".".join([str(path), *map(str, first_error["loc"])])
            logger.exception("playbook_corrupt %s", path)
            raise CorruptPlaybook(location, first_error["msg"]) from error

    def save(self, dataset: str, playbook: Playbook) -> None:
        """Writes the playbook and sets its `updated_at`. After an error the old file is
        unchanged.
        """
        path = self._path(dataset)
        now = datetime.now(UTC)
        metadata = playbook.metadata.model_copy(update={"updated_at": now})
        updated = playbook.model_copy(update={"metadata": metadata})
        text = json.dumps(updated.to_document(), ensure_ascii=False, indent=2)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        _replace_file(path, f"{text}\n".encode())
        playbook.metadata.updated_at = now

    def _path(self, dataset: str) -> Path:
        has_safe_edges = (
            dataset.strip() == dataset and not dataset.startswith(".") and dataset.isprintable()
        )
        if (
            not dataset
            or not has_safe_edges
            or any(character in dataset for character in '/\\:*?"<>|')
        ):
            raise UnsafePlaybookName(f"Not a valid playbook name: {dataset!r}.")
        if len(dataset.encode("utf-8")) > MAX_NAME_BYTES:
            raise UnsafePlaybookName(f"A playbook name has at most {MAX_NAME_BYTES} bytes.")
        return self.data_dir / f"{dataset}.json"


def _replace_file(path: Path, data: bytes) -> None:
    """Writes a temporary file, flushes it to disk and renames it: a crash never leaves a partial
    file.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Makes the rename durable, on systems where a directory can be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_playbook_store(settings: Settings) -> PlaybookStore:
    """The store of JSON files under `PLAYBOOK_DATA_DIR`."""
    return PlaybookStore(settings.playbook_data_dir)


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
        self._runner = asyncio.Runner()
        self._opened = AsyncExitStack()
        self._runtime: Runtime | None = None

    def load(self, dataset: str) -> Playbook:
        """The playbook of a dataset, empty if there is none. Raises `Invalid` for an
        invalid name.
        """
        _require_no_event_loop()
        return self._runner.run(self._load(PlaybookRef(self.project_id, dataset)))

    def save(self, dataset: str, playbook: Playbook) -> None:
        """Replaces the playbook in one version and sets its `updated_at`."""
        _require_no_event_loop()
        self._runner.run(self._save(PlaybookRef(self.project_id, dataset), playbook))

    def close(self) -> None:
        _require_no_event_loop()
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


def _require_no_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "RowPlaybookStore blocks. Inside an event loop, await `load_playbook` or `save_playbook`."
    )
