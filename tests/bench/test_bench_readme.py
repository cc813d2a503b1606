"""The list of benches in bench/README.md is all of them."""

from __future__ import annotations

import re

from bench.__main__ import FOLDER, benches


def test_every_bench_is_listed() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(benches()) <= set(re.findall(r"^\| `(\w+)` \|", text, re.M))
