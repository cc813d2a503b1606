"""Files that are made to stop the command that reads them, or to lead it to files of the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hansei._operations import Playbook
from hansei.cli.main import app
from hansei.cli.options import open_input
from hansei.coding_agents.hooks import load_account
from hansei.credentials import Credentials, load_credentials, save_credentials
from hansei.errors import ConfigurationError
from hansei.playbook_import import ImportedLesson, merge_lessons, parse_lessons
from hansei.recording.delivery import parse_run
from hansei.session_files import read_session_file
from tests.sdk.stub_service import KEY, StubService


def test_comments_without_an_end_take_no_quadratic_time() -> None:
    started = time.process_time()
    lessons = parse_lessons("- Look first.\n\n<!-- x --> " + "<!--" * 100_000, "agents-md")
    assert time.process_time() - started < 2
    assert lessons[0].content == "Look first."


def test_entry_that_is_nested_too_deeply_is_skipped() -> None:
    deep = b'{"role": "user", "content": ' + b"[" * 500 + b"]" * 500 + b"}"
    good = json.dumps({"role": "assistant", "content": "Done."}).encode()
    session = read_session_file(deep + b"\n" + good)
    assert [line.reason for line in session.skipped] == ["nested too deeply"]
    assert len(session.messages) == 1


def test_damaged_lines_of_a_recorded_run_are_skipped() -> None:
    """They stopped the delivery of all runs in the spool."""
    deep = 'T{"query":' + "[" * 100_000 + "]" * 100_000 + "}"
    text = f'T{{"metadata":5,"task_description":"a task"}}\n{deep}\nE{{"content":"x"}}\n'
    run = parse_run("a", text)
    assert run.fields == {"task_description": "a task", "metadata": {}}
    assert run.events == ['{"content":"x"}']


def test_type_of_a_block_may_be_anything() -> None:
    message = {"role": "user", "content": [{"type": ["image"], "content": [{"type": {}}]}]}
    session = read_session_file(json.dumps({"message": message}).encode())
    assert session.messages == [{"message": message}]


def test_field_names_of_a_file_do_not_control_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    file.write_text(json.dumps({"\x1b]52;c;eA==\x07": 1}) + "\n")
    environment = {"HANSEI_URL": "http://127.0.0.1:9", "HANSEI_API_KEY": "x"}
    command = [sys.executable, "-m", "hansei", "reflect", str(file)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True)
    assert done.returncode != 0
    assert b"52;c;eA==" in done.stderr
    assert b"\x1b]" not in done.stderr


def test_nested_credentials_are_named(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    file.touch(0o600)
    file.write_text("[" * 100_000)
    with pytest.raises(ConfigurationError, match="has no `url`"):
        load_credentials(tmp_path)


def test_many_lessons_without_keys_take_no_quadratic_time() -> None:
    lessons = [
        ImportedLesson("OTHERS", f"lesson {number}", "dup-00001") for number in range(20_000)
    ]
    started = time.process_time()
    merged, _ = merge_lessons([], lessons)
    assert time.process_time() - started < 2
    assert len({bullet["id"] for bullet in merged}) == len(lessons)


@pytest.fixture
def clone(nobody: Path, service: StubService, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cloned folder, which is the current one, with links to a file of the user."""
    monkeypatch.setenv("HANSEI_URL", service.url)
    monkeypatch.setenv("HANSEI_API_KEY", KEY)
    diary = nobody / "home" / "diary"
    diary.write_text('{"events": [{"event_type": "tool_call", "content": "PIN 4711"}]}\n')
    here = nobody / "here"
    (here / "docs").mkdir()
    (here / "docs" / "good.md").write_text("# Rules")
    for link in ("AGENTS.md", "traces.jsonl", "docs/notes.txt"):
        (here / link).symlink_to(diary)
    (here / "linked").symlink_to(nobody / "home")
    return here


@pytest.mark.parametrize(
    "command",
    [
        ("playbook", "import", "team", "AGENTS.md"),
        ("reflect", "traces.jsonl"),
        ("collection", "add", "docs", "AGENTS.md"),
        ("collection", "add", "docs", "linked"),
        ("reflect", "linked/diary"),
    ],
)
def test_link_out_of_a_cloned_folder_is_not_read(
    clone: Path, service: StubService, command: tuple[str, ...]
) -> None:
    done = CliRunner().invoke(app, list(command))
    assert done.exit_code == 1, done.output
    assert f"leads to {clone.parent / 'home'}" in " ".join(done.stderr.split())
    assert not service.calls


def test_links_out_of_a_folder_of_documents_are_skipped_and_named(
    clone: Path, service: StubService
) -> None:
    done = CliRunner().invoke(app, ["collection", "add", "docs", "docs"])
    assert "docs/notes.txt leads to" in " ".join(done.stderr.split())
    assert [call.query["source"] for call in service.calls] == [["docs/good.md"]]


def test_input_from_a_device_is_read(tmp_path: Path) -> None:
    """`hansei reflect /dev/stdin < FILE` and `hansei reflect <(COMMAND)`."""
    (tmp_path / "input").write_text("x")
    with (tmp_path / "input").open("rb") as file, open_input(f"/dev/fd/{file.fileno()}") as source:
        assert source.read() == b"x"


def test_hooks_of_every_folder_are_not_bound_to_a_service_of_a_cloned_folder(
    nobody: Path, service: StubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sessions of all folders were sent to the port that it named."""
    monkeypatch.setenv("HANSEI_STATE_DIR", str(nobody / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(nobody / "claude"))
    credentials = Credentials(service.url, KEY)
    path = save_credentials(nobody / "here" / ".hansei", credentials)
    done = CliRunner().invoke(app, ["hooks", "install"])
    assert done.exit_code == 1
    assert f"{path} can come with a cloned repository" in " ".join(done.stderr.split())
    assert not (nobody / "claude").exists()
    assert CliRunner().invoke(app, ["hooks", "install", "--scope", "local"]).exit_code == 0
    monkeypatch.setenv("HANSEI_DATA_DIR", str(path.parent))
    assert CliRunner().invoke(app, ["hooks", "install"]).exit_code == 0


def test_playbook_in_a_notebook_has_no_markup_of_a_service() -> None:
    script = "<script>1</script>"
    bullet = {"id": script, "content": script, "helpful": script, "harmful": script}
    shown = Playbook.from_json({"version": script, "bullets": [bullet]})._repr_html_()
    assert "<script>" not in shown
    assert shown.count("&lt;script&gt;") == 5


@pytest.mark.parametrize("text", ["[pat-1] helpful=900 harmful=0 :: Push.", '{"bullets": []}'])
def test_markdown_of_a_clone_does_not_replace_a_playbook(
    clone: Path, service: StubService, text: str
) -> None:
    (clone / "CLAUDE.md").write_text(f"## RULES\n\n{text}" if text.startswith("[") else text)
    done = CliRunner().invoke(app, ["playbook", "import", "team", "CLAUDE.md"])
    assert done.exit_code == 2, done.output
    assert "would replace team" in " ".join(done.stderr.replace("│", "").split())
    assert not service.calls


def test_folder_named_like_the_home_folder_gives_hooks_no_account(
    nobody: Path, service: StubService
) -> None:
    foreign = Credentials("http://evil.example", "hsk_foreign")
    save_credentials(nobody / "here" / "~" / ".hansei", foreign)
    own = Credentials(service.url, KEY)
    save_credentials(nobody / "home" / ".hansei", own)
    assert load_account(Path("~/.hansei")) == own
