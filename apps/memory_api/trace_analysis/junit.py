"""Test reports in JUnit XML, which every common test runner writes. No other text proves that tests
passed or failed.

expat reads the report in one pass, without a tree. A document type is refused, so there are no
entities to expand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from memory_api.text.excerpts import excerpt

MAX_FAILED_TESTS = 100
MAX_MESSAGE_LENGTH = 300
_MAX_TEXT_LENGTH = 4_000
_ROOTS = ("testsuites", "testsuite")


@dataclass(frozen=True, slots=True)
class FailedTest:
    """A failed test. `message` is one line, '' if the report gives none."""

    name: str
    message: str = ""


@dataclass
class JUnitReport:
    """The result of a test run. `failed_tests` are the first `MAX_FAILED_TESTS`, those that could
    not be run included.
    """

    passed: int = 0
    failed: int = 0
    failed_tests: list[FailedTest] = field(default_factory=list[FailedTest])

    @property
    def executed_count(self) -> int:
        return self.passed + self.failed


class _NotJUnit(Exception):
    """Another document."""


class _Reader:
    """Counts the test cases of a document as expat reads it."""

    def __init__(self) -> None:
        self.report = JUnitReport()
        self.depth = 0
        self.name = ""
        self.results: set[str] = set()
        """Elements of the current test case."""
        self.message = ""
        self.text = ""
        self.is_in_failure = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self.depth and tag not in _ROOTS:
            raise _NotJUnit
        self.depth += 1
        if tag == "testcase":
            path = attributes.get("file") or attributes.get("classname") or ""
            name = attributes.get("name", "")
            self.name = f"{path}::{name}" if path else name
            self.results, self.message, self.text = set(), "", ""
        elif tag in ("failure", "error", "skipped"):
            self.results.add(tag)
            self.is_in_failure = tag != "skipped"
            if self.is_in_failure:
                self.message = self.message or attributes.get("message", "")

    def end(self, tag: str) -> None:
        self.depth -= 1
        if tag in ("failure", "error", "skipped"):
            self.is_in_failure = False
        elif tag == "testcase":
            self._count()

    def read(self, text: str) -> None:
        if self.is_in_failure and len(self.text) < _MAX_TEXT_LENGTH:
            self.text += text

    def refuse(self, *_: object) -> None:
        raise _NotJUnit

    def _count(self) -> None:
        report = self.report
        if self.results & {"failure", "error"}:
            report.failed += 1
            if len(report.failed_tests) < MAX_FAILED_TESTS:
                message = excerpt(self.message or self.text, MAX_MESSAGE_LENGTH)
                report.failed_tests.append(FailedTest(excerpt(self.name, 200), message))
        elif "skipped" not in self.results:
            report.passed += 1


def parse_junit(text: str | None) -> JUnitReport | None:
    """The report; None for any other text, and for XML that ends in the middle."""
    if not text or not text.lstrip().startswith("<"):
        return None
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.read
    parser.StartDoctypeDeclHandler = reader.refuse
    try:
        parser.Parse(text.strip(), True)
    except (expat.ExpatError, _NotJUnit):
        return None
    return reader.report
