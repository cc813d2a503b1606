"""Failing assertions of a test report: pytest, unittest, TAP, Jest-like text, or plain "expected …
got …"."""

from __future__ import annotations

import re

from apps.memory_api.reflection.findings.schemas import Assertion
from apps.memory_api.traces.quotes import cut

_LIMIT = 200_000
_NAMED = re.compile(
    r"^(?:FAILED|ERROR)\s+(?P<py>\S+)(?:\s+-\s+(?P<pymsg>.*))?$"
    r"|^(?:FAIL|ERROR):\s+(?P<unit>\S+)"
    r"|^not ok\s+\d+\s*-?\s*(?P<tap>.*)$"
    r"|^[ \t]*(?:✕|✗|×|✘)\s+(?P<jest>.+)$",
    re.MULTILINE,
)
_DETAIL = re.compile(
    r"^(?:E\s+)?(?P<line>(?:AssertionError|assert)\b.*|\w+(?:Error|Exception): .*)$", re.MULTILINE
)
_BOTH = re.compile(
    r"expected:?\s*(?P<want>.{1,80}?)[,;]?\s+(?:but )?(?:got|received|actual"
    r"|was):?\s*(?P<got>.{1,80})$"
    r"|assert\s+(?P<left>.{1,80}?)\s+==\s+(?P<right>.{1,80})$"
    r"|AssertionError:\s+(?P<a>.{1,60}?)\s+!=\s+(?P<b>.{1,60})$",
    re.IGNORECASE,
)


def find_assertions(test_report: str | None) -> tuple[Assertion, ...]:
    """At most ten failing tests with the line that says why; () when nothing in the report
    failed."""
    if not test_report:
        return ()
    text = (
        test_report
        if len(test_report) <= _LIMIT
        else test_report[: _LIMIT // 2] + test_report[-_LIMIT // 2 :]
    )
    details = [m.group("line").strip() for m in _DETAIL.finditer(text)]
    found: dict[str, Assertion] = {}
    for n, match in enumerate(_NAMED.finditer(text)):
        test = (
            next(v for k, v in match.groupdict().items() if v and k != "pymsg")
            if any(match.groups())
            else ""
        )
        message = match.group("pymsg") or (details[n] if n < len(details) else "")
        if test and test not in found and len(found) < 10:
            found[test] = _assertion(test, message)
    if not found and details and re.search(r"fail|error|assert", text, re.IGNORECASE):
        found[""] = _assertion("", details[0])
    return tuple(found.values())


def _assertion(test: str, message: str) -> Assertion:
    both = _BOTH.search(message.strip())
    if not both:
        return Assertion(cut(test, 120), cut(message))
    parts = both.groupdict()
    expected = parts["want"] or parts["right"] or parts["b"]
    actual = parts["got"] or parts["left"] or parts["a"]
    return Assertion(
        cut(test, 120), cut(message), cut(expected or "", 60) or None, cut(actual or "", 60) or None
    )
