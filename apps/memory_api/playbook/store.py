"""Playbooks as JSON files, one per dataset (spec 2): for those who use the pure parts without the
service.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from apps.memory_api.playbook.schemas import CorruptPlaybook, Playbook

logger = logging.getLogger(__name__)
MAX_NAME_BYTES = 200
"""Leaves room for the suffix in a file name, which most file systems end at 255 bytes."""


class UnsafeName(ValueError):
    """A dataset name that could lead out of the data directory, or that no file can have."""


class PlaybookStore:
    """Loads and saves whole playbooks. A reader sees the old file or the new one; of two writers
    the last one wins.
    """

    def __init__(self, data_dir: str | Path = "data/playbooks") -> None:
        self.data_dir = Path(data_dir)

    def load(self, dataset: str) -> Playbook:
        """The playbook of a dataset, empty when it has no file.

        Raises CorruptPlaybook, after logging it, when the file is not a playbook, and UnsafeName.
        """
        path = self._path(dataset)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return Playbook()
        try:
            return Playbook.model_validate_json(data.removeprefix(b"\xef\xbb\xbf"))
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = ".".join([str(path), *map(str, problem["loc"])])
            logger.exception("corrupt playbook %s", path)
            raise CorruptPlaybook(place, problem["msg"]) from error

    def save(self, dataset: str, playbook: Playbook) -> None:
        """Writes the playbook and sets its `updated_at`. On an error the file that was there is
        still there.
        """
        path = self._path(dataset)
        now = datetime.now(UTC)
        metadata = playbook.metadata.model_copy(update={"updated_at": now})
        stamped = playbook.model_copy(update={"metadata": metadata})
        text = json.dumps(stamped.document(), ensure_ascii=False, indent=2)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        _replace(path, f"{text}\n".encode())
        playbook.metadata.updated_at = now

    def _path(self, dataset: str) -> Path:
        bare = dataset.strip() == dataset and not dataset.startswith(".") and dataset.isprintable()
        if not dataset or not bare or any(c in dataset for c in '/\\:*?"<>|'):
            raise UnsafeName(f"not a name for a playbook: {dataset!r}")
        if len(dataset.encode("utf-8")) > MAX_NAME_BYTES:
            raise UnsafeName(f"a playbook's name has at most {MAX_NAME_BYTES} bytes")
        return self.data_dir / f"{dataset}.json"


def _replace(path: Path, data: bytes) -> None:
    """Writes beside the file, flushes to disk, then renames: a crash leaves the old file or the
    new, never half.
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
    """Makes the rename itself durable, where directories can be opened at all."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
