"""Test reports as the runners print them. The files of `reports/` were recorded from pytest 9,
unittest of Python 3.11 and jest 30; those of go follow what `go test` and `test2json` document.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_api.trace_analysis.test_reports.parse import parse_test_report
from memory_api.trace_analysis.test_reports.report import MAX_FAILED_TESTS, TestReport
from tests.support.cases import each_case
from tests.support.paths import ROOT

RECORDED = Path(__file__).parent / "recorded"
CART = {
    "test_cart.py::test_wrong": "AssertionError: the sum of the cart",
    "test_cart.py::test_par[2]": "assert 2 != 2",
    "test_cart.py::test_raises": "ValueError: no such item: 'x' - gone",
    "test_cart.py::test_long": "AssertionError: assert {'a': 1, 'b': [1, 2, ",
    "test_cart.py::TestK::test_m": "AssertionError: assert 'ABC' == 'ABD'",
    "test_cart.py::test_fix": "RuntimeError: db is away",
}
"""The failing tests of one file, with how their messages begin."""


def read(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text(encoding="utf-8")


def counts(report: TestReport) -> tuple[int, int, int, int]:
    return report.passed, report.failed, report.errors, report.skipped


@each_case(
    ("name", "framework", "expected"),
    [
        ("pytest", "pytest", (3, 5, 1, 2)),
        ("pytest_v", "pytest", (3, 5, 1, 2)),
        ("pytest_q_no_tb", "pytest", (3, 5, 1, 2)),
        ("pytest_no_summary", "pytest", (3, 5, 1, 2)),
        ("pytest_tb_short", "pytest", (3, 5, 1, 2)),
        ("pytest_xdist", "pytest", (3, 5, 1, 2)),
        ("pytest_collect", "pytest", (0, 0, 1, 0)),
        ("pytest_of_unittest", "pytest", (2, 3, 0, 2)),
        ("pytest_pass", "pytest", (1, 0, 0, 0)),
        ("pytest_none", "pytest", (0, 0, 0, 0)),
        ("unittest", "unittest", (1, 2, 1, 2)),
        ("unittest_v", "unittest", (1, 2, 1, 2)),
        ("unittest_ok", "unittest", (1, 0, 0, 0)),
        ("unittest_import", "unittest", (0, 0, 1, 0)),
        ("jest", "jest", (2, 3, 1, 2)),
        ("jest_verbose", "jest", (2, 3, 1, 2)),
        ("jest_ok", "jest", (1, 0, 0, 0)),
        ("go_v", "go", (2, 1, 0, 1)),
        ("go_build", "go", (1, 0, 1, 0)),
        ("go_panic", "go", (0, 1, 0, 0)),
        ("go_json", "go", (1, 1, 1, 0)),
    ],
)
def test_report_counts(name: str, framework: str, expected: tuple[int, int, int, int]) -> None:
    report = parse_test_report(read(name))
    assert (report.framework, counts(report)) == (framework, expected)


@each_case("name", ["pytest", "pytest_v", "pytest_q_no_tb", "pytest_tb_short", "pytest_xdist"])
def test_failing_tests_of_pytest(name: str) -> None:
    failing = {case.name: case for case in parse_test_report(read(name)).failed_tests}
    assert failing.keys() == CART.keys()
    for test, message in CART.items():
        assert failing[test].message.startswith(message)
    assert [name for name, case in failing.items() if case.is_error] == ["test_cart.py::test_fix"]


def test_where_tests_of_pytest_failed() -> None:
    places = {
        c.name.rpartition("::")[2]: (c.file, c.line)
        for c in parse_test_report(read("pytest")).failed_tests
    }
    assert places == {
        "test_wrong": ("test_cart.py", 5),
        "test_par[2]": ("test_cart.py", 7),
        "test_raises": ("test_cart.py", 9),
        "test_long": ("test_cart.py", 18),
        "test_m": ("test_cart.py", 20),
        "test_fix": ("test_cart.py", 11),
    }


def test_error_while_collecting_names_the_module_that_is_missing() -> None:
    (case,) = parse_test_report(read("pytest_collect")).failed_tests
    assert (case.name, case.file, case.line) == ("test_broken.py", "test_broken.py", 1)
    assert case.message == "ModuleNotFoundError: No module named 'nosuchmodule'"
    assert case.is_error


@pytest.mark.parametrize("name", ["unittest", "unittest_v"])
def test_failing_tests_of_unittest(name: str) -> None:
    found = [
        (c.name, c.line, c.message, c.is_error) for c in parse_test_report(read(name)).failed_tests
    ]
    assert sorted(found) == [
        ("test_u.TestMath.test_add", 3, "AssertionError: 2 != 3 : sum is off", False),
        ("test_u.TestMath.test_boom", 4, "KeyError: 'k'", True),
        ("test_u.TestMath.test_sub (i=1)", 12, "AssertionError: 1 == 1", False),
    ]


@pytest.mark.parametrize("name", ["jest", "jest_verbose"])
def test_failing_tests_of_jest(name: str) -> None:
    found = {c.name: (c.file, c.line) for c in parse_test_report(read(name)).failed_tests}
    assert found == {
        "cart › is off": ("cart.test.js", 4),
        "cart › throws": ("cart.test.js", 5),
        "cart › deep › compares": ("cart.test.js", 8),
        "./broken.test.js Test suite failed to run": ("broken.test.js", 1),
    }
    first, *_, last = parse_test_report(read(name)).failed_tests
    assert first.message.endswith("Expected: 4; Received: 3")
    assert last.is_error
    assert "Cannot find module './missing'" in last.message


@each_case(
    ("name", "test", "file", "line", "message"),
    [
        ("go_v", "TestTable/one", "calc_test.go", 18, "got 3, want 4"),
        ("go_build", "example.com/m", "./args.go", 149, "undefined: commandNameMatches"),
        (
            "go_panic",
            "TestDivide",
            None,
            None,
            "panic: runtime error: integer divide by zero [recovered]",
        ),
        ("go_json", "example.com/calc TestAdd", "calc_test.go", 9, "got 3, want 4"),
    ],
)
def test_failing_tests_of_go(
    name: str, test: str, file: str | None, line: int | None, message: str
) -> None:
    case = parse_test_report(read(name)).failed_tests[0]
    assert (case.name, case.file, case.line, case.message) == (test, file, line, message)


SUITE = """
import unittest

