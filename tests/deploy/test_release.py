"""What `make release-check` finds; it runs completely before a release, not here."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.deploy import release
from tests.deploy.packages import BEGIN, DOCUMENT, END, reasons
from tests.deploy.release import (
    MAX_PACKAGES,
    VERSIONS,
    Missing,
    ToDo,
    check_changelog,
    check_tree,
    check_versions,
    check_wheels,
    places,
    set_version,
    version,
)
from tests.support.paths import ROOT


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files with a version, in a repository of their own."""
    for name in (*VERSIONS, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b.c commit -qm a"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


def test_all_places_have_one_version() -> None:
    assert {found[1] for _, found in places()} == {version()}
    assert check_versions("") == check_versions(f"v{version()}") == version()


def test_set_version_writes_every_place(project: Path) -> None:
    set_version("9.8.7rc1")
    assert {found[1] for _, found in places()} == {"9.8.7rc1"}
    changed = subprocess.run(
        ["git", "diff", "--numstat"], cwd=project, capture_output=True, text=True, check=True
    ).stdout
    lines = {line.split("\t")[2]: line.split("\t")[:2] for line in changed.splitlines()}
    assert {name: [int(n) for n in counts] for name, counts in lines.items()} == {
        name: [len(patterns)] * 2 for name, patterns in VERSIONS.items()
    }


def test_other_version_is_found(project: Path) -> None:
    path = project / "sdk/typescript/package.json"
    path.write_text(path.read_text().replace(version(), "0.0.9"))
    with pytest.raises(Missing, match=r"but sdk/typescript/package\.json: 0\.0\.9$"):
        check_versions("")


def test_other_tag_is_found() -> None:
    with pytest.raises(Missing, match="the tag v9"):
        check_versions("v9.0.0")


def test_dirty_tree_is_one_line(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "run", in_folder(project))
    assert check_tree("")
    (project / "new file").touch()
    with pytest.raises(Missing, match=r"^1 files are not committed, such as \"new file\"$"):
        check_tree("")


def in_folder(folder: Path):
    def run(*command: str) -> str:
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True
        ).stdout

    return run


def test_date_is_needed_only_for_a_tag(project: Path) -> None:
    path = project / "CHANGELOG.md"
    path.write_text(f"# Changelog\n\n## {version()}, unreleased\n")
    with pytest.raises(ToDo):
        check_changelog("")
    with pytest.raises(Missing, match="no date"):
        check_changelog(f"v{version()}")
    path.write_text(f"# Changelog\n\n## {version()}, 2026-12-01\n")
    assert check_changelog(f"v{version()}")
    path.write_text("# Changelog\n\n## 0.0.1, 2026-12-01\n")
    with pytest.raises(Missing, match="newest section"):
        check_changelog("")


@pytest.mark.parametrize(
    ("file", "requires", "problem"),
    [
        ("hansei/a.py", "rich", None),
        ("apps/a.py", "rich", "also contains apps"),
        ("hansei/a.py", "hatchling>=1", "needs a build backend"),
        ("hansei/a.py", 'hatchling>=1; extra == "build"', None),
    ],
)
def test_contents_of_wheels(
    file: str, requires: str, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "DIST", tmp_path)
    for name, one in (("hansei", file), ("hansei_server", "memory_api/a.py")):
        info = f"{name}-{version()}.dist-info"
        with zipfile.ZipFile(tmp_path / f"{name}-{version()}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(one, "")
            wheel.writestr(f"{info}/METADATA", f"Name: {name}\nRequires-Dist: {requires}\n\n")
            wheel.writestr(f"{info}/licenses/LICENSE", "")
    if problem is None:
        check_wheels("")
    else:
        with pytest.raises(Missing, match=problem):
            check_wheels("")


def test_table_lists_every_package() -> None:
    """Those of an installation without extras; the lock files have their versions."""
    table = DOCUMENT.read_text().split(BEGIN)[1].split(END)[0]
    listed = re.findall(r"^\| ([a-z0-9-]+) \| [\d.]+ \| (.*) \|$", table, re.MULTILINE)
    names = {name for name, _ in listed}
    locked = set(
        re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    )
    assert set(reasons()) - {"hansei"} <= names <= locked | {"hansei", "hansei-server"}
    assert [name for name, reason in listed if not reason.removeprefix("needed by ")] == []
    assert len(names) <= MAX_PACKAGES
