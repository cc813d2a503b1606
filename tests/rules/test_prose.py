"""The prose linter of `make lint` finds problems in prose, and none in code."""

from __future__ import annotations

from pathlib import Path

from proselint.checks import __register__
from proselint.registry import CheckRegistry

from tests.rules.prose import load_config, problems

TEXT = """# Title

This is very unique and the the same.

```
This is very unique.
```
"""


def test_problems_are_found_with_their_line(tmp_path: Path) -> None:
    CheckRegistry().register_many(__register__)
    document = tmp_path / "text.md"
    document.write_text(TEXT, encoding="utf-8")
    found = problems([document], load_config())
    assert {line.split(":")[1] for line in found} == {"3"}
    assert any("uncomparables" in line for line in found)
    assert any("lexical_illusions" in line for line in found)
