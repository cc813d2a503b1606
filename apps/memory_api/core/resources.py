"""Load packaged files: named SQL blocks, migrations, prompts."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def _blocks(path: str) -> dict[str, str]:
    names_and_texts = _BLOCK.split((PACKAGE / path).read_text(encoding="utf-8"))[1:]
    return dict(zip(names_and_texts[::2], map(str.strip, names_and_texts[1::2]), strict=True))


def read_sql(path: str, name: str) -> str:
    """Return the statement after `-- name: <name>` in a `.sql` file.

    `path` is relative to the package, for example `run_queue/queue.sql`. Raises `KeyError` if the
    file has no such block.
    """
    return _blocks(path)[name]


def packaged_path(name: str) -> Path:
    """Return a folder such as `migrations`: in the installed package or at the checkout's root."""
    packaged = PACKAGE / name
    return packaged if packaged.is_dir() else PACKAGE.parents[1] / name


def schema_files() -> list[Path]:
    """The files that define the schema. Those of a release never change."""
    folder = packaged_path("migrations")
    helpers = (path for path in folder.glob("*.py") if path.name not in ("env.py", "__init__.py"))
    return sorted([*folder.glob("versions/*.py"), *folder.glob("sql/*.sql"), *helpers])


@cache
def schema_digest() -> str:
    """Stored in each database as the comment of `alembic_version`. Before a release, one revision
    may have several.
    """
    content = b"".join(path.read_bytes() for path in schema_files())
    return hashlib.sha256(content).hexdigest()
