"""What pytest prints: with -q, -v, any --tb, under xdist, with errors while collecting."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from apps.memory_api.evaluation.reports.lines import Failures, counts_of
from apps.memory_api.evaluation.schemas import TestReport

_START = re.compile(r"^=+ test session starts =+$")
_SUMMARY = re.compile(
    r"^=* ?(\d[^=]{0,300}|no tests ran) in [\d.]+(?:s| seconds)(?: \([\d:, day]+\))?(?: =+)?$"
)
_WORDS = frozenset(
    ("failed", "passed", "error", "errors", "skipped", "xfailed", "xpassed", "deselected")
)
_SHORT = re.compile(
    r"^(?P<how>FAILED|ERROR|SUBFAIL(?:ED)?(?:\([^)]*\)|\[[^\]]*\])*) (?P<rest>\S.*)$"
)
_VERBOSE = re.compile(
    r"^(?:\[gw\d+\] \[ *\d+%\] )?(?P<before>PASSED |FAILED |ERROR )?(?P<test>\S+\.py::.{1,400}?)"
    r"(?P<after> PASSED| FAILED| ERROR)?(?: +\[ *\d+%\])?$"
)
_SECTION = re.compile(r"^_{2,} (?P<name>.{1,300}?) _{2,}$")
_STAGE = re.compile(r"^ERROR (?:at (?:setup|teardown) of|collecting) (?P<name>.+)$")
_PLACE = re.compile(r"^(?P<file>[^\s:]{1,300}\.py):(?P<line>\d{1,7}): ")
_USAGE = re.compile(r"^ERROR: (?P<message>.+)$")


def parse(lines: Sequence[str]) -> TestReport | None:
    counts: Counter[str] = Counter()
    seen = False
    verbose: Counter[str] = Counter()
    usage = ""
    for line in lines:
        summary = _SUMMARY.match(line)
        if summary and (found := _known(summary[1])) is not None:
            counts.update(found)
            seen = True
        elif line.startswith("="):
            seen = seen or bool(_START.match(line))
        elif "::" in line and (told := _VERBOSE.match(line)):
            verbose[(told["before"] or told["after"] or "").strip()] += 1
        elif usage_error := _USAGE.match(line):
            usage = usage or usage_error["message"]
    failures = _failures(lines)
    if not (seen or verbose["PASSED"] or any("::" in name for name in failures.cases)):
        return None
    if usage and seen and not counts:
        failures.add("pytest", usage, error=True)
    return failures.report(
        "pytest",
        passed=counts["passed"] + counts["xpassed"] if counts else verbose["PASSED"],
        failed=counts["failed"],
        errors=counts["error"] + counts["errors"],
        skipped=counts["skipped"] + counts["xfailed"],
    )


def _known(text: str) -> dict[str, int] | None:
    """The counts of a summary line; None when it is another tool's."""
    if text.startswith("no tests ran"):
        return {}
    counts = counts_of(text)
    return counts if counts and counts.keys() & _WORDS else None


def _failures(lines: Sequence[str]) -> Failures:
    """Names from the short summary and from -v lines, messages and places from their sections."""
    told = _sections(lines)
    failures = Failures()
    for line in lines:
        if short := _SHORT.match(line):
            name, message = _split(short["rest"])
            if name:
                _add(failures, told, name, message, error=short["how"] == "ERROR")
        elif "::" in line and (verbose := _VERBOSE.match(line)):
            how = (verbose["before"] or verbose["after"] or "").strip()
            if how in ("FAILED", "ERROR"):
                _add(failures, told, verbose["test"].strip(), "", error=how == "ERROR")
    if not failures.cases:
        for name, (message, file, number, error) in told.items():
            failures.add(name, message, file, number, error=error)
    return failures


Told = tuple[str, str | None, int | None, bool]
"""Message, file, line, and whether it is an error rather than a failure."""


def _add(failures: Failures, told: dict[str, Told], name: str, short: str, *, error: bool) -> None:
    file, _, path = name.partition("::")
    message, place, line, _ = told.get(path.replace("::", ".") or file, ("", None, None, error))
    failures.add(name, message or short, place or file, line, error=error)


def _split(rest: str) -> tuple[str, str]:
    """`path::test[a - b] - message` as name and message; no name when it is no test's."""
    head, dash, message = rest.partition(" - ")
    if dash and head.count("[") > head.count("]") and "] - " in rest:
        head, _, message = rest.partition("] - ")
        head += "]"
    head = head.strip()
    is_test = "::" in head or (head.endswith(".py") and " " not in head)
    return (head, message) if is_test else ("", "")


def _sections(lines: Sequence[str]) -> dict[str, Told]:
    """By the test's name as its section has it (`TestK.test_m`), or the file's when collecting."""
    found: dict[str, Told] = {}
    name = ""
    error = False
    for line in lines:
        if line.startswith("__") and (head := _SECTION.match(line)):
            stage = _STAGE.match(head["name"])
            name, error = (stage["name"], True) if stage else (head["name"], False)
            found.setdefault(name, ("", None, None, error))
        elif line.startswith("==="):
            name = ""
        elif name:
            found[name] = _learn(found[name], line)
    return found


def _learn(told: Told, line: str) -> Told:
    message, file, number, error = told
    if not message and line.startswith("E  "):
        return line[1:].strip(), file, number, error
    place = _PLACE.match(line)
    if place and (file is None or "site-packages" in file or "importlib" in file):
        return message, place["file"], int(place["line"]), error
    return told
