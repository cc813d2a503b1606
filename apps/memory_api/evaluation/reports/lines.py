"""A report as plain lines, and what the parsers of all frameworks share.

No library reads these texts: those on PyPI read JUnit XML or a plug-in's JSON, which a trace seldom
holds. Every parser goes through the lines once, with patterns that are anchored and bounded, so
that a report costs what its length is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from apps.memory_api.evaluation.schemas import Framework, TestCase, TestReport
from apps.memory_api.traces.quotes import cut

MOST = 100
"""Failing tests that are kept by name."""
MESSAGE = 300
_LINE = 2_000
_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_STAMP = re.compile(r"^\d{4}-\d\d-\d\dT[\d:]{8}(?:\.\d{1,9})?Z? ")
_COUNT = re.compile(r"(\d{1,9}) ([a-z]+(?: [a-z]+)?)")

Parser = Callable[[Sequence[str]], TestReport | None]


def lines_of(text: str) -> list[str]:
    """Without colours and the time stamps of a build log, none longer than 2,000 characters."""
    return [_STAMP.sub("", _COLOUR.sub("", line[:_LINE])) for line in text.splitlines()]


def counts_of(text: str) -> dict[str, int]:
    """`5 failed, 3 passed` as numbers by word."""
    found: dict[str, int] = {}
    for number, word in _COUNT.findall(text):
        found[word] = found.get(word, 0) + int(number)
    return found


@dataclass
class Failures:
    """The failing tests met so far, each once: what is learnt of one later is added to it."""

    cases: dict[str, TestCase] = field(default_factory=dict[str, TestCase])

    def add(
        self,
        name: str,
        message: str = "",
        file: str | None = None,
        line: int | None = None,
        *,
        error: bool = False,
    ) -> None:
        known = self.cases.get(name)
        if known is None and len(self.cases) >= MOST:
            return
        old = known or TestCase(name)
        self.cases[name] = TestCase(
            name,
            old.message or cut(message, MESSAGE),
            old.file if old.file and old.line else file or old.file,
            old.line or line,
            old.error or error,
        )

    def report(
        self, framework: Framework, *, passed: int, failed: int, errors: int, skipped: int
    ) -> TestReport:
        """The counts, raised to what was seen where a summary is missing."""
        broken = sum(case.error for case in self.cases.values())
        return TestReport(
            framework,
            passed=max(0, passed),
            failed=max(0, failed, len(self.cases) - broken - errors),
            errors=max(errors, broken - failed, 0),
            skipped=max(0, skipped),
            failing=tuple(self.cases.values()),
        )
