"""What speaks for or against a run without anybody's opinion: test reports, and the answer beside
the right one. Both are pure, never raise, and cost what the text is long.
"""

from __future__ import annotations

from apps.memory_api.evaluation.compare import compare
from apps.memory_api.evaluation.reports import go, jest, pytest, unittest
from apps.memory_api.evaluation.reports.lines import Parser, lines_of
from apps.memory_api.evaluation.schemas import TestReport

__all__ = ["compare", "parse_test_report"]

PARSERS: tuple[Parser, ...] = (pytest.parse, unittest.parse, jest.parse, go.parse)


def parse_test_report(text: str) -> TestReport:
    """What pytest, unittest, jest or `go test` (text or -json) printed, anywhere in a text.

    `framework` is None when it is none of these. Of several reports in one text a failing one
    speaks, because the whole did not pass.
    """
    lines = lines_of(text)
    found = [report for parse in PARSERS if (report := parse(lines)) is not None]
    if not found:
        return TestReport()
    return next((report for report in found if report.bad), found[0])
