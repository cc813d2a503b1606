"""Splits SQL files into statements, because a distributed table accepts one DDL statement
per call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent / "sql"


def read_statements(name: str) -> Iterator[str]:
    """The statements of `sql/<name>.sql`. A semicolon at the end of a line ends a statement, except
    inside $$ … $$.
    """
    statement = ""
    for part in re.split(r";[ ]*\n", (FOLDER / f"{name}.sql").read_text() + "\n"):
        statement += part
        if statement.count("$$") % 2:
            statement += ";\n"
            continue
        if re.sub(r"--.*", "", statement).strip():
            yield statement.strip()
        statement = ""
