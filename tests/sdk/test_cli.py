"""The command line: output, exit status and requests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import typer
from typer.testing import CliRunner, Result

from hansei import Hansei
from hansei.cli.main import CLIENT_COMMANDS, SERVER_COMMANDS, app
from hansei.cli.playbook_output import print_consolidation
from hansei.cli.reflect import StallDetector
from hansei.cli.terminal import print_json, sanitize
from hansei.credentials import Credentials, save_credentials
from hansei.models import Run
from memory_api.__main__ import register
from tests.sdk.stub_service import KEY, RECORDED, Fault, StubService, page, problem
from tests.support.paths import ROOT

EVENTS = [{"event_type": "tool_call", "content": "x"}]


@pytest.fixture
def known(service: StubService, monkeypatch: pytest.MonkeyPatch) -> StubService:
    """The stub service, set in the environment."""
    monkeypatch.setenv("HANSEI_URL", service.url)
    monkeypatch.setenv("HANSEI_API_KEY", KEY)
    return service


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def write_traces(*traces: dict[str, Any]) -> str:
    path = Path("traces.jsonl")
    path.write_text("".join(json.dumps({"events": EVENTS} | trace) + "\n" for trace in traces))
    return str(path)


def test_overview_has_all_commands_and_help_of_group_has_its_own() -> None:
    def help_text(*arguments: str) -> str:
        command = [sys.executable, "-m", "hansei", *arguments, "--help"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def commands(text: str) -> set[str]:
        return {words[1] for line in text.splitlines() if len(words := line.split()) > 2}

    assert commands(help_text()) >= CLIENT_COMMANDS
    assert commands(help_text("playbook")) >= {"list", "show", "export", "import"}


def test_help_text_fills_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    lines = [line.strip() for line in run("reflect", "--help").stdout.splitlines()]
    assert "trace; its damaged lines are skipped and reported. Traces that the service" in lines


def test_reflect_prints_the_lessons(known: StubService) -> None:
    file = write_traces(
        {"id": "a", "says": "Minor.", "importance": 0.2},
        {"id": "b", "says": "Check the status first.", "importance": 0.9},
        {
            "id": "c",
            "says": "Check the status first.",
            "learns": "already_known",
            "importance": 0.9,
        },
        {"id": "d", "learns": "nothing_found"},
    )
    result = run("reflect", file)
    assert result.exit_code == 0, result.output
    assert "4 traces in" in result.stdout
    assert "4 new, 0 already stored, 0 rejected" in result.stdout
    assert (
        "2 new reflections (1 already known), 2 new strategies (1 already known), "
        "1 with nothing to learn, 0 failed" in result.stdout
    )
    first, second = result.stdout.index("Check the status first."), result.stdout.index("Minor.")
    assert first < second
    assert result.stdout.count("\nCheck the status first.") == 1
    assert "importance 0.90 · timeout_error · lines 2, 3" in result.stdout
    assert f"→ {RECORDED['generate']['strategy_text']}" in result.stdout


def test_progress_goes_to_stderr(known: StubService) -> None:
    result = run("reflect", write_traces({"id": "a"}))
    assert "Sending" in result.stderr
    assert "1 of 1" in result.stderr
    assert "Sending" not in result.stdout


def test_reflect_twice_reports_duplicates(known: StubService) -> None:
    file = write_traces({"id": "a"}, {"id": "b"})
    run("reflect", file)
    result = run("reflect", file)
    assert result.exit_code == 0
    assert result.stdout == ("All 2 traces are already stored; nothing new to reflect on.\n")


def test_reflect_waits_for_unfinished_runs_of_duplicates(known: StubService) -> None:
    file = write_traces({"id": "a"}, {"id": "b"})
    run("reflect", file, "--no-wait")
    known.pace = 1  # one is done at the first look, the other one is waited for
    report = json.loads(run("reflect", file, "--json").stdout)
    assert (report["new_traces"], report["duplicates"], report["new_reflections"]) == (0, 2, 1)


def test_rejected_and_failed_traces_are_printed_with_exit_status_1(known: StubService) -> None:
    file = write_traces({"id": "a", "learns": "dead"}, {"id": "b", "events": []}, {"id": "c"})
    result = run("reflect", file)
    assert result.exit_code == 1
    assert "line 2 rejected: events: At least one is needed." in result.stdout
    assert "line 1 failed: The model is away. (run run-1)" in result.stdout
    assert "hansei run retry" in result.stdout
    assert "2 new, 0 already stored, 1 rejected" in result.stdout


def test_reflect_prints_one_json_document(known: StubService) -> None:
    file = write_traces(
        {"id": "a", "says": "A"}, {"id": "b", "events": []}, {"id": "c", "learns": "dead"}
    )
    result = run("reflect", file, "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert report["traces"] == 3
    assert report["rejected"][0]["line"] == 2
    assert report["failed"][0] | {"error": None} == {
        "run_id": "run-2", "trace_id": "trace-c", "line": 3, "state": "dead", "error": None,
    }  # fmt: skip
    assert [lesson["reflection_text"] for lesson in report["lessons"]] == ["A"]
    assert report["lessons"][0]["lines"] == [1]
    assert report["unfinished"] == []


def test_no_wait_only_sends(known: StubService) -> None:
    result = run("reflect", write_traces({"id": "a"}), "--no-wait")
    assert result.exit_code == 0
    assert "1 reflection queued" in result.stdout
    assert known.paths() == ["POST /api/v1/traces"]


def test_reflect_passes_project_and_playbook(known: StubService) -> None:
    run("reflect", write_traces({"id": "a"}), "--project", "p", "--playbook", "b")
    sent = known.calls[0]
    assert sent.query == {"reflect": ["always"]}
    assert (sent.json["project_id"], sent.json["playbook"]) == ("p", "b")
    assert {call.query["project_id"][0] for call in known.calls[1:]} == {"p"}


@pytest.mark.parametrize("form", ["lines", "list", "single"])
def test_reflect_reads_stdin_in_every_format(known: StubService, form: str) -> None:
    trace = {"id": "a", "events": EVENTS}
    text = {
        "lines": json.dumps(trace),
        "list": json.dumps([trace], indent=1),
        "single": json.dumps(trace, indent=1),
    }
    result = run("reflect", "-", "--json", stdin=text[form])
    assert json.loads(result.stdout)["new_traces"] == 1


def test_empty_input_has_exit_status_1(known: StubService) -> None:
    result = run("reflect", "-", stdin="\n")
    assert result.exit_code == 1
    assert "no trace" in result.stdout


def test_file_that_is_not_json_is_an_error_message(known: StubService) -> None:
    result = run("reflect", "-", stdin="hello")
    assert result.exit_code == 1
    assert "error: The file is not JSON: Expecting value: line 1 column 1" in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""


def test_error_after_some_batches_says_how_to_continue(known: StubService) -> None:
    write_traces(*({"id": str(n)} for n in range(150)))
    known.faults.extend([Fault(), *[problem(500, "internal_error")] * 4])
    result = run("reflect", "traces.jsonl")
    assert result.exit_code == 1
    assert "100 traces sent before the error. Run the command again to continue." in result.stderr
    assert json.loads(run("reflect", "traces.jsonl", "--json").stdout)["duplicates"] == 100


def test_file_of_an_unknown_format_is_named(known: StubService) -> None:
    Path("x.jsonl").write_text('{"prompt": "Where is it?", "answer": "Here."}\n' * 2)
    result = run("reflect", "x.jsonl")
    assert result.exit_code == 2
    assert "prompt, answer" in result.stderr
    assert known.calls == []


def test_score_that_no_record_has_is_refused_before_sending(known: StubService) -> None:
    record = {"id": "t", "observations": [], "scores": [{"name": "correct", "value": 1}]}
    Path("x.jsonl").write_text(json.dumps(record) + "\n")
    options = ("reflect", "x.jsonl", "--format", "langfuse", "--outcome-from")
    result = run(*options, "corect")
    assert result.exit_code == 2
    assert "no record of the file has a score `corect`" in " ".join(result.stderr.split())
    assert known.calls == []
    run(*options, "correct")
    assert known.calls[0].query["outcome_from"] == ["correct"]


def test_reflect_requires_a_readable_file(known: StubService) -> None:
    assert run("reflect", "nowhere.jsonl").exit_code == 2
    assert run("reflect", ".").exit_code == 2
    assert run("reflect").exit_code == 2
    assert known.calls == []


def test_search_prints_the_hits(known: StubService) -> None:
    result = run("search", "order timeout", "--top-k", "3", "--kind", "episode", "--explain")
    assert result.exit_code == 0
    assert known.calls[0].json == {
        "query_text": "order timeout", "top_k": 3, "kinds": ["episode"], "explain": True,
    }  # fmt: skip
    assert "1. 0.910 · strong match · episode · importance 0.60" in result.stdout
    assert "Fetch customer order history" in result.stdout
    assert "cosine 0.5749" in result.stdout
    assert json.loads(run("search", "x", "--json").stdout) == {"results": [RECORDED["hit"]]}


def test_search_rejects_invalid_options(known: StubService) -> None:
    assert run("search", "x", "--kind", "dream").exit_code == 2
    assert run("search", "x", "--top-k", "0").exit_code == 2
    assert known.calls == []


def test_dead_runs_are_listed_shown_and_retried(known: StubService) -> None:
    run("reflect", write_traces({"id": "a", "learns": "dead"}, {"id": "b"}))
    dead = run("run", "list", "--state", "dead", "--state", "failed")
    assert dead.exit_code == 0
    assert "run-1 · reflect · dead" in dead.stdout
    assert "attempt 5 of 5 · trace trace-a\n" in dead.stdout
    assert "  The model is away." in dead.stdout
    assert "run-2" not in dead.stdout
    shown = run("run", "show", "run-1").stdout
    assert "run-1 · reflect · dead" in shown
    assert "project: rec\n" in shown
    assert json.loads(run("run", "show", "run-1", "--json").stdout)["state"] == "dead"
    retried = json.loads(run("run", "retry", "run-1", "--json").stdout)
    assert [each["state"] for each in retried["items"]] == ["queued"]


def test_run_list_stops_at_its_limit(known: StubService) -> None:
    run("reflect", write_traces(*({"id": str(n)} for n in range(5))))
    shown = json.loads(run("run", "list", "--limit", "3", "--json").stdout)
    assert shown["items"] == []  # without a state the stub's list is empty
    shown = json.loads(run("run", "list", "--state", "done", "--limit", "3", "--json").stdout)
    assert [each["id"] for each in shown["items"]] == ["run-5", "run-4", "run-3"]


def test_traces_and_memories_are_printed(
    known: StubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = run("trace", "list", "--playbook", "support", "--outcome", "failure", "--limit", "5")
    assert f"{RECORDED['trace']['id']} · " in listed.stdout
    expected = {"playbook": ["support"], "outcome": ["failure"], "limit": ["6"]}
    assert known.calls[-1].query == expected
    assert json.loads(run("trace", "list", "--json").stdout)["items"] == [RECORDED["trace"]]

    trace = run("trace", "show", "t1")
    assert f"{RECORDED['trace']['id']} · failure · closed" in trace.stdout
    assert "external ID: t1\n" in trace.stdout
    assert "error: boom" in trace.stdout
    assert "e0000 · tool_call · f" in trace.stdout
    assert json.loads(run("trace", "show", "t1", "--json").stdout) == RECORDED["trace_detail"]

    conflict = {"reported": "failure", "check": "success", "reasons": ["pytest: 4 of 4 passed"]}
    monkeypatch.setitem(RECORDED["trace_detail"], "conflict", conflict)
    shown = run("trace", "show", "t1").stdout
    assert "conflict: reported failure, the declared check found success" in shown
    assert "  pytest: 4 of 4 passed" in shown

    known.event_count = 3
    assert "e0002 · tool_call · f" in run("trace", "show", "t1").stdout
    whole = json.loads(run("trace", "show", "t1", "--json").stdout)
    assert [event["seq"] for event in whole["events"]] == [0, 1, 2]

    memory = run("memory", "show", "m1", "--history")
    assert "strategy · active · importance 0.50" in memory.stdout
    assert "An order that is pending can be cancelled." in memory.stdout
    assert "seen often" in memory.stdout
    listed = run("memory", "list", "--kind", "strategy", "--tag", "orders")
    assert RECORDED["memory"]["id"] in listed.stdout
    assert known.calls[-1].query["tag"] == ["orders"]

    assert (
        run("memory", "delete", "m1", "m2", "--reason", "wrong").stdout == "Deleted 2 memories.\n"
    )
    assert known.paths()[-2:] == ["DELETE /api/v1/memories/m1", "DELETE /api/v1/memories/m2"]
    assert known.calls[-1].query == {"reason": ["wrong"]}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (problem(401, "unauthorized"), "HANSEI_API_KEY"),
        (problem(501, "internal_error", x_request_id="r9"), "request r9"),
        (page(404), "404 Proxy Error"),
        (problem(403, "forbidden"), "error: Not now."),
    ],
)
def test_expected_errors_are_printed_without_a_traceback(
    known: StubService, fault: Fault, said: str
) -> None:
    known.faults.append(fault)
    result = run("search", "x", "--json")
    assert result.exit_code == 1
    assert said in result.stderr.replace("\n", " ")
    assert result.stderr.startswith("error: ")
    assert result.stdout == ""


def test_all_invalid_fields_are_printed(known: StubService) -> None:
    body = {
        "code": "invalid", "detail": "a: bad",
        "errors": [{"field": "a", "message": "bad"}, {"field": "b", "message": "worse"}],
    }  # fmt: skip
    known.faults.append(Fault(422, json.dumps(body).encode()))
    assert run("search", "x").stderr == "error: a: bad\n  b: worse\n"


def test_stored_credentials_are_used(
    service: StubService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="hansei")
    save_credentials(".hansei", Credentials(service.url, KEY))
    assert run("search", "x").exit_code == 0
    Path(".hansei/credentials.json").chmod(0o644)
    result = run("search", "x")
    assert result.exit_code == 0
    assert "Other users can read" in caplog.text


def test_without_credentials_the_error_says_what_to_do() -> None:
    result = run("search", "x")
    assert result.exit_code == 1
    assert "hansei up" in result.stderr


def test_control_characters_of_traces_are_replaced(known: StubService) -> None:
    evil = "\x1b]0;owned\x07 \x1b[2J[red]kept as it is[/red] \u202egnp.exe"
    result = run("reflect", write_traces({"id": "a", "says": evil}))
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout
    assert "[red]kept as it is[/red]" in result.stdout
    assert sanitize("safe\U000e0053\U000e0065") == "safe\ufffd\ufffd"
    letters = "".join(f"{letter}\ufe00\ufe0f" for letter in "send it")
    assert not {"\ufe00", "\ufe0f"} & set(sanitize(letters).replace(" \ufe00\ufe0f", ""))
    for hidden in ("😀\U000e0100\U000e0163", "x\u200b\u200c\u200b\u200c"):
        assert sanitize(hidden).count("\ufffd") >= 2
    for shown in ("👨\u200d👩 ❤️\u200d🔥 ℹ️ 1️⃣", "می\u200cخواهم", "soft\u00adhyphen"):
        assert sanitize(shown) == shown
    assert sanitize("日本語\tok\nnext") == "日本語\tok\nnext"


def test_names_of_files_do_not_control_the_terminal(known: StubService) -> None:
    name = "d\x1b]0;pwn\x07.jsonl"
    Path(name).mkdir()
    for arguments in (
        ("reflect", name),
        ("playbook", "import", "x", f"no{name}"),
        ("playbook", "export", "x", "--output", name),
    ):
        done = run(*arguments)
        assert done.exit_code == 2, done.output
        assert "]0;pwn" in done.stderr
        assert "\x1b]" not in done.stderr


def test_password_of_the_url_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSEI_URL", "http://user:pa55word@127.0.0.1:9")
    monkeypatch.setenv("HANSEI_API_KEY", "hsk_x")
    monkeypatch.setattr("hansei.client.MAX_RETRIES", 0)
    done = run("playbook", "list")
    assert "http://user:***@127.0.0.1:9 cannot be reached" in " ".join(done.stderr.split())
    assert "pa55word" not in done.output + repr(Hansei())


def test_stall_is_reported_once() -> None:
    assert not StallDetector(60).is_stalled(0)
    short = StallDetector(-1)
    assert short.is_stalled(0)
    assert not short.is_stalled(0)


def test_client_commands_lists_every_command() -> None:
    """Otherwise these commands would load the entry points of the server."""
    commands = {each.name for each in app.registered_commands}
    groups = {
        each.typer_instance.info.name for each in app.registered_groups if each.typer_instance
    }
    assert commands | groups == set(CLIENT_COMMANDS)


def test_server_commands_lists_every_command() -> None:
    """Without the server, the others would be unknown commands."""
    server = typer.Typer()
    register(server)
    commands = {each.callback.__name__ for each in server.registered_commands if each.callback}
    groups = {each.name for each in server.registered_groups}
    assert commands | groups - {"prepare"} == {*SERVER_COMMANDS, "prepare"}


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Runs the command in a process."""
    return subprocess.Popen(
        [sys.executable, "-m", "hansei", *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'apps'}:{ROOT / 'sdk'}:{ROOT}", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # a shell that starts the tests in the background ignores SIGINT for all below it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        text=True,
    )


