"""Parse the output of `go test`, as text (with and without -v) or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from memory_api.trace_analysis.test_reports.report import FailedTestCollector, TestReport

_RESULT = re.compile(r"^\s*--- (?P<result>PASS|FAIL|SKIP): (?P<test>\S+)(?: \([\d.]+s\))?$")
_TEST_START = re.compile(r"^=== (?:RUN|CONT|NAME|PAUSE) +(?P<test>\S+)$")
_PACKAGE = re.compile(
    r"^(?P<result>ok|FAIL)\s+(?P<name>[\w./~-]{1,300})\s+"
    r"(?P<detail>[\d.]+s|\(cached\)|\[(?:build|setup) failed\]|\[no tests to run\])"
)
_SOURCE_LINE = re.compile(r"^\s+(?P<file>[\w./-]{1,300}\.go):(?P<line>\d{1,7}): ?(?P<message>.*)$")
_COMPILER_ERROR = re.compile(
    r"^(?:vet: )?(?P<file>[\w./-]{1,300}\.go):(?P<line>\d{1,7})(?::\d+)?: (?P<message>.+)$"
)
_BUILD_HEADER = re.compile(r"^# (?P<name>\S+)")
_RESULT_BY_ACTION = {"pass": "PASS", "fail": "FAIL", "skip": "SKIP"}
_MAX_OUTPUT_LINES = 40


@dataclass
class _GoTestOutput:
    """Results by test and by package. Output by test (`package test` in JSON) and by package."""

    results: dict[str, str] = field(default_factory=dict[str, str])
    packages: dict[str, str] = field(default_factory=dict[str, str])
    output: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def add_output(self, owner: str, line: str) -> None:
        lines = self.output.setdefault(owner, [])
        if len(lines) < _MAX_OUTPUT_LINES:
            lines.append(line)


def parse_go_test(lines: Sequence[str]) -> TestReport | None:
    parsed = _GoTestOutput()
    if any(line.startswith("{") and '"Action":' in line for line in lines):
        _read_json(lines, parsed)
    else:
        _read_text(lines, parsed)
    return _to_report(parsed) if parsed.results or parsed.packages else None


def _read_text(lines: Sequence[str], parsed: _GoTestOutput) -> None:
    """A package line follows the lines of its tests."""
    test = ""
    build_package = ""
    for line in lines:
        if result := _RESULT.match(line):
            test = result["test"]
            parsed.results[test] = result["result"]
        elif start := _TEST_START.match(line):
            test = start["test"]
        elif package := _PACKAGE.match(line):
            parsed.packages[package["name"]] = _package_result(package["result"], package["detail"])
            test = build_package = ""
        elif header := _BUILD_HEADER.match(line):
            build_package, test = header["name"], ""
        elif line.startswith("panic: "):
            parsed.add_output(test, line)
            parsed.add_output("", line)
        elif build_package and _COMPILER_ERROR.match(line):
            parsed.add_output(build_package, line)
        elif test and line[:1].isspace():
            parsed.add_output(test, line)


def _package_result(result: str, detail: str) -> str:
    if result == "ok":
        return "PASS"
    return "BROKEN" if detail.startswith("[") else "FAIL"


def _read_json(lines: Iterable[str], parsed: _GoTestOutput) -> None:
    for line in lines:
        event = _parse_event(line)
        action = str(event.get("Action", ""))
        package, test = str(event.get("Package", "")), str(event.get("Test", ""))
        owner = f"{package} {test}" if test else package
        if action == "build-output":
            parsed.add_output(
                str(event.get("ImportPath", "")).split(" ")[0], str(event.get("Output", ""))
            )
        elif action == "output":
            parsed.add_output(owner, str(event.get("Output", "")).rstrip("\n"))
        elif action in _RESULT_BY_ACTION and test:
            parsed.results[owner] = _RESULT_BY_ACTION[action]
        elif action in _RESULT_BY_ACTION and package:
            is_broken = action == "fail" and "FailedBuild" in event
            parsed.packages[package] = "BROKEN" if is_broken else _RESULT_BY_ACTION[action]


def _parse_event(line: str) -> dict[str, Any]:
    if not line.startswith("{"):
        return {}
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _to_report(parsed: _GoTestOutput) -> TestReport:
    """Counts only the innermost tests, because a test fails whenever a subtest fails.

    Without -v the output does not name passed tests; each passed package then counts as one.
    """
    parents = {test.rpartition("/")[0] for test in parsed.results}
    leaves = {test: result for test, result in parsed.results.items() if test not in parents}
    failures = FailedTestCollector()
    for test, result in leaves.items():
        if result == "FAIL":
            failures.add(
                test, *_failure_details(parsed.output.get(test, ()), parsed.output.get("", ()))
            )
    failed = sum(result == "FAIL" for result in leaves.values())
    errors = 0
    for package, result in parsed.packages.items():
        has_no_failed_test = result == "FAIL" and not failed
        if result == "BROKEN" or has_no_failed_test:
            errors += 1
            output = parsed.output.get(package) or parsed.output.get(f"{package}.test") or ()
            failures.add(
                package, *_failure_details(output, parsed.output.get("", ())), is_error=True
            )
    passed = sum(result == "PASS" for result in leaves.values())
    return failures.to_report(
        "go",
        passed=passed or sum(result == "PASS" for result in parsed.packages.values()),
        failed=failed,
        errors=errors,
        skipped=sum(result == "SKIP" for result in leaves.values()),
    )


def _failure_details(
    output_lines: Sequence[str], panics: Sequence[str]
) -> tuple[str, str | None, int | None]:
    """Message, file and line of a failure, from the test's output, else from a panic."""
    for line in output_lines:
        if source := _SOURCE_LINE.match(line) or _COMPILER_ERROR.match(line.strip()):
            following = (other.strip() for other in output_lines[output_lines.index(line) + 1 :])
            message = source["message"] or next(filter(None, following), "")
            return message, source["file"], int(source["line"])
    message = next((line for line in (*output_lines, *panics) if line.startswith("panic: ")), "")
    if not message:
        relevant = (line.strip() for line in output_lines if line.strip() and not _is_noise(line))
        message = next(relevant, "")
    return message, None, None


def _is_noise(line: str) -> bool:
    return line.startswith(("===", "FAIL", "ok", "exit status", "#")) or bool(_RESULT.match(line))
