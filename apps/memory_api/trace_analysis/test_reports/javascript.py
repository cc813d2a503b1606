"""Parse the output of jest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from memory_api.trace_analysis.test_reports.report import (
    FailedTestCollector,
    TestReport,
    parse_counts,
)

_SUMMARY = re.compile(r"^\s*Tests:\s+(?P<counts>(?:\d+ [a-z]+, ){0,6}\d+ total)")
_FILE_RESULT = re.compile(r"^\s*(?P<result>PASS|FAIL)\s+(?P<file>\S+\.[cm]?[jt]sx?)\b")
_TEST_RESULT = re.compile(r"^\s*(?P<mark>[✓√✕×✗○✎]) (?P<name>.+?)(?: \([\d.]+ m?s\))?$")
_FAILURE_HEADER = re.compile(r"^\s*● (?P<name>\S.*)$")
_SOURCE_LINE = re.compile(
    r"\(?(?P<file>[^\s():]{1,300}\.[cm]?[jt]sx?):(?P<line>\d{1,7}):\d{1,7}\)?$"
)
_SUITE_ERROR = "Test suite failed to run"
_PASS_MARKS, _FAIL_MARKS = "✓√", "✕×✗"


def parse_jest(lines: Sequence[str]) -> TestReport | None:
    counts: Counter[str] = Counter()
    marks: Counter[str] = Counter()
    has_file_lines = has_summary = False
    for line in lines:
        if tests := _SUMMARY.match(line):
            counts.update(parse_counts(tests["counts"]))
            has_summary = True
        elif _FILE_RESULT.match(line):
            has_file_lines = True
        elif mark := _TEST_RESULT.match(line):
            symbol = mark["mark"]
            marks[
                "passed"
                if symbol in _PASS_MARKS
                else "failed"
                if symbol in _FAIL_MARKS
                else "skipped"
            ] += 1
    if not has_summary and not has_file_lines:
        return None
    totals = counts if has_summary else marks
    failures = _parse_failures(lines)
    errors = sum(failed_test.is_error for failed_test in failures.failed_tests.values())
    return failures.to_report(
        "jest",
        passed=totals["passed"],
        failed=totals["failed"],
        errors=errors,
        skipped=totals["skipped"] + totals["todo"],
    )


def _parse_failures(lines: Sequence[str]) -> FailedTestCollector:
    """The failed tests, from the ● sections, else from the ✕ lines."""
    failures = FailedTestCollector()
    file = ""
    name = ""
    message: list[str] = []
    for line in lines:
        if file_result := _FILE_RESULT.match(line):
            file, name = file_result["file"], ""
        elif line.startswith(("Test Suites:", "Summary of all")):
            name = ""
        elif section := _FAILURE_HEADER.match(line):
            name = section["name"].strip()
            is_suite_error = name == _SUITE_ERROR
            name = f"{file} {name}".strip() if is_suite_error else name
            message = []
            failures.add(name, file=file or None, is_error=is_suite_error)
        elif name:
            _add_detail(failures, name, line.strip(), message)
    if not failures.failed_tests:
        for line in lines:
            if (mark := _TEST_RESULT.match(line)) and mark["mark"] in _FAIL_MARKS:
                failures.add(mark["name"])
    return failures


def _add_detail(failures: FailedTestCollector, name: str, line: str, message: list[str]) -> None:
    """Adds a line of a section. The message is its first line plus `Expected:` and `Received:`."""
    failed_test = failures.failed_tests.get(name)
    if failed_test is None or not line:
        return
    if (
        line.startswith("at ")
        and "node_modules" not in line
        and (source := _SOURCE_LINE.search(line))
    ):
        failures.add(name, "; ".join(message), source["file"], int(source["line"]))
    elif not message or (line.startswith(("Expected", "Received")) and len(message) < 3):
        message.append(line)
