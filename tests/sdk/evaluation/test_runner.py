"""Runs of real commands and functions, without a service: what goes wrong, and what is saved."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import hansei
from hansei.cli.main import app
from hansei.errors import EvaluationError
from hansei.evaluation.command_words import hide_secrets, hide_variables, require_files
from hansei.evaluation.html_report import format_html
from hansei.evaluation.notes import find_notes
from hansei.evaluation.report import build_report
from hansei.evaluation.report_format import check_report, summarize_report, without_texts
from hansei.evaluation.runner import Stopped
from hansei.evaluation.statistics import paired_difference
from hansei.evaluation.text_report import sections
from hansei.evaluation.wording import first_pass_line, headline, plan_line
from tests.support.cases import each_case
from tests.support.evaluation_report import evaluation_report

TASKS = [
    {"id": f"t{n}", "task": f"{n} + {n}", "expected": 2 * n, "match": "number"} for n in range(12)
]
ADD = """
import json, sys
request = json.load(sys.stdin)
with open("calls.txt", "a") as calls:
    calls.write(f"{request['arm']} {request['task_id']}\\n")
a, b = request["task"].split(" + ")
"""
ANSWER = "print(json.dumps({'answer': int(a) + int(b)}))\n"


def write_agent(code: str) -> str:
    Path("agent.py").write_text(ADD + code)
    return f"{shlex.quote(sys.executable)} agent.py"


def write_tasks(tasks: list[dict[str, Any]] = TASKS) -> str:
    Path("tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return "tasks.jsonl"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["eval", *arguments])


def run_agent(code: str, *options: str) -> Result:
    return run(
        *("run", "--tasks", write_tasks(), "--agent", write_agent(code), "--arms", "none"),
        *("--output", "out", "--retries", "0", *options),
    )


def unwrapped(result: Result) -> str:
    return " ".join(result.output.split())


def calls() -> list[str]:
    return Path("calls.txt").read_text().splitlines()


def report() -> dict[str, Any]:
    return json.loads(Path("out/report.json").read_text())


def answer(request: dict[str, Any]) -> str:
    first, second = request["task"].split(" + ")
    return str(int(first) + int(second))


def test_command_is_run_once_for_each_task_and_the_report_has_files() -> None:
    result = run_agent(ANSWER)
    assert result.exit_code == 0, result.output
    assert sorted(calls()) == sorted(f"none t{n}" for n in range(12))
    assert report()["accuracy"][0]["mean"] == 1
    html = Path("out/report.html").read_text()
    assert "<svg" in html
    assert "http" not in html.replace("http-equiv", "")
    again = run("report", "out", "--json")
    assert json.loads(again.output) == report()


def test_plan_is_written_before_the_first_call_and_the_report_names_its_hash() -> None:
    code = "import os\nassert os.path.exists('out/plan.json')\n" + ANSWER
    assert run_agent(code).exit_code == 0
    plan = json.loads(Path("out/plan.json").read_text())
    assert plan["sha256"] == report()["plan"]["sha256"]
    assert plan["sha256"] in Path("out/report.html").read_text()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('hello')", "printed no JSON: 'hello'"),
        ("", "printed nothing"),
        ("print('[1]')", "returned list instead of an object with `answer`"),
        ("print('{}')", "returned no `answer`"),
        ("sys.exit('broken')", "exit status 1: broken"),
        ("print('x' * 50_000_000)", "printed more than 16 MiB"),
        ("import time; time.sleep(60)", "no answer within 0.5 s"),
        ('print(\'{"answer": 1, "task_id": "other"}\')', "an answer for task 'other'"),
        ('print(\'{"answer": 1, "events": [1]}\')', "`events` is no list of objects"),
        ('print(\'{"answer": 1, "outcome": "ok"}\')', "`outcome` is one of success,"),
        (
            'print(\'{"answer": 1, "events": [{"event_type": "tool_cal"}]}\')',
            "event 1: `event_type` must be one of",
        ),
        (
            'print(\'{"answer": 1, "events": [{"event_type": "tool_call", "tool": "x"}]}\')',
            "event 1: An event has no field `tool`. Did you mean",
        ),
    ],
)
def test_agent_that_always_fails_stops_the_run_with_one_line(code: str, reason: str) -> None:
    result = run_agent(code, "--timeout", "0.5" if "sleep" in code else "60", "--parallel", "1")
    assert result.exit_code == 1
    assert reason in result.output
    assert ".. All answers" not in " ".join(result.output.split())
    assert "5 calls in a row failed" in result.output
    assert "Traceback" not in result.output
    assert len(calls()) == 5


@pytest.mark.parametrize("option", ["--agent", "--scorer"])
@pytest.mark.parametrize("dry", [True, False])
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("no-such-command --fast", "'no-such-command' is no executable program"),
        ("./agent.txt", "'./agent.txt' is no executable program"),
        ("cd here && python agent.py", "'cd' is no executable program, and no shell runs"),
        ("MODEL=x python agent.py", "Pass `env MODEL=x python agent.py`."),
        ("python 'agent.py", "No closing quotation"),
        (" ", "'' is no executable program"),
        ("bash my_agnet.sh", "has no file 'my_agnet.sh'"),
        ("python3 -u here/agent.py --out x.py", "has no file 'here/agent.py'"),
        ("env MODEL=x python3 agnet.py", "has no file 'agnet.py'"),
    ],
)
def test_command_that_cannot_start_leaves_no_folder(
    command: str, reason: str, dry: bool, option: str
) -> None:
    Path("agent.txt").touch(mode=0o600)
    tasks = [{"id": task["id"], "task": task["task"]} for task in TASKS]
    commands = {"--agent": "env MODEL=x true", "--scorer": "true", option: command}
    options = [part for pair in commands.items() for part in pair]
    result = run(
        *("run", "--tasks", write_tasks(tasks), *options, "--arms", "none", "--output", "out"),
        *(["--dry-run"] if dry else []),
    )
    assert result.exit_code == 1
    assert f"Cannot start `{command}`" in result.output
    assert reason in " ".join(result.output.split())
    assert not Path("out").exists()


@each_case(
    ("command", "files"),
    [
        ("bash run.sh other.sh", ["bash", "run.sh"]),
        ("env KEY=k python3 agent.py", ["env", "agent.py"]),
        # what follows is no script of this folder
        ("bash -c 'python agent.py && x.sh'", ["bash"]),
        ("python3 -m agents run.py", ["python3"]),
        ("env -C here python3 agent.py", ["env"]),
        ("true missing.py", ["true"]),
        ("python3 --version", ["python3"]),
    ],
)
def test_files_that_a_command_starts(command: str, files: list[str]) -> None:
    for name in ("run.sh", "agent.py"):
        Path(name).touch()
    assert require_files(command) == files


def test_dry_run_checks_the_scorers_of_tasks() -> None:
    tasks = [{"id": "a", "task": "1 + 1", "scorer": "no-such-scorer"}]
    result = run("run", "--tasks", write_tasks(tasks), "--dry-run")
    assert result.exit_code == 1
    assert "Cannot start `no-such-scorer`" in result.output


def test_run_without_credentials_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HANSEI_URL", raising=False)
    monkeypatch.delenv("HANSEI_API_KEY", raising=False)
    result = run(
        *("run", "--tasks", write_tasks(), "--agent", write_agent(ANSWER), "--output", "out")
    )
    assert result.exit_code == 1
    assert "No credentials found" in result.output
    assert not Path("out").exists()


def test_failed_call_counts_as_wrong_and_is_listed() -> None:
    result = run_agent("if request['task_id'] == 't9': sys.exit('lost')\n" + ANSWER)
    assert result.exit_code == 0
    assert report()["failures"] == [
        {"task_id": "t9", "arm": "none", "phase": "stream", "repeat": 0,
         "error": "agent: exit status 1: lost"}
    ]  # fmt: skip
    assert report()["accuracy"][0]["mean"] == pytest.approx(11 / 12) or report()["primary"]
    assert "Calls that failed for good: 1" in result.output


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("""env "KEY=s3c more" python agent.py""", "env … python agent.py"),
        ("""env -S "KEY=s3c python agent.py\"""", "env -S …"),
        ("""bash -c "KEY=s3c python agent.py\"""", "bash -c …"),
        ("env key-x=s3c python agent.py", "env … python agent.py"),
        ("env 'KEY=s3c' python agent.py", "env … python agent.py"),
        (r"env KEY=a\ s3c python agent.py", "env … python agent.py"),
        ("env 'KEY=s3c", "…"),
        ("my_agents:answer", "my_agents:answer"),
    ],
)
def test_report_hides_words_that_may_set_variables(command: str, shown: str) -> None:
    assert hide_variables(command) == shown


