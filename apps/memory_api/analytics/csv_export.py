"""Answers as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def to_csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """CSV (RFC 4180) with a header. Null is an empty field.

    A spreadsheet executes a text that starts like a formula, and texts come from agents. Such a
    text gets a leading apostrophe. Names of columns come from the author of a saved statement.
    """
    output = io.StringIO(newline="")
    writer = csv.writer(output)
    writer.writerow([_to_cell(column) for column in columns])
    writer.writerows([_to_cell(value) for value in row] for row in rows)
    return output.getvalue()


def _to_cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value
