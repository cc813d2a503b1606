"""CSV that a person opens in a spreadsheet."""

from __future__ import annotations

import csv
import io

from memory_api.analytics.csv_export import to_csv


def test_no_cell_is_a_formula() -> None:
    """Texts come from agents, and names of columns from the author of a saved statement."""
    formulas = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"]
    text = to_csv(['=HYPERLINK("https://evil.example")', "n"], [[each, -5] for each in formulas])
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert header == ['\'=HYPERLINK("https://evil.example")', "n"]
    assert rows == [[f"'{each}", "-5"] for each in formulas]