def test_report_has_no_values_of_variables_and_a_page_or_published_one_no_texts() -> None:
    """The command and a message of an agent went to the console and the page as they were."""
    code = "if request['task_id'] == 't9': sys.exit('lost: jane@example.org')\n" + ANSWER
    secret = "env DBPASS=hunter2 TOKEN='a b' " + write_agent(code)
    result = run("run", "--tasks", write_tasks(), "--agent", secret, "--arms", "none",
                 "--output", "out", "--retries", "0")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert report()["plan"]["agent"].startswith("env … … ")
    files = [Path("out", name).read_text() for name in ("report.json", "report.html")]
    for shown in (result.output, *files):
        assert "hunter2" not in shown
    assert "jane" not in files[1]
    for shown in (result.output, files[0], run("report", "out").output):
        assert "jane" in shown
    published = without_texts(report())
    assert [row["error"] for row in published["failures"]] == ["agent"]
    check_report(published)


def test_published_report_has_no_texts_of_failed_learning() -> None:
    full = evaluation_report()
    run = {"run_id": "r", "kind": "reflection", "error": {"message": "lost: jane@example.org"}}
    full["learning"]["failed_runs"] = [run]
    published = without_texts(full)
    assert "jane" not in json.dumps(published)
    assert len(published["learning"]["failed_runs"]) == 1


def test_advice_is_not_said_to_be_never_cited_if_no_call_was_answered() -> None:
    found = evaluation_report()
    found["advice"] = [row | {"cited": 0, "followed": 0} for row in found["advice"][:1]]
    assert any("ADVICE NEVER CITED" in note for note in find_notes(found))
    found["costs"] = [row | {"calls": 0} for row in found["costs"]]
    assert not any("ADVICE NEVER CITED" in note for note in find_notes(found))


def test_report_names_the_starting_playbook_and_what_is_unknown_about_it() -> None:
    """It was in no text, and held-out tasks were "kept out of learning" though learned from."""
    found = evaluation_report(playbook="mine")
    warning = "STARTING PLAYBOOK: `mine` may have learned from these tasks"
    assert any(note.startswith(warning) for note in find_notes(found))
    page = format_html(found)
    for text in (headline(found), headline(summarize_report(found))):
        assert "(starting playbook: mine)" in text
        assert "kept out of learning in this run" in text
    assert "Starting playbook: mine." in plan_line(found)
    assert "(starting playbook: mine)" in page
    assert "Starting playbook: mine." in page
    empty = evaluation_report(playbook=None)
    assert "tarting playbook" not in f"{headline(empty)} {plan_line(empty)}"
    assert not any(note.startswith("STARTING") for note in find_notes(empty))
    options = ("run", "--tasks", write_tasks(), "--held-out", "4", "--dry-run", "--playbook")
    dry = " ".join(run(*options, "mine").output.split())
    assert warning in dry
    assert "Starting playbook: mine." in dry
    without_service = run(*options, "mine", "--arms", "none,icl").output
    assert "tarting playbook" not in without_service


