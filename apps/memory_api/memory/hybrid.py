"""The parts of `hybrid.sql`, and the database function made of them.

The text stands once: migrations install what `definition()` says, the tests of query plans explain
what `part()` gives. After a change of `hybrid.sql` a new migration installs it again.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "hybrid.sql"


@cache
def _parts() -> dict[str, str]:
    split = re.split(r"^-- :(\w+)\n", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(split[1::2], split[2::2], strict=True))


def part(name: str) -> str:
    """The part of this name, with the parts it is made of in their places."""
    text = _parts()[name].rstrip("\n") + "\n"
    return re.sub(r"^--> (\w+)\n", lambda line: part(line[1]), text, flags=re.MULTILINE)


def definition() -> str:
    """`create or replace function hansei_search …`: one statement."""
    return part("function")


def dropped() -> str:
    """The statement that takes the function away, whatever its arguments."""
    return "drop function if exists hansei_search"
