"""Statements too good for the ORM stand in `.sql` files beside the module that uses them."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import TextClause, text


def read(module_file: str, name: str) -> str:
    """The statement in the file `name` beside `module_file`, for the driver: `read(__file__,
    "x.sql")`.
    """
    return (Path(module_file).parent / name).read_text(encoding="utf-8")


def load(module_file: str, name: str) -> TextClause:
    """The same for SQLAlchemy, with its `:name` parameters."""
    return text(read(module_file, name))
