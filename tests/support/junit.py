"""Test reports in JUnit XML."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr


def junit(passed: int = 0, **failed: str) -> str:
    """A report of tests that passed, and of failed ones: name → message."""
    cases = [f'<testcase classname="test_a" name="test_{n}"/>' for n in range(passed)]
    for name, message in failed.items():
        failure = f"<failure message={quoteattr(message)}>{escape(message)}</failure>"
        cases.append(f'<testcase classname="test_a" name="{name}">{failure}</testcase>')
    return f'<?xml version="1.0"?><testsuites><testsuite>{"".join(cases)}</testsuite></testsuites>'
