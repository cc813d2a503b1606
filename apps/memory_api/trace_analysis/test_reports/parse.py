"""Parse the output of any supported test runner."""

from __future__ import annotations

from memory_api.trace_analysis.test_reports import go, javascript, python
from memory_api.trace_analysis.test_reports.report import Parser, TestReport, split_lines

PARSERS: tuple[Parser, ...] = (
    python.parse_pytest,
    python.parse_unittest,
    javascript.parse_jest,
    go.parse_go_test,
)


def parse_test_report(text: str) -> TestReport:
    """Parses output of pytest, unittest, jest or `go test` (text or -json), anywhere in a text.
    Never raises.

    `framework` is None for other text. Of several reports in one text, a failed one wins.
    """
    lines = split_lines(text)
    reports = [report for parse in PARSERS if (report := parse(lines)) is not None]
    if not reports:
        return TestReport()
    return next((report for report in reports if report.failed_or_error_count), reports[0])
