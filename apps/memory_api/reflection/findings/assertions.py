"""Failing assertions of a test report: what the evaluation reads in it, else TAP, or single lines
that say "expected … got …"."""

from __future__ import annotations

import re

from apps.memory_api.evaluation.evidence import parse_test_report
from apps.memory_api.reflection.findings.schemas import Assertion
from apps.memory_api.traces.quotes import cut

_MOST = 10
_LIMIT = 200_000
_NAMED = re.compile(
    r"^(?:FAIL|ERROR):\s+(?P<unit>\S+)"
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
    r"|(?:got:?|= )\s*(?P<has>.{1,80}?),?\s+want:?\s*(?P<wish>.{1,80})$"
    r"|assert\s+(?P<left>.{1,80}?)\s+==\s+(?P<right>.{1,80})$"
    r"|AssertionError:\s+(?P<a>.{1,60}?)\s+!=\s+(?P<b>.{1,60})$",
    re.IGNORECASE,
)


def find_assertions(test_report: str | None) -> tuple[Assertion, ...]:
    """At most ten failing tests with the line that says why; () when nothing in the report
    failed."""
    if not test_report:
        return ()
    report = parse_test_report(test_report)
    if report.framework is not None:
        return tuple(_assertion(case.name, case.message) for case in report.failing[:_MOST])
    half = _LIMIT // 2
    long = len(test_report) > _LIMIT
    return _unknown(test_report[:half] + test_report[-half:] if long else test_report)


def _unknown(text: str) -> tuple[Assertion, ...]:
    """Of a report in another format, or a piece of one."""
    details = [m.group("line").strip() for m in _DETAIL.finditer(text)]
    found: dict[str, Assertion] = {}
    for n, match in enumerate(_NAMED.finditer(text)):
        test = next((v for v in match.groupdict().values() if v), "")
        if test and test not in found and len(found) < _MOST:
            found[test] = _assertion(test, details[n] if n < len(details) else "")
    if not found and details and re.search(r"fail|error|assert", text, re.IGNORECASE):
        found[""] = _assertion("", details[0])
    return tuple(found.values())


def _assertion(test: str, message: str) -> Assertion:
    both = _BOTH.search(message.strip())
    if not both:
        return Assertion(cut(test, 120), cut(message))
    parts = both.groupdict()
    expected = parts["want"] or parts["right"] or parts["b"] or parts["wish"]
    actual = parts["got"] or parts["left"] or parts["a"] or parts["has"]
    return Assertion(
        cut(test, 120), cut(message), cut(expected or "", 60) or None, cut(actual or "", 60) or None
    )