def test_notes_say_how_to_measure_and_keep_what_was_learned() -> None:
    found = evaluation_report()
    found["learning"] |= {"waiting": 2, "bullets": 3, "projects": ["eval-1"]}
    notes = " ".join(find_notes(found))
    assert "and the same tasks, `--seed` and `--held-out`" in notes
    assert "To add bullets to a playbook that you have, run with `--playbook`" in notes


def test_failed_call_is_retried() -> None:
    code = (
        "import os\nname = 'seen-' + request['task_id']\n"
        "if not os.path.exists(name):\n    open(name, 'w').close()\n    sys.exit('first')\n"
    ) + ANSWER
    result = run_agent(code, "--retries", "1", "--parallel", "8")
    assert result.exit_code == 0
    assert report()["failures"] == []
    assert len(calls()) == 24


def test_crash_at_the_tenth_task_loses_nothing_and_resume_pays_for_nothing_twice() -> None:
    crash = (
        "import os\nif len(open('calls.txt').readlines()) > 7 and not os.path.exists('fixed'):\n"
        "    sys.exit('full')\n"
    )
    result = run_agent(crash + ANSWER, "--parallel", "1", "--window", "12")
    assert result.exit_code == 1
    assert "--resume out" in result.output.replace("\n", " ")
    saved = Path("out/answers.jsonl").read_text().count('"error":null')
    assert saved == 7
    Path("fixed").touch()
    before = len(calls())
    assert run("run", "--resume", "out").exit_code == 0
    assert len(calls()) == before + 12 - saved
    assert report()["failures"] == []
    again = len(calls())
    assert run("run", "--resume", "out").exit_code == 0
    assert len(calls()) == again


def test_line_that_was_cut_off_is_asked_again() -> None:
    assert run_agent(ANSWER).exit_code == 0
    path = Path("out/answers.jsonl")
    path.write_bytes(path.read_bytes()[:-20])
    assert run("run", "--resume", "out").exit_code == 0
    assert len(calls()) == 13
    assert report()["calls"] == {"done": 12, "planned": 12}


def test_folder_that_has_a_run_is_refused() -> None:
    assert run_agent(ANSWER).exit_code == 0
    result = run_agent(ANSWER)
    assert result.exit_code == 1
    assert "already has an evaluation" in result.output
    assert len(calls()) == 12


def test_budget_stops_before_it_is_exceeded() -> None:
    code = "print(json.dumps({'answer': int(a) + int(b), 'usage': {'usd': 0.01}}))"
    result = run_agent(code, "--budget-usd", "0.055", "--parallel", "4")
    assert result.exit_code == 1
    assert "The budget of $0.055 is reached: $0.0500 is spent." in result.output.replace("\n", " ")
    assert len(calls()) == 5
    assert run("run", "--resume", "out", "--budget-usd", "0.2").exit_code == 0
    assert len(calls()) == 12


def test_budget_without_known_prices_stops_after_the_first_call() -> None:
    result = run_agent(ANSWER, "--budget-usd", "1")
    assert result.exit_code == 1
    assert "let the agent report its tokens" in " ".join(result.output.split())
    assert len(calls()) == 1


def test_resumed_run_uses_the_prices_of_the_first_call() -> None:
    code = "print(json.dumps({'answer': 1, 'usage': {'input_tokens': 10, 'output_tokens': 2}}))"
    prices = ("--input-price", "500", "--output-price", "2500")  # a cent for each call
    assert run_agent(code, "--budget-usd", "0.035", *prices).exit_code == 1
    assert len(calls()) == 3
    resumed = run("run", "--resume", "out", "--budget-usd", "0.065")
    assert "The budget of $0.065 is reached: $0.0600 is spent." in " ".join(resumed.output.split())
    assert run("run", "--resume", "out", "--output-price", "7500").exit_code == 0
    assert report()["costs"][0]["total_usd"] == pytest.approx(6 * 0.01 + 6 * 0.02)


def test_prices_that_are_passed_later_count_for_earlier_answers() -> None:
    code = "print(json.dumps({'answer': 1, 'usage': {'input_tokens': 10, 'output_tokens': 2}}))"
    stopped = " ".join(run_agent(code, "--budget-usd", "1").output.split())
    assert "cannot be checked: pass --input-price and --output-price. All" in stopped
    prices = ("--input-price", "500", "--output-price", "2500")
    assert run("run", "--resume", "out", "--budget-usd", "1", *prices).exit_code == 0
    assert report()["costs"][0]["total_usd"] == pytest.approx(0.12)
    assert len(calls()) == 12


def test_price_that_is_no_number_is_refused() -> None:
    result = run_agent(ANSWER, "--input-price", "inf", "--output-price", "1")
    assert result.exit_code == 1
    assert "`inf` is no price in dollars." in result.output
    assert not Path("out").exists()


