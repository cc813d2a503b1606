"""`PlaybookStore` (S2) on JSON files."""

from __future__ import annotations

import json
import logging
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

from memory_api.core.settings import Settings
from memory_api.playbooks.formats.document import decode, parse_object, to_playbook
from memory_api.playbooks.models import CorruptPlaybook, Playbook

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
            return to_playbook(parse_object(decode(data)))
        except CorruptPlaybook as error:
            logger.exception("playbook_corrupt %s", path)
            raise CorruptPlaybook(f"{path}: {error.location}", error.reason) from error

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
