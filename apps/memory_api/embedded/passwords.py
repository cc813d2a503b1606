"""The one file, mode 0600, with the password of every role of the embedded server."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from apps.memory_api.embedded.errors import EmbeddedPostgresError

SUPERUSER = "postgres"
OWNER, APP, WORKER = "hansei_owner", "hansei_app", "hansei_worker"
FILE = "postgres-passwords.json"


def load_passwords(data_dir: Path, *, fresh: bool) -> dict[str, str]:
    """Role → password. Makes the file for a `fresh` cluster; the caller holds the cluster's lock.

    Raises EmbeddedPostgresError when the cluster exists and its passwords do not.
    """
    path = data_dir / FILE
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        if not fresh:
            raise EmbeddedPostgresError(
                f"{path} is gone, and the database cannot be entered without it:"
                " put it back, or choose another data folder"
            ) from None
    except (OSError, ValueError) as error:
        raise EmbeddedPostgresError(f"cannot read {path}: {error}") from error
    made = {role: secrets.token_urlsafe(24) for role in (SUPERUSER, OWNER, APP, WORKER)}
    write_private(path, json.dumps(made, indent=2) + "\n")
    return made


def write_private(path: Path, text: str) -> None:
    """Replace `path` by a file that only its owner can read, whole or not at all."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
