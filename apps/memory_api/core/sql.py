"""Statements too good for the ORM stand in `.sql` files beside the module that uses them."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import TextClause, text


def load(module_file: str, name: str) -> TextClause:
    """The statement in the file `name` beside `module_file`: `load(__file__, "x.sql")`."""
    return text((Path(module_file).parent / name).read_text(encoding="utf-8"))