def test_dry_run_calls_nothing_and_shows_the_plan() -> None:
    options = ("--tasks", write_tasks(), "--agent", write_agent(ANSWER), "--arms", "none,icl")
    result = run("run", *options, "--dry-run")
    assert result.exit_code == 0
    assert f"Valid: 12 tasks. Found: {sys.executable}, agent.py." in unwrapped(result)
    assert "whether agent and scorer work is not checked" in unwrapped(result)
    assert "Expected answers that score as right: 12 of 12." in result.output
    assert not Path("hansei-eval").exists()
    assert not Path("calls.txt").exists()
    assert run("run", *options, "--output", "out").exit_code == 0
    assert report()["plan"]["repeated_sha256"] in result.output
    assert report()["plan"]["repeated_sha256"] in Path("out/report.html").read_text()
    other = run("run", *options, "--seed", "2", "--dry-run")
    assert report()["plan"]["repeated_sha256"] not in other.output


def test_dry_run_estimates_tokens_by_arm() -> None:
    options = ("--arms", "none,hansei,icl,examples,full", "--token-budget", "100")
    result = run("run", "--tasks", write_tasks(), *options, "--dry-run", "--json")
    sizes = [list(row.values()) for row in json.loads(result.stdout)["arms"]]
    tokens = sum(-(-len(str(task["task"])) // 4) for task in TASKS)
    assert sizes == [
        ["none", 12, tokens, 0],
        ["hansei", 24, 2 * tokens, 21 * 100],  # the first window of 3 has no advice
        ["icl", 24, 2 * tokens, 21 * 30_000],
        ["examples", 24, 2 * tokens, 21 * 49],
        ["full", 24, 2 * tokens, None],
    ]


def test_advice_of_examples_is_not_longer_than_the_dry_run_says() -> None:
    options = ("--tasks", write_tasks(), "--agent", write_agent(ANSWER), "--arms", "none,examples")
    dry = run("run", *options, "--dry-run", "--json")
    assert run("run", *options, "--output", "out").exit_code == 0
    answers = map(json.loads, Path("out/answers.jsonl").read_text().splitlines())
    used = sum(record["advice_tokens"] for record in answers)
    assert 0.8 < used / json.loads(dry.stdout)["arms"][1]["advice_tokens"] <= 1


@pytest.mark.parametrize(
    ("prices", "is_warned"),
    [
        ((), True),
        (("--input-price", "1"), True),
        (("--input-price", "1", "--output-price", "2"), False),
    ],
)
def test_dry_run_names_a_budget_that_cannot_be_checked(
    prices: tuple[str, ...], is_warned: bool
) -> None:
    result = run("run", "--tasks", write_tasks(), "--budget-usd", "1", *prices, "--dry-run")
    assert result.exit_code == 0
    assert ("--budget-usd needs what an answer costs" in result.output) == is_warned


def test_costs_of_arms_and_of_the_run() -> None:
    code = "print(json.dumps({'answer': 1, 'usage': {'input_tokens': 10, 'output_tokens': 2}}))"
    prices = ("--input-price", "1000", "--output-price", "5000")
    options = ("--agent", write_agent(code), "--arms", "none,icl", "--no-second-pass", "--output")
    assert run("run", "--tasks", write_tasks(), *options, "out", *prices).exit_code == 0
    assert [row["total_usd"] for row in report()["costs"]] == [pytest.approx(0.24)] * 2
    assert report()["total_usd"] == pytest.approx(0.48)
    result = run("run", "--tasks", write_tasks(), *options, "other")
    assert "The whole run, with learning: unknown." in result.output


def test_equal_curves_and_all_names_are_visible() -> None:
    hansei.evaluate(answer, TASKS, folder="out", arms=["none", "icl", "examples"])
    html = Path("out/report.html").read_text()
    lines = re.findall(r'<polyline points="([^"]*)" fill="none" (.*?)/>', html)
    assert len({points for points, _ in lines}) == 1
    widths = [int(re.findall(r'width="(\d+)"', style)[0]) for _, style in lines]
    assert widths == sorted(set(widths), reverse=True)
    assert ["dasharray" in style for _, style in lines] == [False, True, True]
    legend = html.split('class="legend">')[1].split("</p>")[0]
    assert re.findall(r"</svg> (\w+)</span>", legend) == ["none", "icl", "examples"]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ('{"answer": 1, "usage": {"usd": NaN}}', "`usage.usd` is no amount"),
        ('{"answer": 1, "usage": {"usd": 1e999}}', "`usage.usd` is no amount"),
        ('{"answer": 1, "usage": {"usd": -5}}', "`usage.usd` is no amount"),
        (f'{{"answer": 1, "usage": {{"input_tokens": {10**400}}}}}', "is no amount"),
        (f'{{"answer": {"[" * 900}1{"]" * 900}}}', "nested in more than 64 levels"),
    ],
)
def test_answer_that_would_end_the_run_is_a_failed_call(document: str, reason: str) -> None:
    """A negative cost escaped the budget. The others ended the run, and each resumption."""
    code = f"print({document!r} if request['task_id'] == 't3' else json.dumps({{'answer': a}}))"
    result = run_agent(code, "--input-price", "1", "--output-price", "1")
    assert result.exit_code == 0, result.output
    assert reason in json.dumps(report(), ensure_ascii=False)
    json.loads(Path("out/report.json").read_text(), parse_constant=pytest.fail)


def test_number_that_is_none_is_damaged() -> None:
    tasks = [{"id": "a", "task": "1 + 1", "expected": "two", "match": "number"}]
    result = run("run", "--tasks", write_tasks(tasks), "--dry-run")
    assert result.exit_code == 1
    assert "`match: number`, but `expected` is no number: two" in result.output


