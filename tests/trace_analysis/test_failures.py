"""Which exit codes are failures: one rule for evaluation, facts, sentences and comparisons."""

from __future__ import annotations

from memory_api.evaluation.evaluators.deterministic import efficiency
from memory_api.reflection.fact_text import fact_sentences
from memory_api.trace_analysis.facts import FactKind
from memory_api.trace_analysis.failures import is_result
from memory_api.trace_analysis.parser import parse_trace
from tests.support.cases import each_case
from tests.support.evaluation_cases import case
from tests.support.runs import call, facts, run, says, user


def failed(command: object, output: str, exit_code: int | None, tool: str = "bash") -> str:
    """The failure message of one call; '' if it did not fail."""
    more = {} if exit_code is None else {"exit_code": exit_code}
    return parse_trace(run(call(tool, command, output, **more)).events).calls[0].failure_message


@each_case(
    ("command", "exit_code"),
    [
        ("grep -q redis config.yml", 1),
        ("cd app && /usr/bin/grep -rn 'a;b|c' .", 1),
        ("cat log | grep -c ERROR", 1),
        ("rg TODO src", 1),
        ("git diff --quiet", 1),
        ("diff -u a b > changes.patch", 1),
        ("[ -f missing ] && echo yes", 1),
        ("LANG=C sudo cmp a b", 1),
        ("! make check", 1),
        ("command -v docker", 1),
        ("make; pgrep nginx", 1),
        ("for f in *; do\n  grep x $f\ndone", 1),
        ('bash -c "ls; grep -q x y"', 1),
        ("find . -name '*.py' -exec grep -l async {} +", 1),
        ("find . | xargs grep async", 123),
        ("systemctl is-active nginx", 3),
        ("terraform plan -detailed-exitcode", 2),
        ("robocopy a b /MIR", 3),
    ],
)
def test_result_of_a_command_is_no_failure(command: str, exit_code: int) -> None:
    assert failed({"command": command}, "", exit_code) == ""
    assert failed(command, "", exit_code) == ""


def test_command_may_be_a_list_or_the_tool() -> None:
    assert failed({"command": ["bash", "-lc", "grep -q x y"]}, "", 1) == ""
    assert failed({"command": ["grep", "-q", "x", "y"]}, "", 1) == ""
    assert failed("-q x y", "", 1, tool="grep") == ""
    assert failed({"command": ["bash", "-lc", "make"]}, "", 1) == "exit code 1"


@each_case(
    ("command", "exit_code"),
    [
        ("grep x missing", 2),
        ("grep x y; make", 1),
        ("grep_all x", 1),
        ("make 'grep x'", 1),
        ("make # grep x", 1),
        ("diff a b", 2),
        ("terraform plan", 2),
        ("timeout 10 ./flash.sh", 124),
        ("robocopy a b", 8),
        ("./run", -9),
    ],
)
def test_any_other_exit_code_is_a_failure(command: str, exit_code: int) -> None:
    assert failed({"command": command}, "", exit_code) == f"exit code {exit_code}"
    assert not is_result("bash", command, exit_code)


def test_tool_without_a_command_fails_by_its_exit_code() -> None:
    assert failed({"path": "a.xlsx"}, "", 3, tool="run_macro") == "exit code 3"
    assert failed({"path": "a.xlsx"}, "", 0, tool="run_macro") == ""


@each_case(
    ("output", "message"),
    [
        ("Traceback …\nValueError: no number", "ValueError: no number"),
        (
            "start\nrequests.exceptions.ConnectionError: refused\n",
            "requests.exceptions.ConnectionError: refused",
        ),
        ("compiling\nmake: *** [firmware] Error 2", "exit code 2"),
        ("test_a ok\ntest_b FAILED", "exit code 2"),
    ],
)
def test_exception_at_the_end_is_quoted(output: str, message: str) -> None:
    assert failed({"command": "make firmware"}, output, 2) == message


@each_case(
    "output",
    [
        "exitcode: 1 (execution failed)\nCode output: x",
        '{"stdout": "", "metadata": {"exit_code": 2}}',
        "npm ERR! Exit status 1",
        "make\nProcess completed with exit code 1.",
    ],
)
def test_text_of_an_output_states_no_exit_code(output: str) -> None:
    (call_,) = parse_trace(run(call("bash", {"command": "make"}, output)).events).calls
    assert (call_.exit_code, call_.failure_message) == (None, "")


BUILD = [
    user("Build the firmware."),
    *call("bash", {"command": "grep -c radio Makefile"}, "0", exit_code=1),
    *call("bash", {"command": "make firmware", "cwd": "fw"}, "cc radio.c", exit_code=2),
    *call("bash", {"command": "make radio", "cwd": "fw"}, "cc radio.c", exit_code=0),
    says("It is built."),
]


def test_one_figure_in_facts_and_efficiency() -> None:
    sentences = fact_sentences(facts(BUILD), "en")
    assert "3 tool calls (1 failed)" in sentences[0]
    assert "The call e3 of `bash` failed with exit code 2." in sentences
    assert "Exit code 1, by their manuals a result of these commands: e1." in sentences
    assert "Exit code 2: e3." in sentences
    score = efficiency(case(BUILD))
    assert score is not None
    assert score.reasons == ("3 calls: 1 failed, 0 repeated an earlier call.",)


def test_tests_that_are_run_again_after_an_edit_are_no_repetition() -> None:
    check = call("bash", {"command": "pytest"}, "1 failed", exit_code=1)
    edit = call("edit", {"path": "a.py", "text": "x"}, "ok")
    look = call("bash", {"command": "cat a.py"}, "x", exit_code=0)
    assert facts([*check, *edit, *check], FactKind.REPEATED_CALL) == []
    (repeated,) = facts([*check, *look, *check], FactKind.REPEATED_CALL)
    assert repeated.values["count"] == 2
