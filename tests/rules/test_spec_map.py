"""`docs/spec-map.md` is true: every line of the checklist once, every file, name and test really
there."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.rules.sources import tree
from tests.support.cases import each_case
from tests.support.paths import ROOT

MAP = ROOT / "docs/spec-map.md"
LINES = (Path(__file__).parent / "checklist_lines.txt").read_text(encoding="utf-8").split()
"""The number of every demand of the checklist: 301 in five documents."""
DOCUMENTS = ("S1", "S2", "S3", "S4", "S5")

ROW = re.compile(r"^\| (S\d\.\d+) \| (.*) \| (.*) \| (.*) \|$")
PLACE = re.compile(r"`([^`]+)`")
FILE = re.compile(r"[\w./*-]+\.(?:py|md|txt|sql|ya?ml|toml|json)")
LATER = "planned"


@dataclass(frozen=True)
class Row:
    line: str
    what: str
    code: str
    test: str

    @property
    def built(self) -> bool:
        return self.code != LATER

    @property
    def places(self) -> list[str]:
        return PLACE.findall(self.code)

    @property
    def tests(self) -> list[str]:
        return PLACE.findall(self.test)


def rows() -> list[Row]:
    found = [ROW.match(line) for line in MAP.read_text(encoding="utf-8").splitlines()]
    return [Row(*(match.groups())) for match in found if match]


ROWS = rows()
BUILT = [row for row in ROWS if row.built]
CITED = sorted(
    {test for row in BUILT for test in row.tests}
    | {place for row in ROWS for place in PLACE.findall(row.what) if place.startswith("tests/")}
)


@cache
def names(path: Path) -> frozenset[str]:
    """Everything a Python file defines: `name` and `Class.member`."""
    found: set[str] = set()
    for node in tree(path).body:
        for name in defined(node):
            found.add(name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in defined(inner)}
    return frozenset(found)


def defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def is_there(place: str) -> bool:
    name, _, inner = place.partition("::")
    path = ROOT / name
    if not path.is_file():
        return False
    return not inner or (path.suffix == ".py" and inner in names(path))


def test_every_line_occurs_once() -> None:
    assert len(LINES) == 301
    assert [row.line for row in ROWS] == LINES


def test_lines_are_those_of_the_checklist(shared: Path) -> None:
    text = (shared / "spec/CHECKLIST.md").read_text(encoding="utf-8")
    assert re.findall(r"^- (S\d\.\d+) ", text, re.MULTILINE) == LINES


def test_every_named_file_exists() -> None:
    """Also those that only a summary names, such as a decision about the place of the tests."""
    named = {place for row in ROWS for place in PLACE.findall(row.what) if FILE.fullmatch(place)}
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


@each_case("row", ROWS)
def test_line_has_code_and_test_or_is_planned(row: Row) -> None:
    assert row.what.strip()
    if row.built:
        assert row.places
        assert row.tests
    else:
        assert row.code == LATER
        assert row.test == "–"


def test_every_cited_code_exists() -> None:
    places = {place for row in BUILT for place in row.places}
    assert sorted(place for place in places if not is_there(place)) == []


def test_every_cited_test_exists() -> None:
    assert [test for test in CITED if not is_there(test)] == []
    for test in CITED:
        path, _, name = test.partition("::")
        assert Path(path).name.startswith("test_"), test
        assert name.startswith("test_"), test


def test_summary_counts_rows() -> None:
    text = MAP.read_text(encoding="utf-8")
    told = re.findall(r"^\| (S\d) – [^|]+ \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    counted = [
        (
            document,
            str(sum(row.built for row in ROWS if row.line.startswith(f"{document}."))),
            str(sum(not row.built for row in ROWS if row.line.startswith(f"{document}."))),
        )
        for document in DOCUMENTS
    ]
    assert told == counted


@each_case(
    ("place", "there"),
    [
        ("apps/memory_api/library/reflection_engine.py::ReflectionEngineV2.store_reflection", True),
        ("apps/memory_api/library/reflection_engine.py::ReflectionEngineV2.forget", False),
        ("apps/memory_api/library/reflection_engine.py::store_reflection", False),
        ("apps/memory_api/reflection/motor.py", False),
        ("prompts/retrieval/prompt_block.txt", True),
        ("prompts/retrieval/prompt_block.txt::name", False),
    ],
)
def test_missing_code_is_detected(place: str, there: bool) -> None:
    assert is_there(place) is there