def test_process_reflects(service: StubService) -> None:
    file = write_traces({"id": "a", "says": "日本語で学ぶ"}, {"id": "b"})
    with start("reflect", file, "--json", HANSEI_URL=service.url, HANSEI_API_KEY=KEY) as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "日本語で学ぶ" in out
    assert json.loads(out)["new_traces"] == 2


def test_process_reports_an_unreachable_service() -> None:
    with start("search", "x", HANSEI_URL="http://127.0.0.1:9", HANSEI_API_KEY=KEY) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert out == ""
    assert "cannot be reached" in err
    assert "Check that `hansei up` is running" in err
    assert "Traceback" not in err


def test_ctrl_c_while_waiting_does_not_stop_the_service(service: StubService) -> None:
    service.pace = 0
    file = write_traces({"id": "a"})
    with start("reflect", file, HANSEI_URL=service.url, HANSEI_API_KEY=KEY) as process:
        assert service.polled.wait(60)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "1 trace stored. The service continues" in err
    assert "Traceback" not in err


def test_command_imports_no_server_package() -> None:
    heavy = "{'memory_api', 'sqlalchemy', 'fastapi', 'pydantic', 'numpy', 'openai'}"
    code = f"import sys, hansei.cli.main; print(sorted({heavy} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "sdk")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout == "[]\n"


