"""SQL files, one statement at a time (a distributed table takes one DDL statement per call)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent / "sql"


def statements(name: str) -> Iterator[str]:
    """The statements of `sql/<name>.sql`; a semicolon at a line's end closes one, except inside $$
    … $$.
    """
    held = ""
    for part in re.split(r";[ ]*\n", (FOLDER / f"{name}.sql").read_text() + "\n"):
        held += part
        if held.count("$$") % 2:
            held += ";\n"
            continue
        if re.sub(r"--.*", "", held).strip():
            yield held.strip()
        held = ""