def test_resume_continues_with_another_key_and_with_no_other_command() -> None:
    """A plan had the value of the key in its hash, so a new key ended the evaluation."""
    refusal = "if os.environ['API_KEY'] == 'old' and 't9' in request['task_id']: sys.exit('401')\n"
    command = write_agent("import os\n" + refusal + ANSWER)
    options = ("--tasks", write_tasks(), "--arms", "none", "--retries", "0", "--output", "out")
    old, new = (f"env API_KEY={key} MODEL=m {command}" for key in ("old", "new"))
    assert run("run", *options, "--agent", old).exit_code == 0
    assert len(report()["failures"]) == 1
    sha256 = report()["plan"]["sha256"]
    for other in (new.replace("MODEL=m", "MODEL=n"), new + " --fast", f"env KEY=new {command}"):
        refused = run("run", "--resume", "out", "--agent", other)
        assert refused.exit_code == 1
        assert "only in values of variables and options whose names end in KEY" in unwrapped(
            refused
        )
    assert run("run", "--resume", "out", "--agent", new).exit_code == 0
    assert report()["failures"] == []
    assert len(calls()) == 13
    assert report()["plan"]["sha256"] == sha256
    plan = Path("out/plan.json")
    plan.write_text(plan.read_text().replace("API_KEY=old", "API_KEY=new"))
    assert run("run", "--resume", "out").exit_code == 0
    plan.write_text(plan.read_text().replace("MODEL=m", "MODEL=n"))
    assert "changed after the start" in unwrapped(run("run", "--resume", "out"))


@each_case(
    ("command", "hashed"),
    [
        ("env KEY=a python agent.py", "env KEY=… python agent.py"),
        ("env 'OPENAI_API_KEY=a b' x", "env OPENAI_API_KEY=… x"),
        ("agent --api-key=a --max-tokens=5", "agent --api-key=… --max-tokens=5"),
        ("env MODEL='a b' MAX_TOKENS=5  python agent.py", None),
        ("env 'KEY=a", None),
    ],
)
def test_hash_of_a_plan_has_names_of_secrets_and_no_values(
    command: str, hashed: str | None
) -> None:
    assert hide_secrets(command).replace("'", "") == (hashed or command).replace("'", "")


def test_resume_takes_nothing_from_options() -> None:
    for option, value in (("--tasks", write_tasks()), ("--held-out", "4")):
        result = run("run", "--resume", "out", "--retries", "1", option, value)
        assert result.exit_code == 2
        assert f"Leave out {option}." in " ".join(result.output.replace("│", " ").split())


def test_arm_without_advice_measures_nothing() -> None:
    """Neither a result nor the number of tasks that would show one is printed."""
    result = hansei.evaluate(
        answer, TASKS, folder="out", arms=["none", "examples"], second_pass=False
    )
    row = next(each for each in result["advice"] if each["arm"] == "examples")
    row["measures_nothing"] = True
    assert headline(result).startswith("Nothing was measured: the agent never got a prompt with")
    assert "To see a difference" not in str(sections(result))


def test_interval_and_exact_test_that_disagree_are_uncertain() -> None:
    difference = paired_difference([1.0] * 12, [1.0] * 7 + [0.0] * 5)
    assert difference.low > 0
    assert difference.p > 0.05
    row = {**asdict(difference), "first": "hansei", "second": "none"}
    accuracy = [
        {"phase": "primary", "arm": "hansei", "mean": 1.0},
        {"phase": "primary", "arm": "none", "mean": 7 / 12},
    ]
    report = {"comparisons": [row], "advice": [], "accuracy": accuracy}
    assert headline(report | {"primary": "held-out tasks"}) == (
        "It is uncertain whether advice from Hansei made a difference: of 12 tasks kept out of"
        " learning in this run, 100.0 % were right with it and 58.3 % without (+41.7 points;"
        " 95 % interval +7.0 to +64.5; p = .062)."
    )


@pytest.mark.parametrize(
    ("options", "primary", "label"),
    [
        ({"held_out": 4}, ["held_out", 0], "held-out tasks"),
        ({}, ["second", 0], "second pass"),
        ({"second_pass": False}, ["stream", 1], "stream after its first window"),
        ({"second_pass": False, "window": 12}, ["stream", 0], "stream"),
    ],
)
def test_plan_fixes_what_decides(options: dict[str, Any], primary: list[Any], label: str) -> None:
    result = hansei.evaluate(answer, TASKS, folder="out", arms=["none", "icl"], **options)
    assert json.loads(Path("out/plan.json").read_text())["primary"] == primary
    assert result["primary"] == label
    assert bool(result["first_pass"]) == (primary[0] != "stream")


def test_plan_of_an_older_version_decides_by_its_own_rule() -> None:
    """Its tasks were asked again, but the stream decided."""
    hansei.evaluate(answer, TASKS, folder="out", arms=["none", "icl"])
    path = Path("out/plan.json")
    stored = json.loads(path.read_text()) | {"primary": ["stream", 1]}
    hashed = {k: v for k, v in stored.items() if k not in ("sha256", "repeated_sha256")}
    stored["sha256"] = hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(stored))
    result = hansei.evaluate(answer, TASKS, folder="out", arms=["none", "icl"])
    assert result["primary"] == "stream after its first window"
    assert result["comparisons"][0]["tasks"] == 9


