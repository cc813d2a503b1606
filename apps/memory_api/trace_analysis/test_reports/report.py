"""The result of a test run, and what the parsers of all frameworks share.

Libraries on PyPI read JUnit XML or plugin JSON, which traces rarely contain. Every parser makes one
pass with anchored, bounded patterns, so its cost is linear in the length of the report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import ClassVar, Literal

from memory_api.text.excerpts import excerpt

Framework = Literal["pytest", "unittest", "jest", "go"]


@dataclass(frozen=True, slots=True)
class FailedTest:
    """A failed test. `message` is one line, '' if the report gives none. `file` and `line` are
    where it failed, if known.
    """

    __test__: ClassVar[bool] = False

    name: str
    message: str = ""
    file: str | None = None
    line: int | None = None
    is_error: bool = False
    """The test could not be run (collection, setup, build)."""


@dataclass(frozen=True, slots=True)
class TestReport:
    """The result of a test run. `framework` is None if no parser recognizes the text.

    `failed_tests` are at most `MAX_FAILED_TESTS` of the tests in `failed` and `errors`. Expected
    failures are counted as skipped.
    """

    __test__: ClassVar[bool] = False

    framework: Framework | None = None
    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    failed_tests: tuple[FailedTest, ...] = ()

    @property
    def failed_or_error_count(self) -> int:
        return self.failed + self.errors

    @property
    def executed_count(self) -> int:
        return self.passed + self.failed_or_error_count


MAX_FAILED_TESTS = 100
MAX_MESSAGE_LENGTH = 300
_MAX_LINE_CHARACTERS = 2_000
_ANSI_SEQUENCE = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_TIMESTAMP = re.compile(r"^\d{4}-\d\d-\d\dT[\d:]{8}(?:\.\d{1,9})?Z? ")
_COUNT = re.compile(r"(\d{1,9}) ([a-z]+(?: [a-z]+)?)")

Parser = Callable[[Sequence[str]], TestReport | None]


def split_lines(text: str) -> list[str]:
    """Lines without ANSI sequences and build-log timestamps, each cut to 2,000 characters.

    Consecutive blank lines become one line, because parsing four million of them takes 10 s.
    """
    lines: list[str] = []
    for line, repeats in groupby(text.splitlines()):
        clean = _TIMESTAMP.sub("", _ANSI_SEQUENCE.sub("", line[:_MAX_LINE_CHARACTERS]))
        lines.extend([clean] if not clean.strip() else [clean for _ in repeats])
    return lines


def parse_counts(text: str) -> dict[str, int]:
    """`5 failed, 3 passed` as numbers by name."""
    counts: dict[str, int] = {}
    for count, name in _COUNT.findall(text):
        counts[name] = counts.get(name, 0) + int(count)
    return counts


@dataclass
class FailedTestCollector:
    """Collects failed tests by name and merges details that appear later in a report."""

    failed_tests: dict[str, FailedTest] = field(default_factory=dict[str, FailedTest])

    def add(
        self,
        name: str,
        message: str = "",
        file: str | None = None,
        line: int | None = None,
        *,
        is_error: bool = False,
    ) -> None:
        existing = self.failed_tests.get(name)
        if existing is None and len(self.failed_tests) >= MAX_FAILED_TESTS:
            return
        old = existing or FailedTest(name)
        self.failed_tests[name] = FailedTest(
            name,
            old.message or excerpt(message, MAX_MESSAGE_LENGTH),
            old.file if old.file and old.line else file or old.file,
            old.line or line,
            old.is_error or is_error,
        )

    def to_report(
        self, framework: Framework, *, passed: int, failed: int, errors: int, skipped: int
    ) -> TestReport:
        """A report with these counts, raised to the number of collected tests if a summary is
        missing.
        """
        error_count = sum(case.is_error for case in self.failed_tests.values())
        return TestReport(
            framework,
            passed=max(0, passed),
            failed=max(0, failed, len(self.failed_tests) - error_count - errors),
            errors=max(errors, error_count - failed, 0),
            skipped=max(0, skipped),
            failed_tests=tuple(self.failed_tests.values()),
        )
