"""The audit of dependencies tells a vulnerability from an index that cannot be reached."""

from __future__ import annotations

import sys

import pytest

from tests.rules.audit import npm_problems, python_problems, run_report


def test_vulnerabilities_are_named() -> None:
    package = {"name": "jinja2", "version": "2.4.1", "vulns": [{"id": "PYSEC-2021-66"}]}
    clean = {"name": "idna", "version": "3.4", "vulns": []}
    assert python_problems({"dependencies": [package, clean]}) == ["jinja2 2.4.1: PYSEC-2021-66"]
    assert npm_problems({"vulnerabilities": {"tar": {"severity": "high"}}}) == ["tar: high"]
    assert npm_problems({"vulnerabilities": {}}) == []


def test_answer_of_an_unreachable_index_is_no_report() -> None:
    with pytest.raises(ValueError, match="request failed"):
        npm_problems({"message": "request failed", "error": {"code": "ENOTFOUND"}})
    unknown = {"name": "jinja2", "skip_reason": "Dependency not found on PyPI"}
    with pytest.raises(ValueError, match="does not know jinja2"):
        python_problems({"dependencies": [unknown]})
    with pytest.raises(ValueError, match="ConnectionError"):
        run_report([sys.executable, "-c", "raise SystemExit('ConnectionError')"])