def test_failed_call_is_wrong_but_no_harm() -> None:
    """`icl` loses one control, and `none` another task; advice harms a third one."""

    def agent(request: dict[str, Any]) -> str:
        lost = {"none": "t5", "icl": "t7"}[request["arm"]]
        if request["task_id"] == lost and request["advice"]:
            raise ConnectionError("lost")
        if request["task_id"] == "t5" and request["arm"] == "none":
            raise ConnectionError("lost")
        return "wrong" if request["task_id"] == "t9" and request["advice"] else answer(request)

    tasks = [{**task, "control": True, "split": "held_out"} for task in TASKS[4:]]
    result = hansei.evaluate(
        agent, TASKS[:4] + tasks, folder="out", arms=["none", "icl"], retries=0
    )
    [row] = result["comparisons"]
    assert (row["better"], row["worse"]) == (1, 2)
    assert row["became_wrong"] == ["t9"]
    assert row["became_right"] == []
    assert sorted(row["changed_by_failed_call"]) == ["t5", "t7"]
    [control] = result["controls"]
    assert (control["tasks"], control["better"], control["worse"]) == (6, 0, 1)
    assert control["became_wrong"] == ["t9"]
    assert {failure["task_id"] for failure in result["failures"]} == {"t5", "t7"}
    [section] = [s for s in sections(result) if s.title.startswith("Controls")]
    assert section.rows[0][-1] == "t9"
    assert section.lines == ["Of the first pass and the held-out tasks, without calls that failed."]
    [section] = [s for s in sections(result) if s.title.startswith("Differences: held-out")]
    assert "only because a call failed, which counts as wrong: t5, t7." in section.lines[-1]


def test_controls_that_only_failed_are_not_compared() -> None:
    def agent(request: dict[str, Any]) -> str:
        if request["advice"] and request["task_id"] in ("t4", "t5", "t6"):
            raise ConnectionError("lost")
        return answer(request)

    tasks = [{**t, "control": True, "split": "held_out"} if t in TASKS[4:7] else t for t in TASKS]
    result = hansei.evaluate(agent, tasks, folder="out", arms=["none", "icl"], retries=0)
    assert len(result["failures"]) == 3
    [row] = result["comparisons"]
    assert row["mean"] == -1
    assert result["controls"] == []
    [section] = [s for s in sections(result) if s.title.startswith("Controls")]
    assert section.lines == ["No control was answered by `none` and another arm."]


def test_scores_between_right_and_wrong_are_called_mean_scores() -> None:
    def half(task: dict[str, Any]) -> float:
        return 0.5 if task["id"] == "t1" else 1.0

    tasks = [{"id": task["id"], "task": task["task"]} for task in TASKS]
    options: Any = {"arms": ["none", "icl"], "held_out": 6}
    result = hansei.evaluate(answer, tasks, half, folder="out", **options)
    assert "the mean score was" in headline(result)
    assert headline(summarize_report(result)) == headline(result)
    assert "right" not in headline(result)
    assert "mean score" in sections(result)[0].header
    assert "Mean score in each window" in Path("out/report.html").read_text()
    check_report(json.loads(json.dumps(result)))
    result = hansei.evaluate(answer, TASKS, folder="right", **options)
    assert "100.0 % were right with it" in headline(result)
    assert "right" in sections(result)[0].header


@each_case(
    ("options", "phase"), [({"held_out": 4}, "held-out tasks"), ({"held_out": 0}, "second pass")]
)
def test_report_before_what_decides_says_so(options: dict[str, Any], phase: str) -> None:
    folder = Path(phase)
    hansei.evaluate(answer, TASKS, folder=folder, arms=["none", "icl"], **options)
    path = folder / "answers.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if json.loads(line)["phase"] == "stream"))
    result = build_report(folder)
    assert headline(result) == (
        f"There is no comparison yet. What decides: {phase}. No task there is answered by both"
        " `none` and another arm."
    )
    assert first_pass_line(result).startswith("While it was still learning")


def test_report_of_one_arm_needs_another_one() -> None:
    result = hansei.evaluate(answer, TASKS, folder="out", arms=["none"])
    assert headline(result).endswith("it needs the arm `none` and another one.")


def test_gain_that_the_tasks_cannot_show_is_named() -> None:
    def agent(request: dict[str, Any]) -> str:
        return "0" if request["task_id"] in wrong and not request["advice"] else answer(request)

    for count, is_named in ((5, True), (6, False)):
        wrong = [task["id"] for task in TASKS[4 : 4 + count]]
        tasks = [*TASKS[:4], *({**task, "split": "held_out"} for task in TASKS[4:])]
        result = hansei.evaluate(agent, tasks, folder=str(count), arms=["none", "icl"])
        [row] = result["comparisons"]
        assert (row["can_improve"], row["better"], row["p"] < 0.05) == (count, count, not is_named)
        notes = [note for note in result["notes"] if note.startswith("NO GAIN CAN BE SHOWN")]
        assert len(notes) == is_named
        assert all("only 5 of the 8 tasks that decide can improve" in n for n in notes)
    command = ("run", "--tasks", write_tasks(tasks), "--agent", write_agent(ANSWER))
    plan = " ".join(run(*command, "--dry-run").output.split())
    assert "to show a gain, have at least 6 that fail today" in plan


def test_one_task_is_singular() -> None:
    """A report said "of 1 tasks kept out of learning", and "1 controls"."""
    control = {**TASKS[0], "control": True, "split": "held_out"}
    result = hansei.evaluate(
        lambda request: "0" if request["advice"] else "x",
        [control, *TASKS[1:3]],
        folder="out",
        arms=["none", "icl"],
        window=1,
    )
    assert "of 1 task kept out of learning in this run, 100.0 % were right" in headline(result)
    assert "controls: 1;" in plan_line(result)
    assert "Decides: held-out tasks, 1 task." in plan_line(result)
    [line] = next(s.lines for s in sections(result) if s.title.startswith("Differences: held"))
    assert line.startswith("icl − none: 1 task cannot reach p < .05")
    assert not re.search(r"\b1 (tasks|controls)\b", Path("out/report.html").read_text())
    result["first_pass"][0]["tasks"] = 1
    assert "(first pass, 1 task)" in first_pass_line(result)


