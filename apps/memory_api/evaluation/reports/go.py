"""What `go test` prints, with and without -v, and what `go test -json` does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from apps.memory_api.evaluation.reports.lines import Failures
from apps.memory_api.evaluation.schemas import TestReport

_RESULT = re.compile(r"^\s*--- (?P<how>PASS|FAIL|SKIP): (?P<test>\S+)(?: \([\d.]+s\))?$")
_RUNS = re.compile(r"^=== (?:RUN|CONT|NAME|PAUSE) +(?P<test>\S+)$")
_PACKAGE = re.compile(
    r"^(?P<how>ok|FAIL)\s+(?P<name>[\w./~-]{1,300})\s+"
    r"(?P<what>[\d.]+s|\(cached\)|\[(?:build|setup) failed\]|\[no tests to run\])"
)
_PLACE = re.compile(r"^\s+(?P<file>[\w./-]{1,300}\.go):(?P<line>\d{1,7}): ?(?P<message>.*)$")
_COMPILER = re.compile(
    r"^(?:vet: )?(?P<file>[\w./-]{1,300}\.go):(?P<line>\d{1,7})(?::\d+)?: (?P<message>.+)$"
)
_HEAD = re.compile(r"^# (?P<name>\S+)")
_ACTIONS = {"pass": "PASS", "fail": "FAIL", "skip": "SKIP"}
_KEPT = 40
"""Lines of output kept per test."""


@dataclass
class _Seen:
    """Results by test, output by test (`package test`) and by package."""

    results: dict[str, str] = field(default_factory=dict[str, str])
    packages: dict[str, str] = field(default_factory=dict[str, str])
    output: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def say(self, whose: str, line: str) -> None:
        kept = self.output.setdefault(whose, [])
        if len(kept) < _KEPT:
            kept.append(line)


def parse(lines: Sequence[str]) -> TestReport | None:
    seen = _Seen()
    if any(line.startswith("{") and '"Action":' in line for line in lines):
        _read_json(lines, seen)
    else:
        _read_text(lines, seen)
    return _report(seen) if seen.results or seen.packages else None


def _read_text(lines: Sequence[str], seen: _Seen) -> None:
    """Tests are named before their package is, so a package's line claims those above it."""
    test = ""
    head = ""
    for line in lines:
        if result := _RESULT.match(line):
            test = result["test"]
            seen.results[test] = result["how"]
        elif runs := _RUNS.match(line):
            test = runs["test"]
        elif package := _PACKAGE.match(line):
            seen.packages[package["name"]] = _how(package["how"], package["what"])
            test = head = ""
        elif name := _HEAD.match(line):
            head, test = name["name"], ""
        elif line.startswith("panic: "):
            seen.say(test, line)
            seen.say("", line)
        elif head and _COMPILER.match(line):
            seen.say(head, line)
        elif test and line[:1].isspace():
            seen.say(test, line)


def _how(how: str, what: str) -> str:
    if how == "ok":
        return "PASS"
    return "BROKEN" if what.startswith("[") else "FAIL"


def _read_json(lines: Iterable[str], seen: _Seen) -> None:
    for line in lines:
        event = _event(line)
        action = str(event.get("Action", ""))
        package, test = str(event.get("Package", "")), str(event.get("Test", ""))
        whose = f"{package} {test}" if test else package
        if action == "build-output":
            seen.say(str(event.get("ImportPath", "")).split(" ")[0], str(event.get("Output", "")))
        elif action == "output":
            seen.say(whose, str(event.get("Output", "")).rstrip("\n"))
        elif action in _ACTIONS and test:
            seen.results[whose] = _ACTIONS[action]
        elif action in _ACTIONS and package:
            broken = action == "fail" and "FailedBuild" in event
            seen.packages[package] = "BROKEN" if broken else _ACTIONS[action]


def _event(line: str) -> dict[str, Any]:
    if not line.startswith("{"):
        return {}
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _report(seen: _Seen) -> TestReport:
    """Only the innermost tests count: a test fails whenever one of its parts does. Without -v the
    passed ones are not named, and each package that is ok counts as one.
    """
    parents = {test.rpartition("/")[0] for test in seen.results}
    leaves = {test: how for test, how in seen.results.items() if test not in parents}
    failures = Failures()
    for test, how in leaves.items():
        if how == "FAIL":
            failures.add(test, *_why(seen.output.get(test, ()), seen.output.get("", ())))
    failed = sum(how == "FAIL" for how in leaves.values())
    errors = 0
    for package, how in seen.packages.items():
        alone = how == "FAIL" and not failed
        if how == "BROKEN" or alone:
            errors += 1
            said = seen.output.get(package) or seen.output.get(f"{package}.test") or ()
            failures.add(package, *_why(said, seen.output.get("", ())), error=True)
    passed = sum(how == "PASS" for how in leaves.values())
    return failures.report(
        "go",
        passed=passed or sum(how == "PASS" for how in seen.packages.values()),
        failed=failed,
        errors=errors,
        skipped=sum(how == "SKIP" for how in leaves.values()),
    )


def _why(own: Sequence[str], panics: Sequence[str]) -> tuple[str, str | None, int | None]:
    """Message, file and line of a failure: where the test says so, else a panic."""
    for line in own:
        if place := _PLACE.match(line) or _COMPILER.match(line.strip()):
            rest = [x.strip() for x in own[own.index(line) + 1 :]]
            message = place["message"] or next((x for x in rest if x), "")
            return message, place["file"], int(place["line"])
    said = next((x for x in (*own, *panics) if x.startswith("panic: ")), "")
    return said or next((x.strip() for x in own if x.strip() and not _noise(x)), ""), None, None


def _noise(line: str) -> bool:
    return line.startswith(("===", "FAIL", "ok", "exit status", "#")) or bool(_RESULT.match(line))
