"""What jest prints: its summary, its ✓ and ✕ lines, its ● sections."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from apps.memory_api.evaluation.reports.lines import Failures, counts_of
from apps.memory_api.evaluation.schemas import TestReport

_TESTS = re.compile(r"^\s*Tests:\s+(?P<counts>(?:\d+ [a-z]+, ){0,6}\d+ total)")
_FILE = re.compile(r"^\s*(?P<how>PASS|FAIL)\s+(?P<file>\S+\.[cm]?[jt]sx?)\b")
_MARK = re.compile(r"^\s*(?P<mark>[✓√✕×✗○✎]) (?P<name>.+?)(?: \([\d.]+ m?s\))?$")
_SECTION = re.compile(r"^\s*● (?P<name>\S.*)$")
_PLACE = re.compile(r"\(?(?P<file>[^\s():]{1,300}\.[cm]?[jt]sx?):(?P<line>\d{1,7}):\d{1,7}\)?$")
_BROKEN = "Test suite failed to run"
_PASS, _FAIL = "✓√", "✕×✗"


def parse(lines: Sequence[str]) -> TestReport | None:
    counts: Counter[str] = Counter()
    marks: Counter[str] = Counter()
    files = seen = False
    for line in lines:
        if tests := _TESTS.match(line):
            counts.update(counts_of(tests["counts"]))
            seen = True
        elif _FILE.match(line):
            files = True
        elif mark := _MARK.match(line):
            kind = mark["mark"]
            marks["passed" if kind in _PASS else "failed" if kind in _FAIL else "skipped"] += 1
    if not seen and not files:
        return None
    told = counts if seen else marks
    failures = _failures(lines)
    errors = sum(case.error for case in failures.cases.values())
    return failures.report(
        "jest",
        passed=told["passed"],
        failed=told["failed"],
        errors=errors,
        skipped=told["skipped"] + told["todo"],
    )


def _failures(lines: Sequence[str]) -> Failures:
    """A section per failing test; ✕ lines alone give names when there are none."""
    failures = Failures()
    file = ""
    name = ""
    message: list[str] = []
    for line in lines:
        if head := _FILE.match(line):
            file, name = head["file"], ""
        elif line.startswith(("Test Suites:", "Summary of all")):
            name = ""
        elif section := _SECTION.match(line):
            name = section["name"].strip()
            broken = name == _BROKEN
            name = f"{file} {name}".strip() if broken else name
            message = []
            failures.add(name, file=file or None, error=broken)
        elif name:
            _learn(failures, name, line.strip(), message)
    if not failures.cases:
        for line in lines:
            if (mark := _MARK.match(line)) and mark["mark"] in _FAIL:
                failures.add(mark["name"])
    return failures


def _learn(failures: Failures, name: str, line: str, message: list[str]) -> None:
    """The message is the first line; `Expected:` and `Received:` are added to it."""
    case = failures.cases.get(name)
    if case is None or not line:
        return
    if line.startswith("at ") and "node_modules" not in line and (place := _PLACE.search(line)):
        failures.add(name, "; ".join(message), place["file"], int(place["line"]))
    elif not message or (line.startswith(("Expected", "Received")) and len(message) < 3):
        message.append(line)