def test_bullets_have_the_number_of_their_citations() -> None:
    hansei.evaluate(answer, TASKS, folder="out", arms=["none", "icl"], repeats=2)
    path = Path("out/answers.jsonl")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    advised = [record for record in records if record["advice"]]
    for record in advised:
        record["bullet_keys"] = ["pat-00001", "pat-00002"]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert build_report(Path("out"))["bullets"] == []  # no answer cites
    advised[0]["cited"] = ["pat-00002"]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    result = build_report(Path("out"))
    check_report(json.loads(json.dumps(result)))
    counts = [(row["key"], row["given"], row["cited"]) for row in result["bullets"]]
    given = len(advised) // 2
    assert counts == [
        ("pat-00002", given, 1),
        *(("pat-00001", given, 0), ("pat-00001", given, 0), ("pat-00002", given, 0)),
    ]
    [section] = [s for s in sections(result) if s.title == "How often each bullet was cited"]
    assert section.rows[0] == ["pat-00002", "icl", "1", str(given), "1"]
    assert section.lines == ["Bullets that were never cited: 3."]
    [row] = result["advice"]
    assert row["rendered"] < row["calls"]
    assert row["tokens"] == sum(r["advice_tokens"] for r in advised) / row["rendered"]


def test_too_few_tasks_are_named_before_and_after_the_run() -> None:
    options = ("--arms", "none,icl", "--no-second-pass", "--held-out", "5")
    command = ("run", "--tasks", write_tasks(), "--agent", write_agent(ANSWER), *options)
    plan = " ".join(run(*command, "--dry-run").output.split())
    assert "Decides: held-out tasks, 5 tasks. p < .05 needs at least 6 tasks" in plan
    assert run(*command, "--output", "out").exit_code == 0
    assert any(note.startswith("TOO FEW TASKS") for note in report()["notes"])
    assert "5 tasks cannot reach p < .05" in Path("out/report.html").read_text().replace(
        "&lt;", "<"
    )


def test_page_starts_with_the_answer_and_ends_with_the_hash() -> None:
    hansei.evaluate(answer, TASKS, folder="out", arms=["none", "icl"])
    html = Path("out/report.html").read_text()
    places = [
        *("Does the memory help", "No difference is shown", "While it was still learning"),
        *("Learning curve", "Accuracy", "Differences: second pass"),
        *("Words of this report", "<td>frozen memory</td>", "SHA-256"),
    ]
    assert [html.index(place) for place in places] == sorted(map(html.index, places))
    assert "`" not in html
    assert not re.search(r"[ >(]-\d", html), "minus signs are −"


def test_full_disk_is_one_line() -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(Stopped, match=r"Cannot write out/answers.jsonl: File too large\."):
            hansei.evaluate(limit_after_five, TASKS, folder="out", arms=["none"], parallel=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, old)
    result = hansei.evaluate(limit_after_five, TASKS, folder="out", arms=["none"], parallel=1)
    assert result["calls"] == {"done": 12, "planned": 12}


def limit_after_five(request: dict[str, Any]) -> str:
    path = Path("out/answers.jsonl")
    _soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if path.exists() and path.read_bytes().count(b"\n") == 5 and not Path("once").exists():
        Path("once").touch()
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, hard))
    return answer(request)


def test_interrupt_ends_after_the_running_calls_and_saves_them() -> None:
    agent = write_agent("import time; time.sleep(1)\n" + ANSWER)
    command = [sys.executable, "-m", "hansei", "eval", "run", "--tasks", write_tasks()]
    options = ["--agent", agent, "--arms", "none", "--output", "out", "--parallel", "2"]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in a background
    )
    while not Path("calls.txt").exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "Continue: hansei eval run --resume out" in output.replace("\n", " ")
    assert "Traceback" not in output
    saved = Path("out/answers.jsonl").read_text().count("\n")
    assert saved == len(calls())
    assert 0 < saved < 12


