"""The release before the last migration and this one, side by side on a migrated database, as
during an upgrade without downtime.

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

from tests.support.fault_workload import Sender, lost, traces
from tests.support.installation import Installation
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
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("the earlier version is in git")
    try:
        commit = earlier_commit()
        archive = git("archive", commit)
    except subprocess.CalledProcessError:
        pytest.skip("this clone does not contain the commit before the newest migration")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    ours = {path.name: path.read_bytes() for path in (ROOT / VERSIONS).glob("[0-9]*.py")}
    for path in (folder / VERSIONS).glob("[0-9]*.py"):
        if ours.get(path.name) != path.read_bytes():
            pytest.skip(f"{commit} has another migration {path.stem}")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "old",
    [
        pytest.param("api", marks=pytest.mark.thorough),
        "worker",
        pytest.param("second", marks=pytest.mark.thorough),
    ],
)
def test_two_versions_lose_nothing(
    installation: Installation, earlier: Path, sender: Sender, old: str
) -> None:
    """`second` is a worker beside the new one; the others take the place of the new process."""
    if old != "second":
        installation.kill(old)
    installation.run(old, {"PYTHONPATH": f"{earlier}:{earlier / 'sdk'}"}, cwd=earlier)
    try:
        installation.await_ready()
        with sender.at_work():
            installation.await_step(sender.tenant, "evaluate")
            replaced = "api" if old == "api" else old
            installation.kill(replaced)  # the upgrade goes on: this process is replaced
            installation.run(replaced, {})
        installation.await_drained(sender.tenant)
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
    finally:
        installation.kill(old)
        if old != "second":
            installation.run(old, {})
            installation.await_ready()