def test_right(): assert 1 + 1 == 2

def test_wrong(): assert 1 + 1 == 3, "sum is off"

class TestOld(unittest.TestCase):
    def test_old(self): self.assertEqual("a", "b")
"""


@pytest.mark.parametrize(
    ("command", "framework", "passed", "names"),
    [
        (["pytest"], "pytest", 1, ["test_it.py::test_wrong", "test_it.py::TestOld::test_old"]),
        (
            ["pytest", "-qv"],
            "pytest",
            1,
            ["test_it.py::test_wrong", "test_it.py::TestOld::test_old"],
        ),
        (["unittest", "test_it"], "unittest", 0, ["test_it.TestOld.test_old"]),
    ],
)
def test_output_of_installed_runners_is_parsed(
    tmp_path: Path, command: list[str], framework: str, passed: int, names: list[str]
) -> None:
    (tmp_path / "test_it.py").write_text(SUITE, encoding="utf-8")
    more = ["-p", "no:cacheprovider", "-p", "no:schemathesis"] if framework == "pytest" else []
    done = subprocess.run(
        [sys.executable, "-m", *command, *more],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    report = parse_test_report(done.stdout + done.stderr)
    assert (report.framework, report.passed, report.errors) == (framework, passed, 0)
    assert sorted(case.name for case in report.failed_tests) == sorted(names)


@each_case(
    "text",
    [
        "",
        "All tests passed!",
        "I ran 5 tests in 3 seconds and all passed",
        "3 items found in 2.1s",
        "ERROR connecting to the database",
        "FAILED to open the door",
        "✓ fetched the page\n✓ wrote the file",
        '{"Action": "deny", "Effect": 1}',
        "ok",
        "FAIL",
        "PASS the salt",
        "--- a/file.py\n+++ b/file.py",
        "Tests: see below",
    ],
)
def test_other_text_is_no_report(text: str) -> None:
    assert parse_test_report(text) == TestReport()


def test_report_with_colors_and_timestamps_is_parsed() -> None:
    inside = "\n".join(
        f"2026-11-21T09:00:00.1234567Z \x1b[31m{x}\x1b[0m" for x in read("pytest").splitlines()
    )
    report = parse_test_report(f"$ make test\n{inside}\nmake: *** [test] Error 1\n")
    assert counts(report) == (3, 5, 1, 2)
    assert report.failed_tests[0].message == "AssertionError: the sum of the cart"


def test_failing_report_wins_over_passing_one() -> None:
    assert parse_test_report(read("pytest_pass") + read("jest")).framework == "jest"
    assert parse_test_report(read("jest_ok") + read("unittest")).framework == "unittest"


def test_log_line_resembling_failure_is_ignored() -> None:
    logged = read("unittest").replace("Ran 6", "ERROR: connection lost\nFAIL: once more\nRan 6")
    assert parse_test_report(logged) == parse_test_report(read("unittest"))


def test_truncated_report_still_lists_failures() -> None:
    head = read("pytest_v").split("= FAILURES =")[0]
    report = parse_test_report(head)
    assert counts(report) == (3, 5, 1, 0)
    assert {case.name for case in report.failed_tests} == CART.keys()


@each_case(
    ("line", "expected"),
    [
        ("=== 2 failed, 3 passed, 1 warnings in 0.12 seconds ===", (3, 2, 0, 0)),
        ("============ 5 passed, 2 warnings in 61.20s (0:01:01) ============", (5, 0, 0, 0)),
        ("1 failed, 2 passed, 3 deselected, 1 rerun in 0.50s", (2, 1, 0, 0)),
        ("==== 4 passed, 1 xpassed, 2 errors in 1.00s ====", (5, 0, 2, 0)),
        ("==== 2 failed in 90061.00s (1 day, 1:01:01) ====", (0, 2, 0, 0)),
    ],
)
def test_summary_lines_of_pytest(line: str, expected: tuple[int, int, int, int]) -> None:
    assert counts(parse_test_report(line)) == expected


def test_usage_error_of_pytest_is_an_error() -> None:
    report = parse_test_report(
        "ERROR: file or directory not found: nowhere\n\n"
        "============================ no tests ran in 0.00s ============================="
    )
    assert counts(report) == (0, 0, 1, 0)
    assert report.failed_tests[0].message == "file or directory not found: nowhere"


def test_no_more_than_a_hundred_failing_tests_are_kept() -> None:
    lines = [f"FAILED a.py::test_{n} - assert {n}" for n in range(500)]
    report = parse_test_report("\n".join([*lines, "500 failed in 1.00s"]))
    assert (report.failed, len(report.failed_tests)) == (500, MAX_FAILED_TESTS)


PIECES = [line for path in sorted(RECORDED.glob("*.txt")) for line in path.read_text().splitlines()]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=40)), max_size=60))
def test_any_lines_are_read_without_an_error(lines: list[str]) -> None:
    report = parse_test_report("\n".join(lines))
    assert min(counts(report)) >= 0
    assert len(report.failed_tests) <= MAX_FAILED_TESTS
    assert report.framework is not None or report == TestReport()


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse_test_report(text)


@given(st.permutations(range(4)), st.sampled_from(["pytest", "unittest", "jest", "go_v"]))
def test_failures_are_found_in_any_surroundings(order: list[int], name: str) -> None:
    around = ["$ run it", "Downloading…", "    12 kB", "done in 3 s"]
    text = "\n".join([*(around[n] for n in order), read(name), *around])
    assert (
        parse_test_report(text).failed_or_error_count
        == parse_test_report(read(name)).failed_or_error_count
    )


def test_long_lines_of_noise_change_nothing() -> None:
    rng = random.Random(7)
    for name in ("pytest_v", "unittest_v", "jest_verbose", "go_v"):
        noise = ["".join(rng.choice("(_[=-E: ✕") for _ in range(5_000)) for _ in range(100)]
        text = "\n".join([*noise, read(name)])
        assert counts(parse_test_report(text)) == counts(parse_test_report(read(name)))


def test_patterns_have_no_nested_repetition() -> None:
    """With lines that are cut, that is all that could make the work grow faster than the text."""
    folder = ROOT / "apps/memory_api/trace_analysis/test_reports"
    nested = re.compile(r"\((?:\?:)?[^()|]*[*+]\)[*+]")
    paths = list(folder.glob("*.py"))
    assert len(paths) > 3
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not nested.search(line), f"{path.name}: {line.strip()}"
