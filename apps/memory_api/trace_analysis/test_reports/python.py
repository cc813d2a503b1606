"""Parse the output of pytest and of Python's unittest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from memory_api.trace_analysis.test_reports.report import (
    FailedTestCollector,
    TestReport,
    parse_counts,
)

_SESSION_START = re.compile(r"^=+ test session starts =+$")
_SUMMARY = re.compile(
    r"^=* ?(\d[^=]{0,300}|no tests ran) in [\d.]+(?:s| seconds)(?: \([\d:, day]+\))?(?: =+)?$"
)
_OUTCOME_WORDS = frozenset(
    ("failed", "passed", "error", "errors", "skipped", "xfailed", "xpassed", "deselected")
)
_SHORT_SUMMARY = re.compile(
    r"^(?P<outcome>FAILED|ERROR|SUBFAIL(?:ED)?(?:\([^)]*\)|\[[^\]]*\])*) (?P<rest>\S.*)$"
)
_VERBOSE_LINE = re.compile(
    r"^(?:\[gw\d+\] \[ *\d+%\] )?(?P<before>PASSED |FAILED |ERROR )?(?P<test>\S+\.py::.{1,400}?)"
    r"(?P<after> PASSED| FAILED| ERROR)?(?: +\[ *\d+%\])?$"
)
_SECTION_HEADER = re.compile(r"^_{2,} (?P<name>.{1,300}?) _{2,}$")
_ERROR_STAGE = re.compile(r"^ERROR (?:at (?:setup|teardown) of|collecting) (?P<name>.+)$")
_SOURCE_LINE = re.compile(r"^(?P<file>[^\s:]{1,300}\.py):(?P<line>\d{1,7}): ")
_USAGE_ERROR = re.compile(r"^ERROR: (?P<message>.+)$")


def parse_pytest(lines: Sequence[str]) -> TestReport | None:
    """Parses pytest output with any of -q, -v and --tb, with xdist, and with collection errors."""
    counts: Counter[str] = Counter()
    is_recognized = False
    results_by_outcome: Counter[str] = Counter()
    usage_message = ""
    for line in lines:
        summary = _SUMMARY.match(line)
        if summary and (summary_counts := _parse_summary(summary[1])) is not None:
            counts.update(summary_counts)
            is_recognized = True
        elif line.startswith("="):
            is_recognized = is_recognized or bool(_SESSION_START.match(line))
        elif "::" in line and (result := _VERBOSE_LINE.match(line)):
            results_by_outcome[(result["before"] or result["after"] or "").strip()] += 1
        elif usage_error := _USAGE_ERROR.match(line):
            usage_message = usage_message or usage_error["message"]
    failures = _pytest_failures(lines)
    if not (
        is_recognized
        or results_by_outcome["PASSED"]
        or any("::" in name for name in failures.failed_tests)
    ):
        return None
    if usage_message and is_recognized and not counts:
        failures.add("pytest", usage_message, is_error=True)
    return failures.to_report(
        "pytest",
        passed=counts["passed"] + counts["xpassed"] if counts else results_by_outcome["PASSED"],
        failed=counts["failed"],
        errors=counts["error"] + counts["errors"],
        skipped=counts["skipped"] + counts["xfailed"],
    )


def _parse_summary(text: str) -> dict[str, int] | None:
    """The counts of a summary line; None if the line comes from another tool."""
    if text.startswith("no tests ran"):
        return {}
    counts = parse_counts(text)
    return counts if counts and counts.keys() & _OUTCOME_WORDS else None


def _pytest_failures(lines: Sequence[str]) -> FailedTestCollector:
    """Names from the short summary and from -v lines; messages and locations from the sections."""
    sections = _parse_sections(lines)
    failures = FailedTestCollector()
    for line in lines:
        if summary := _SHORT_SUMMARY.match(line):
            name, message = _split_summary(summary["rest"])
            if name:
                is_error = summary["outcome"] == "ERROR"
                _add_failure(failures, sections, name, message, is_error=is_error)
        elif "::" in line and (result := _VERBOSE_LINE.match(line)):
            outcome = (result["before"] or result["after"] or "").strip()
            if outcome in ("FAILED", "ERROR"):
                name = result["test"].strip()
                _add_failure(failures, sections, name, "", is_error=outcome == "ERROR")
    if not failures.failed_tests:
        for name, (message, file, line_number, is_error) in sections.items():
            failures.add(name, message, file, line_number, is_error=is_error)
    return failures


_FailureDetails = tuple[str, str | None, int | None, bool]
"""Message, file, line, and whether the test could not be run."""


def _add_failure(
    failures: FailedTestCollector,
    sections: dict[str, _FailureDetails],
    name: str,
    summary_message: str,
    *,
    is_error: bool,
) -> None:
    file, _, path = name.partition("::")
    message, source, line, _ = sections.get(
        path.replace("::", ".") or file, ("", None, None, is_error)
    )
    failures.add(name, message or summary_message, source or file, line, is_error=is_error)


def _split_summary(rest: str) -> tuple[str, str]:
    """`path::test[a - b] - message` as name and message; two empty strings if it names no test."""
    header, dash, message = rest.partition(" - ")
    if dash and header.count("[") > header.count("]") and "] - " in rest:
        header, _, message = rest.partition("] - ")
        header += "]"
    header = header.strip()
    is_test = "::" in header or (header.endswith(".py") and " " not in header)
    return (header, message) if is_test else ("", "")


def _parse_sections(lines: Sequence[str]) -> dict[str, _FailureDetails]:
    """Details by the test name in the section header (`TestK.test_m`), or by file for collection
    errors.
    """
    sections: dict[str, _FailureDetails] = {}
    name = ""
    is_error = False
    for line in lines:
        if line.startswith("__") and (header := _SECTION_HEADER.match(line)):
            stage = _ERROR_STAGE.match(header["name"])
            name, is_error = (stage["name"], True) if stage else (header["name"], False)
            sections.setdefault(name, ("", None, None, is_error))
        elif line.startswith("==="):
            name = ""
        elif name:
            sections[name] = _update_section(sections[name], line)
    return sections


def _update_section(details: _FailureDetails, line: str) -> _FailureDetails:
    message, file, line_number, is_error = details
    if not message and line.startswith("E  "):
        return line[1:].strip(), file, line_number, is_error
    source = _SOURCE_LINE.match(line)
    if source and (file is None or "site-packages" in file or "importlib" in file):
        return message, source["file"], int(source["line"]), is_error
    return details


_RUN_COUNT = re.compile(r"^Ran (\d{1,9}) tests? in [\d.]+s$")
_RESULT_LINE = re.compile(r"^(?:OK|FAILED|NO TESTS RAN)(?: \((?P<counts>[^)]{1,200})\))?$")
_COUNT = re.compile(r"([a-z ]+)=(\d{1,9})")
_FAILURE_HEADER = re.compile(
    r"^(?P<outcome>FAIL|ERROR): (?P<test>[^\s(]\S*)(?: \((?P<where>[\w.<>]+)\))?(?P<sub> [\[(].*)?$"
)
_TRACEBACK_FRAME = re.compile(r'^  File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,7})')


def parse_unittest(lines: Sequence[str]) -> TestReport | None:
    """Parses unittest output, also of Django's test runner."""
    run_count = 0
    counts: Counter[str] = Counter()
    is_recognized = False
    for line in lines:
        if match := _RUN_COUNT.match(line):
            run_count += int(match[1])
            is_recognized = True
        elif is_recognized and (result := _RESULT_LINE.match(line)):
            parts: list[tuple[str, str]] = _COUNT.findall(result["counts"] or "")
            counts.update({name.strip(): int(count) for name, count in parts})
    failures = _unittest_failures(lines)
    if not is_recognized:
        return None
    failed = counts["failures"] + counts["unexpected successes"]
    skipped = counts["skipped"] + counts["expected failures"]
    return failures.to_report(
        "unittest",
        passed=run_count - failed - counts["errors"] - skipped,
        failed=failed,
        errors=counts["errors"],
        skipped=skipped,
    )


