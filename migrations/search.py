"""The database function `hansei_search`, assembled from the named parts of `sql/search.sql`.

A part that several statements use is written once. The tests of query plans explain single parts.
"""

from __future__ import annotations

import re
from functools import cache

from migrations.statements import FOLDER


@cache
def _parts() -> dict[str, str]:
    text = (FOLDER / "search.sql").read_text(encoding="utf-8")
    split = re.split(r"^-- :(\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(split[1::2], split[2::2], strict=True))


def part(name: str) -> str:
    """The named part. Each line `--> other` is replaced by that part."""
    text = _parts()[name].rstrip("\n") + "\n"
    return re.sub(r"^--> (\w+)\n", lambda line: part(line[1]), text, flags=re.MULTILINE)


def search_function() -> str:
    """The statement `create or replace function hansei_search …`."""
    return part("function")
