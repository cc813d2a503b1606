"""A `.hansei` folder and other versions: upgrades, one that is interrupted, and a downgrade.

The later version is this one with one more migration.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from memory_api.core.migrations import head_revision
from tests.e2e.conftest import Home, StartUp, until
from tests.e2e.released import FOLDER, LEARN, facts, restore, running, write_archive
from tests.support.paths import ROOT
from tests.support.processes import free_port

LATER = "0999_later"
MIGRATION = f'''
from collections.abc import Iterator
from pathlib import Path

from alembic import op

revision = "{LATER}"
down_revision = "{head_revision()}"
branch_labels = None
depends_on = None


def statements() -> Iterator[str]:
    yield "alter table traces add column later text"


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements():
        op.execute(statement)
    started = Path(__file__).with_name("started")
    if not started.exists():
        started.touch()
        op.execute("select pg_sleep(300)")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
'''


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a later version, whose migration waits the first time that it runs."""
    folder = tmp_path_factory.mktemp("later")
    for name in ("apps", "sdk/hansei", "migrations", "prompts", "config"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
    (folder / f"migrations/versions/{LATER}.py").write_text(MIGRATION)
    return folder


@pytest.fixture(scope="module")
def this_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive that this version writes, as it will for its release."""
    path = tmp_path_factory.mktemp("released") / "this.tar.xz"
    write_archive(path)
    return path


@pytest.mark.timeout(300)
def test_interrupted_upgrade_upgrade_and_downgrade(
    this_version: Path, later: Path, home: Home
) -> None:
    expected = restore(this_version, home)
    sources = {"PYTHONPATH": f"{later / 'apps'}:{later / 'sdk'}:{later}"}
    of_later = replace(home, extra=sources)

    interrupted = of_later.start("up", "--json", "--processes", "1", "--port", str(free_port()))
    until((later / "migrations/versions/started").exists, "the migration")
    processes = [psutil.Process(interrupted.pid)]
    processes += processes[0].children(recursive=True)
    for process in processes:  # also the one that migrates
        if process.username() == processes[0].username():  # not PostgreSQL
            process.kill()
    interrupted.communicate()

    with running(home) as up:  # this version goes on: nothing of the migration is there
        assert facts(up) == expected

    with running(of_later) as up:
        assert facts(up) == expected
        again = of_later.run(*LEARN, capture_output=True)
        assert "All 26 traces are already stored" in again.stdout, again.stderr

    refused = home.run("up", "--port", str(free_port()), capture_output=True)
    assert refused.returncode == 1
    (line,) = refused.stderr.strip().splitlines()
    assert f"The database has revision {LATER}, which this release does not know." in line


@pytest.mark.parametrize("release", ["this version", *sorted(p.name for p in FOLDER.glob("*.xz"))])
def test_data_of_release_is_opened(
    release: str, this_version: Path, home: Home, up: StartUp
) -> None:
    archive = this_version if release == "this version" else FOLDER / release
    expected = restore(archive, home)
    assert facts(up()) == expected