def _unittest_failures(lines: Sequence[str]) -> FailedTestCollector:
    failures = FailedTestCollector()
    name, is_error = "", False
    file: str | None = None
    line_number: int | None = None
    has_message = False
    for index, line in enumerate(lines):
        if (
            line[:1] in "FE"
            and (header := _FAILURE_HEADER.match(line))
            and _is_below_rule(lines, index)
        ):
            name = _test_name(header["test"], header["where"]) + (header["sub"] or "")
            is_error = header["outcome"] == "ERROR"
            file, line_number, has_message = None, None, False
            failures.add(name, is_error=is_error)
        elif line.startswith("====") or _RUN_COUNT.match(line):
            name = ""
        elif name and (frame := _TRACEBACK_FRAME.match(line)):
            file, line_number, has_message = frame["file"], int(frame["line"]), False
        elif name and file and not has_message and _is_exception(line):
            failures.failed_tests.pop(name, None)  # replaces the message of an earlier exception
            failures.add(name, line, file, line_number, is_error=is_error)
            has_message = True
    return failures


def _is_exception(line: str) -> bool:
    """Whether this is the first line without indentation after the last frame."""
    not_exceptions = ("Traceback", "During handling", "The above exception")
    return bool(line) and not line[0].isspace() and not line.startswith(not_exceptions)


def _is_below_rule(lines: Sequence[str], index: int) -> bool:
    """Whether a `====` line precedes the line, as it does for a failure header."""
    return index > 0 and lines[index - 1].startswith("====")


def _test_name(test: str, location: str | None) -> str:
    """The qualified name for `test_add (test_u.TestMath.test_add)`, and for `test_add
    (test_u.TestMath)` of older Python versions.
    """
    if location is None or location.startswith("unittest.loader."):
        return test
    return location if location.endswith(f".{test}") else f"{location}.{test}"