def test_function_with_scorer_and_all_arms_without_a_service() -> None:
    tasks = [
        {
            "id": str(n),
            "task": f"{n} + {n}",
            "solution": 200 * n,
            "control": n == 3,
            "group": "sums",
        }
        for n in range(20)
    ]
    seen: list[dict[str, Any]] = []

    def agent(request: dict[str, Any]) -> dict[str, Any]:
        seen.append(request)
        factor = 100 if "hundred" in request["advice"] or "Right answer" in request["advice"] else 1
        return {"answer": factor * int(answer(request)), "usage": {"input_tokens": 10}}

    def score(task: dict[str, Any]) -> tuple[bool, str]:
        return task["answer"] == task["solution"], "The result is a hundred times the sum."

    result = hansei.evaluate(
        agent, tasks, score, folder="out", arms=["none", "icl", "examples"], feedback="text"
    )
    first = [r for r in seen if r["advice"] == "" and r["arm"] == "icl"]
    assert len(first) == 5  # the first window has no memory
    assert result["plan"]["primary"] == ["second", 0]
    by_arm = {row["arm"]: row["mean"] for row in result["accuracy"][:3]}
    assert by_arm == {"none": 1 / 20, "icl": 1, "examples": 1}  # 0 is right without a hundred
    assert [row["tasks"] for row in result["first_pass"]] == [20, 20]
    assert first_pass_line(result).startswith("While it was still learning (first pass, 20 tasks)")
    icl = next(c for c in result["comparisons"] if c["first"] == "icl")
    assert icl["p"] < 0.001
    assert len(icl["became_right"]) == icl["better"]
    gains = {row["arm"]: row for row in result["agentcl"]}
    assert gains["icl"]["plasticity"]["mean"] == pytest.approx(14 / 20, abs=0.06)
    in_windows = {r["arm"]: r["mean"] for r in result["accuracy"] if r["phase"] == "stream"}
    assert [row["mean"] for row in result["first_pass"]] == [
        *(gains[arm]["plasticity"]["mean"] for arm in ("icl", "examples"))
    ]
    assert gains["icl"]["plasticity"]["mean"] == pytest.approx(
        in_windows["icl"] - in_windows["none"]
    )
    assert gains["icl"]["stability"]["mean"] == pytest.approx(5 / 20, abs=0.06)
    assert gains["icl"]["generalization"] is None
    assert [row["tasks"] for row in result["controls"]] == [1, 1]
    assert result["groups"] == [{"group": "sums", "arms": by_arm}]
    advice = next(r["advice"] for r in reversed(seen) if r["arm"] == "icl")
    assert "Feedback: The result is a hundred times the sum." in advice
    assert "Right answer" not in advice


def test_only_the_outcome_is_given_if_asked() -> None:
    advice: list[str] = []

    def agent(request: dict[str, Any]) -> str:
        advice.append(request["advice"])
        return "0"

    hansei.evaluate(agent, TASKS, folder="out", arms=["none", "icl"], feedback="outcome")
    text = max(advice, key=len)
    assert "Outcome: failure" in text
    assert "Right answer" not in text
    assert "Feedback" not in text


def test_icl_has_the_newest_attempts_that_fit() -> None:
    advice: dict[str, str] = {}

    def agent(request: dict[str, Any]) -> str:
        advice[request["task_id"]] = request["advice"]
        return "x" * 400

    hansei.evaluate(
        agent, TASKS, folder="out", arms=["icl"], window=1, icl_tokens=250, second_pass=False
    )
    sizes = [len(text) for text in advice.values()]
    assert max(sizes) <= 250 * 4 + 60
    assert sizes[0] == 0
    ids = list(advice)
    assert f"Task: {ids[-2][1:]} + " in advice[ids[-1]]


def test_same_folder_with_other_tasks_is_refused() -> None:
    hansei.evaluate(answer, TASKS, folder="out", arms=["none"])
    with pytest.raises(EvaluationError, match="other tasks or options"):
        hansei.evaluate(answer, TASKS[:5], folder="out", arms=["none"])


def test_scorer_that_fails_does_not_pay_for_the_answer_again() -> None:
    asked: list[str] = []

    def agent(request: dict[str, Any]) -> str:
        asked.append(request["task_id"])
        return answer(request)

    def broken(_task: dict[str, Any]) -> float:
        raise RuntimeError("no scores today")

    tasks = [{"id": task["id"], "task": task["task"]} for task in TASKS]
    with pytest.raises(Stopped, match="scorer: RuntimeError: no scores today"):
        hansei.evaluate(agent, tasks, broken, folder="out", arms=["none"], parallel=1)
    count = len(asked)
    with pytest.raises(Stopped):
        hansei.evaluate(agent, tasks, broken, folder="out", arms=["none"], parallel=1)
    assert len(asked) == count


@each_case("value", [2, -1, "yes", None, {"points": 1}])
def test_scorer_with_a_wrong_value(value: Any) -> None:
    tasks = [{"id": task["id"], "task": task["task"]} for task in TASKS]
    with pytest.raises(Stopped, match="instead of a number from 0 to 1"):
        hansei.evaluate(answer, tasks, lambda _: value, arms=["none"])


def test_repeats_are_averaged_for_each_task() -> None:
    count = 0

    def agent(request: dict[str, Any]) -> str:
        nonlocal count
        count += 1
        return answer(request) if request["arm"] == "icl" or count % 2 else "wrong"

    result = hansei.evaluate(
        agent, TASKS, folder="out", arms=["none", "icl"], repeats=3, second_pass=False, parallel=1
    )
    row = result["accuracy"][0]
    assert row["tasks"] <= 12
    assert row["calls"] == 3 * 9
    assert all(0 <= c["mean"] <= 1 for c in result["comparisons"])


def test_run_that_another_process_holds_is_refused() -> None:
    started: list[str] = []

    def agent(request: dict[str, Any]) -> str:
        if not started:
            started.append("")
            with pytest.raises(EvaluationError, match="Another process is running out"):
                hansei.evaluate(agent, TASKS, folder="out", arms=["none"])
        return answer(request)

    hansei.evaluate(agent, TASKS, folder="out", arms=["none"], parallel=1)


def test_unknown_option() -> None:
    with pytest.raises(TypeError, match="windows"):
        hansei.evaluate(answer, TASKS, windows=3)


def test_function_of_a_module() -> None:
    Path("my_agent.py").write_text("def answer(request):\n    return str(eval(request['task']))\n")
    result = run(
        *("run", "--tasks", write_tasks(), "--agent", "my_agent:answer", "--arms", "none"),
        *("--output", "out"),
    )
    assert result.exit_code == 0, result.output
    missing = run(
        *("run", "--tasks", write_tasks(), "--agent", "my_agent:other", "--arms", "none"),
    )
    assert missing.exit_code == 1
    assert "Cannot load the function `my_agent:other`" in missing.output
