"""JUnit XML of several runners; other text is none."""

from __future__ import annotations

from memory_api.trace_analysis.junit import FailedTest, parse_junit
from tests.support.cases import each_case
from tests.support.junit import junit

PYTEST = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest" errors="1" failures="1" skipped="1"
 tests="5" time="0.05"><properties><property name="a" value="b"/></properties>
<testcase classname="t.test_cart" name="test_total" time="0.001">
<failure message="assert 3 == 4">def test_total(): ...
E assert 3 == 4</failure></testcase>
<testcase classname="t.test_cart" name="test_setup"><error message="">
fixture &#39;db&#39; not found</error></testcase>
<testcase classname="t.test_cart" name="test_later"><skipped message="later"/></testcase>
<testcase classname="t.test_cart" name="test_a"><system-out>Error: no</system-out></testcase>
<testcase classname="t.test_cart" name="test_b"/></testsuite></testsuites>"""
GO = """<testsuites><testsuite name="cart"><testcase name="TestTotal" time="0.000">
<failure message="Failed" type="">cart_test.go:9: got 3</failure></testcase>
</testsuite></testsuites>"""


def test_report_of_pytest_is_counted() -> None:
    report = parse_junit(f"\n{PYTEST}\n")
    assert report is not None
    assert (report.passed, report.failed, report.executed_count) == (2, 2, 4)
    assert report.failed_tests == [
        FailedTest("t.test_cart::test_total", "assert 3 == 4"),
        FailedTest("t.test_cart::test_setup", "fixture 'db' not found"),
    ]


def test_report_of_go_has_one_failed_test() -> None:
    report = parse_junit(GO)
    assert report is not None
    assert report.failed_tests == [FailedTest("TestTotal", "Failed")]


@each_case(
    "text",
    [
        None,
        "",
        "==== 1 failed, 3 passed in 0.1s ====",
        "<html><testcase/></html>",
        PYTEST[:-20],
        PYTEST.replace("<testsuites ", "<!DOCTYPE a [<!ENTITY b 'c'>]><testsuites ", 1),
        "<testsuite>" * 3,
    ],
)
def test_other_text_is_no_report(text: str | None) -> None:
    assert parse_junit(text) is None


def test_large_and_deep_reports_are_read() -> None:
    many = parse_junit(junit(50_000, **{f"test_x{n}": "no" for n in range(500)}))
    assert many is not None
    assert (many.passed, many.failed, len(many.failed_tests)) == (50_000, 500, 100)
    deep = parse_junit("<testsuite>" * 100_000 + "</testsuite>" * 100_000)
    assert deep is not None
    assert deep.executed_count == 0
