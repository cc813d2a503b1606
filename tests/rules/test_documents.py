"""Links between documents work, and the code that the guides name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rules.passages import documents
from tests.rules.sources import ROOT
from tests.rules.test_spec_map import names
from tests.support.cases import each_case

SERVICE = ROOT / "apps/memory_api"
GUIDES = ("docs/follow-a-trace.md", "docs/architecture.md")
NOT_COUNTED = {
    "analytics-views",
    "architecture",
    "configuration",
    "follow-a-trace",
    "packages",
    "spec-map",
}
"""Pages that are generated or for contributors."""
PATH = re.compile(r"[\w./-]+\.(?:py|sql|txt)|(?:[a-z_]+/)+")
MARKDOWN = [path for path in documents() if path.suffix == ".md"]


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


def broken_links(path: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    found: list[str] = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            found.append(link)
    return found


def place(name: str) -> Path | None:
    """A file or folder that a guide names: below the service, or below the project."""
    return next((base / name for base in (SERVICE, ROOT) if (base / name).exists()), None)


def missing_code(guide: str) -> list[str]:
    """Paths in backticks that do not exist, and names of functions in the row of a file that the
    file does not define. A path may be abbreviated to its end (`verdicts/record.py`).
    """
    found: list[str] = []
    for line in (ROOT / guide).read_text(encoding="utf-8").splitlines():
        words = re.findall(r"`([^`]+)`", line)
        paths = [word for word in words if PATH.fullmatch(word)]
        found += [path for path in paths if not place(path) and not ends_a_path(path)]
        cells = line.split(" | ")
        if line.startswith("| `") and paths and (file := place(paths[0])) and file.suffix == ".py":
            first = re.findall(r"`([A-Za-z_][\w.]*)`", " ".join(cells[: len(cells) - 1]))
            defined = [each for each in first if not PATH.fullmatch(each)]
            found += [f"{paths[0]}::{each}" for each in defined if each not in names(file)]
    return found


def ends_a_path(name: str) -> bool:
    return any(
        path.as_posix().endswith(f"/{name.rstrip('/')}") for path in SERVICE.rglob(Path(name).name)
    )


@each_case("path", MARKDOWN)
def test_links_work(path: Path) -> None:
    assert broken_links(path) == []


@pytest.mark.parametrize("guide", GUIDES)
def test_code_that_a_guide_names_exists(guide: str) -> None:
    assert missing_code(guide) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("# One\n[a](b.md) [b](#one) [c](#two) [d](a.md#one)\n", encoding="utf-8")
    assert broken_links(document) == ["b.md", "#two"]


def test_pages_for_users_have_at_most_20_000_words() -> None:
    """Whoever writes more shortens something else. Code blocks, tables that are generated, and
    pages for contributors do not count.
    """
    words = 0
    for page in (ROOT / "docs").rglob("*.md"):
        if "decisions" in page.parts or page.stem in NOT_COUNTED:
            continue
        prose = re.sub(r"```.*?```", "", page.read_text("utf8"), flags=re.DOTALL)
        words += sum(bool(re.search(r"\w", word)) for word in prose.split())
    assert 10_000 < words <= 20_000
