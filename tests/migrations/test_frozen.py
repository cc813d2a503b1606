"""A migration that was released never changes: a database that has run it would differ from a new
one. `make freeze` records the hashes of their files.
"""

from __future__ import annotations

import hashlib

import pytest
from alembic.script import ScriptDirectory

from memory_api.core.migrations import alembic_config
from memory_api.core.resources import schema_files
from tests.support.paths import ROOT

FOLDER = ROOT / "migrations"
RECORD = ROOT / "tests" / "migrations" / "frozen.sha256"


def current_hashes() -> dict[str, str]:
    return {
        str(path.relative_to(FOLDER)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in schema_files()
    }


def record() -> None:
    lines = (f"{digest}  {name}\n" for name, digest in current_hashes().items())
    RECORD.write_text("".join(lines), encoding="utf-8")


def test_files_of_migrations_are_those_recorded() -> None:
    recorded = dict(line.split()[::-1] for line in RECORD.read_text(encoding="utf-8").splitlines())
    current = current_hashes()
    changed = sorted(name for name in current | recorded if current.get(name) != recorded.get(name))
    if changed:
        pytest.fail(
            f"changed: {', '.join(changed)}. Until 0.1.0 is released, run `make freeze`. From then"
            " on, add a migration instead (CONTRIBUTING.md)."
        )


def test_each_sql_file_belongs_to_one_migration() -> None:
    script = ScriptDirectory.from_config(alembic_config())
    texts = {
        revision.revision: "\n".join(revision.module.statements())
        for revision in script.walk_revisions()
    }
    for path in FOLDER.glob("sql/*.sql"):
        lines = path.read_text(encoding="utf-8").splitlines()
        last = next(line for line in reversed(lines) if line[:1].isalpha()).rstrip(";")
        assert sum(last in text for text in texts.values()) == 1, path.name


if __name__ == "__main__":
    record()
