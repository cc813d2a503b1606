"""The data of a release: `python -m tests.e2e.released` writes that of this version, once.

An archive contains the files of a `.hansei` folder, a dump of its database, and what must be found
in it. Later versions open it (`tests/e2e/test_versions.py`).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memory_api.embedded.binaries import find_binaries
from memory_api.embedded.data_directory import SUPERUSER
from memory_api.embedded.provisioning import provision_database
from memory_api.embedded.server import EmbeddedPostgres
from tests.e2e.conftest import Home, Up, new_home, start_up
from tests.support.paths import ROOT

FOLDER = ROOT / "tests/recordings/releases"
DATABASE = "hansei"
LEARN = ("reflect", str(ROOT / "examples/traces.jsonl"), "--playbook", "support")
DUMP, FACTS = "hansei.dump", "facts.json"


def archive_of(version: str) -> Path:
    return FOLDER / f"{version}.tar.xz"


def facts(up: Up) -> dict[str, Any]:
    """What a user sees of the data."""
    with up.client as client:

        def get(path: str) -> Any:
            answer = client.get(f"/api/v1{path}")
            assert answer.status_code == 200, answer.text
            return answer.json()

        memories = get("/memories?limit=100")["items"]
        return {
            "traces": sorted(trace["id"] for trace in get("/traces?limit=100")["items"]),
            "memories": sorted([memory["id"], memory["content"]] for memory in memories),
            "playbook": get("/playbooks/support")["bullets"],
        }


@contextmanager
def running(home: Home) -> Iterator[Up]:
    """`hansei up` of a home."""
    up = start_up(home)
    try:
        yield up
    finally:
        assert up.interrupt() == 0
        assert up.process.stdout is not None
        up.process.stdout.close()


def write_archive(path: Path) -> None:
    with new_home() as home:
        with running(home) as up:
            learned = home.run(*LEARN, capture_output=True)
            assert learned.returncode == 0, learned.stderr
            (home.data / FACTS).write_text(json.dumps(facts(up)))
            server = EmbeddedPostgres(home.data).start()  # the running one
            url = server.url(SUPERUSER, DATABASE)
            _run_program("pg_dump", "--format=custom", f"--file={home.data / DUMP}", url)
            server.stop()
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w:xz") as archive:
            for file in [*sorted(home.data.glob("*.json")), home.data / DUMP]:
                archive.add(file, file.name)


def restore(path: Path, home: Home) -> dict[str, Any]:
    """A data folder as the release left it, on a server of this version. Returns its facts."""
    home.data.mkdir(mode=0o700, exist_ok=True)
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            assert content is not None
            target = home.data / Path(member.name).name
            target.write_bytes(content.read())
            target.chmod(0o600)
    server = EmbeddedPostgres(home.data).start()
    try:
        asyncio.run(provision_database(server))
        owner, superuser = (server.url(role, DATABASE) for role in ("hansei_owner", SUPERUSER))
        _run_program("psql", owner, "-c", "create role hansei_analyst nologin")
        _run_program(
            "pg_restore",
            "--clean",
            "--if-exists",
            "--exit-on-error",
            f"--dbname={superuser}",
            home.data / DUMP,
        )
    finally:
        server.stop()
    return json.loads((home.data / FACTS).read_text())


def _run_program(name: str, *arguments: str | Path) -> None:
    subprocess.run([find_binaries(None) / name, *arguments], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    write_archive(
        archive_of(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
    )
