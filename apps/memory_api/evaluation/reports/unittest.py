"""What Python's unittest prints (Django's runner too)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from apps.memory_api.evaluation.reports.lines import Failures
from apps.memory_api.evaluation.schemas import TestReport

_RAN = re.compile(r"^Ran (\d{1,9}) tests? in [\d.]+s$")
_VERDICT = re.compile(r"^(?:OK|FAILED|NO TESTS RAN)(?: \((?P<counts>[^)]{1,200})\))?$")
_PART = re.compile(r"([a-z ]+)=(\d{1,9})")
_CASE = re.compile(
    r"^(?P<how>FAIL|ERROR): (?P<test>[^\s(]\S*)(?: \((?P<where>[\w.<>]+)\))?(?P<sub> [\[(].*)?$"
)
_FRAME = re.compile(r'^  File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,7})')


def parse(lines: Sequence[str]) -> TestReport | None:
    ran = 0
    counts: Counter[str] = Counter()
    seen = False
    for line in lines:
        if said := _RAN.match(line):
            ran += int(said[1])
            seen = True
        elif seen and (verdict := _VERDICT.match(line)):
            parts: list[tuple[str, str]] = _PART.findall(verdict["counts"] or "")
            counts.update({name.strip(): int(number) for name, number in parts})
    failures = _failures(lines)
    if not seen:
        return None
    failed = counts["failures"] + counts["unexpected successes"]
    skipped = counts["skipped"] + counts["expected failures"]
    return failures.report(
        "unittest",
        passed=ran - failed - counts["errors"] - skipped,
        failed=failed,
        errors=counts["errors"],
        skipped=skipped,
    )


def _failures(lines: Sequence[str]) -> Failures:
    failures = Failures()
    name, error = "", False
    file: str | None = None
    number: int | None = None
    told = False
    for n, line in enumerate(lines):
        if line[:1] in "FE" and (case := _CASE.match(line)) and _ruled(lines, n):
            name = _name(case["test"], case["where"]) + (case["sub"] or "")
            error = case["how"] == "ERROR"
            file, number, told = None, None, False
            failures.add(name, error=error)
        elif line.startswith("====") or _RAN.match(line):
            name = ""
        elif name and (frame := _FRAME.match(line)):
            file, number, told = frame["file"], int(frame["line"]), False
        elif name and file and not told and _is_exception(line):
            failures.cases.pop(name, None)  # what an exception before it said
            failures.add(name, line, file, number, error=error)
            told = True
    return failures


def _is_exception(line: str) -> bool:
    """The first line at the margin after the last frame."""
    between = ("Traceback", "During handling", "The above exception")
    return bool(line) and not line[0].isspace() and not line.startswith(between)


def _ruled(lines: Sequence[str], n: int) -> bool:
    """Whether the line stands between two rules, as the head of a failure does."""
    return n > 0 and lines[n - 1].startswith("====")


def _name(test: str, where: str | None) -> str:
    """`test_add (test_u.TestMath.test_add)`, and `test_add (test_u.TestMath)` of older Pythons."""
    if where is None or where.startswith("unittest.loader."):
        return test
    return where if where.endswith(f".{test}") else f"{where}.{test}"
