"""The table of docs/decisions/threat-model.md: a cell names a test, or says "not defended"."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

ACTORS = 11


def cells() -> list[tuple[str, str]]:
    text = (ROOT / "docs/decisions/threat-model.md").read_text(encoding="utf-8")
    section = text.split("## Blast radius\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    assert len(rows) == ACTORS + 1
    return [(row[0].strip(), cell.strip()) for row in rows[1:] for cell in row[1:]]


def test_each_cell_names_a_test_or_says_not_defended() -> None:
    found = cells()
    assert len(found) == 4 * ACTORS
    for actor, cell in found:
        tests = re.findall(r"`([\w/]+\.py)`", cell)
        paths = [ROOT / (name if "/" in name else f"tests/attack/{name}") for name in tests]
        assert [path for path in paths if not path.is_file()] == [], actor
        assert tests or "not defended" in cell or cell in ("nothing", "as a BI login"), cell
