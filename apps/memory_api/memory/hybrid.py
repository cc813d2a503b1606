"""The parts of `hybrid.sql`, and the database function made of them.

The tests of query plans explain what `part()` gives. A migration installs a text of its own
(`migrations/sql/*_search.sql`), so that an old one never installs what came later: after a change
of `hybrid.sql`, `definition()` is frozen as the next one's, and a test compares the two.
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
