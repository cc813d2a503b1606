"""An upgrade without downtime: the release before the last migration creates the database, this one
migrates it under load, and both run side by side.

The earlier version is the commit before the newest migration, taken from git.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.recordings import SAFE_FILTER
from tests.support.fault_workload import Sender, lost, traces
from tests.support.installation import Installation, version_environment
from tests.support.paths import ROOT

VERSIONS = "migrations/versions"


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def earlier_commit() -> str:
    """The parent of the commit that added the newest migration."""
    newest = max(path.name for path in (ROOT / VERSIONS).glob("[0-9]*.py"))
    added = git("log", "--diff-filter=A", "--format=%H", "--", f"{VERSIONS}/{newest}").split()
    if not added:
        pytest.skip("the newest migration is not committed")
    return f"{added[-1].decode()}^"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The files of the earlier version."""
    if len(migrations(ROOT)) == 1:
        pytest.skip("there is one migration, so no earlier version that can be upgraded")
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("the earlier version is in git")
    try:
        commit = earlier_commit()
        archive = git("archive", commit)
    except subprocess.CalledProcessError:
        pytest.skip("this clone does not contain the commit before the newest migration")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, **SAFE_FILTER)
    removed = migrations(folder) - migrations(ROOT)
    if removed:
        pytest.skip(f"{commit} has migrations that this version does not have: {removed}")
    yield folder
    shutil.rmtree(folder)


def migrations(folder: Path) -> set[str]:
    return {path.name for path in (folder / VERSIONS).glob("[0-9]*.py")}


@pytest.fixture(scope="module")
def upgraded(
    earlier: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Installation, Sender]]:
    """An installation of the earlier version with its own database, which this version migrated
    while a client was at work; and this client. Then this version replaced the processes.
    """
    installation = Installation(tmp_path_factory.mktemp("upgraded"))
    try:
        installation.start_version(earlier)
        sender = Sender(installation, installation.tenant())
        before = installation.rows("select version_num from alembic_version")
        with sender.at_work():
            installation.await_step(sender.tenant, "evaluate")
            installation.migrate()
        assert installation.rows("select version_num from alembic_version") != before
        installation.await_drained(sender.tenant)
        installation.run_again({})
        yield installation, sender
    finally:
        installation.stop()


def test_migration_under_load_loses_nothing(upgraded: tuple[Installation, Sender]) -> None:
    assert_all_learned(*upgraded)


@pytest.mark.thorough
@pytest.mark.parametrize("old", ["api", "worker", "second"])
def test_two_versions_lose_nothing(
    upgraded: tuple[Installation, Sender], earlier: Path, old: str
) -> None:
    """`second` is a worker beside the new one; the others take the place of the new process."""
    installation, _ = upgraded
    sender = Sender(installation, installation.tenant())
    if old != "second":
        installation.kill(old)
    installation.run(old, version_environment(earlier), cwd=earlier)
    try:
        installation.await_ready()
        with sender.at_work():
            installation.await_step(sender.tenant, "evaluate")
            installation.kill(old)  # the upgrade continues: this process is replaced
            installation.run(old, {})
        installation.await_drained(sender.tenant)
        assert_all_learned(installation, sender)
    finally:
        installation.kill(old)
        if old != "second":
            installation.run(old, {})
            installation.await_ready()


def assert_all_learned(installation: Installation, sender: Sender) -> None:
    """Each trace is stored and evaluated once, and no run failed."""
    assert len(sender.acknowledged) == len(traces(sender.advice))
    assert lost(installation, sender) == []
    assert sender.statuses <= {200, 201, 503}, sender.problems
    counts = installation.rows(
        "select (select count(*) from traces where tenant_id = $1),"
        " (select sum(event_count) from traces where tenant_id = $1),"
        " (select count(*) from trace_events where tenant_id = $1),"
        " (select count(*) from runs where tenant_id = $1 and kind = 'evaluate'"
        "  and state = 'done'),"
        " (select count(*) from runs where tenant_id = $1 and state in ('failed', 'dead'))",
        sender.tenant.id,
    )[0]
    sent = len(sender.acknowledged)
    events = sum(len(trace["events"]) for trace in traces(sender.advice))
    assert counts == (sent, events, events, sent, 0)