def test_reflect_prints_the_changes_of_the_playbook(known: StubService) -> None:
    """The command waits for the runs that follow the reflection."""
    file = write_traces({"id": "a", "teaches": "Ask in pages"}, {"id": "b"})
    result = run("reflect", file, "--playbook", "b")
    assert "Playbook b: 1 bullet added." in result.stdout
    assert "+ str-00001 Ask in pages" in result.stdout


def test_reflect_prints_the_changes_as_json(known: StubService) -> None:
    report = json.loads(run("reflect", write_traces({"id": "a", "teaches": "x"}), "--json").stdout)
    (change,) = report["changes"]
    assert (change["action"], change["content"], change["line"]) == ("added", "x", 1)


@pytest.mark.parametrize(
    ("result", "lines"),
    [
        ({"merged_keys": [], "consolidation": {"changes": []}}, ["pay needs no change."]),
        (
            {
                "consolidation": {
                    "rejected": [
                        {
                            "reason": "pat-00009 is not a key.",
                            "delta": {
                                "type": "MERGE",
                                "bullet_id": "pat-00001",
                                "source_ids": ["pat-00009"],
                            },
                        }
                    ]
                }
            },
            ["not applied: MERGE pat-00001 pat-00009: pat-00009 is not a key."],
        ),
        (
            {
                "merged_keys": [["pat-00001", "pat-00004"]],
                "consolidation": {
                    "changes": [{"action": "merged", "key": "pat-00002", "reason": "Same."}]
                },
            },
            ["merged pat-00004 into pat-00001", "merged pat-00002: Same."],
        ),
    ],
)
def test_consolidation_is_printed(
    capsys: pytest.CaptureFixture[str], result: dict[str, Any], lines: list[str]
) -> None:
    done = Run(id="r1", state="done", engine="llm", result=result, error=None)
    print_consolidation("pay", done)
    assert capsys.readouterr().out.splitlines() == lines
    print_consolidation("pay", Run(id="r1", state="dead", error={"message": "429"}))
    assert "pay is unchanged. Run r1:" in capsys.readouterr().out


def test_options_of_sessions_are_refused_for_traces(known: StubService) -> None:
    file = write_traces({"id": "a"})
    for option in (("--outcome", "failure"), ("--retrieval-id", str(UUID(int=1)))):
        result = run("reflect", file, *option)
        assert result.exit_code == 2
        assert "are for session files" in result.stderr
    assert known.paths() == []


def test_json_does_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """U+009B starts an escape sequence like ESC [, and JSON may have it unescaped."""
    value = {"answer": "\x9b2J\u202e 日本語"}
    print_json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert printed == '{"answer": "\\u009b2J\\u202e 日本語"}\n'
