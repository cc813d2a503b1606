"""The list of benches in bench/README.md is all of them, and the documentation names no other."""

from __future__ import annotations

import re

from bench.__main__ import FOLDER, benches
from tests.support.cases import each_case

ROOT = FOLDER.parent
BENCHES = {*benches(), "all"}
PAGES = ["README.md", "CONTRIBUTING.md", "bench/README.md"]


def test_every_bench_is_listed() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert BENCHES - {"all"} <= set(re.findall(r"^\| `(\w+)` \|", text, re.M))


@each_case("page", PAGES + sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")))
def test_named_benches_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|python -m )bench (\w+)", text))
    assert named <= BENCHES
