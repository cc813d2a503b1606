"""The hooks of Claude Code against the service: advice, transcripts, and a service that is away."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from hansei import Hansei
from hansei.cli import hooks
from hansei.cli.main import app
from hansei.coding_agents.hook_settings import installed_events, settings_path
from hansei.coding_agents.session_store import SessionStore
from hansei.credentials import Credentials, save_credentials
from tests.conftest import TestTenant
from tests.sdk.stub_service import StubService

RULE = "Run the tests of a module before you change it."


@pytest.fixture
def hansei(
    live: str, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Hansei]:
    """A client of the service that the hooks use. They send in this process, not in another."""
    monkeypatch.setenv("HANSEI_URL", live)
    monkeypatch.setenv("HANSEI_API_KEY", tenant.keys["write"])
    monkeypatch.setenv("HANSEI_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setattr(hooks, "start_sender", send_now)
    run("install")
    with Hansei() as client:
        client.playbooks.apply_deltas(
            "coding", [{"type": "ADD", "section": "OTHERS", "content": RULE}]
        )
        yield client


def run(*arguments: str, event: Any = None) -> str:
    text = event if isinstance(event, str) else json.dumps(event)
    done = CliRunner().invoke(app, ["hooks", *arguments], input="" if event is None else text)
    assert done.exit_code == 0, done.output
    return done.stdout


def send_now(data_dir: Path) -> None:
    run("send", "--quiet", "--data-dir", str(data_dir))


def installed_options() -> list[str]:
    """The options of the installed command."""
    command = installed_events(settings_path("user", Path.cwd()))["SessionStart"]
    words = shlex.split(command)
    return words[words.index("run") + 1 :]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path / "session.jsonl")


class Session:
    """A session file that grows."""

    def __init__(self, path: Path) -> None:
        self.path, self.id = path, str(uuid4())
        self.lines: list[str] = []

    def say(self, role: str, text: str, **more: Any) -> None:
        message = {"role": role, "content": text}
        entry = {"type": role, "sessionId": self.id, "uuid": str(uuid4()), "message": message}
        self.write(json.dumps(entry | more) + "\n")

    def write(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def hook(self, name: str, **more: Any) -> str:
        event = {"hook_event_name": name, "session_id": self.id, "transcript_path": str(self.path)}
        return run("run", *installed_options(), event=event | more)


def sent(hansei: Hansei) -> list[list[str]]:
    """The texts of each stored transcript, oldest first."""
    traces = list(hansei.traces.list())
    return [
        [event.content for event in hansei.traces.events.list(trace.id)]
        for trace in reversed(traces)
    ]


def test_session_gets_each_bullet_once(hansei: Hansei, session: Session) -> None:
    output = json.loads(session.hook("SessionStart", source="startup"))["hookSpecificOutput"]
    assert output["hookEventName"] == "SessionStart"
    assert RULE in output["additionalContext"]
    assert session.hook("UserPromptSubmit", prompt="Change the module of tests") == ""
    hansei.playbooks.apply_deltas(
        "coding", [{"type": "ADD", "section": "OTHERS", "content": "Tests first."}]
    )
    assert "Tests first." in session.hook("UserPromptSubmit", prompt="Change the tests")
    assert RULE in session.hook("SessionStart", source="compact")


def test_each_message_is_sent_once(hansei: Hansei, session: Session) -> None:
    session.hook("SessionStart", source="startup")
    session.say("user", "Change the parser.")
    session.say("assistant", "I ran the tests first [oth-00001].")
    session.hook("PreCompact", trigger="auto")
    session.hook("PreCompact", trigger="auto")
    session.say("user", "Now the lexer.")
    session.say("assistant", "Searching.", isSidechain=True, agentId="a1")
    session.hook("SubagentStop")
    session.say("assistant", "Done.")
    session.write('{"type": "assistant", "message": {"ro')
    session.hook("SessionEnd", reason="exit")
    session.hook("SessionEnd", reason="exit")
    assert sent(hansei) == [
        ["Change the parser.", "I ran the tests first [oth-00001]."],
        ["Searching."],
        ["Now the lexer.", "Done."],
    ]
    (first, *_) = reversed(list(hansei.traces.list()))
    assert (first.session_id, first.playbook) == (session.id, "coding")


def test_sub_agent_with_its_own_file(hansei: Hansei, session: Session, tmp_path: Path) -> None:
    own = Session(tmp_path / "agent-a1.jsonl")
    own.say("assistant", "Found it.", isSidechain=True)
    session.hook("SubagentStop", agent_transcript_path=str(own.path))
    assert sent(hansei) == [["Found it."]]


def test_service_that_is_away_loses_nothing(
    hansei: Hansei, session: Session, monkeypatch: pytest.MonkeyPatch, live: str
) -> None:
    monkeypatch.setenv("HANSEI_URL", "http://127.0.0.1:9")
    run("install")
    session.say("assistant", "Done.")
    assert session.hook("SessionStart") == ""
    session.hook("SessionEnd")
    store = SessionStore()
    assert len(store.waiting()) == 1
    assert "cannot be reached" in (store.last_error() or "")
    assert oct(store.waiting()[0].stat().st_mode)[-3:] == "600"
    monkeypatch.setenv("HANSEI_URL", live)
    run("install")
    run("send")
    assert sent(hansei) == []  # it belongs to the other service
    assert len(store.waiting()) == 1


def test_busy_service_is_tried_later(
    hansei: Hansei, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The range is written before it is sent, so a killed sender repeats it without effect."""
    monkeypatch.setattr(hooks, "start_sender", lambda _: None)
    session.say("assistant", "Done.")
    session.hook("SessionEnd")
    (waiting,) = SessionStore().waiting()
    copy = waiting.read_bytes()
    assert "1 transcript sent, 0 left" in run("send")
    waiting.write_bytes(copy)
    run("send")
    assert sent(hansei) == [["Done."]]


def test_other_key_does_not_send_it(
    hansei: Hansei, session: Session, monkeypatch: pytest.MonkeyPatch, tenant: TestTenant
) -> None:
    monkeypatch.setattr(hooks, "start_sender", lambda _: None)
    session.say("assistant", "Secret of the first tenant.")
    session.hook("SessionEnd")
    monkeypatch.setenv("HANSEI_API_KEY", tenant.keys["admin"])
    run("install")
    assert "0 transcripts sent, 1 left" in run("send")


@pytest.mark.parametrize("source", ["file", "data directory", "environment"])
def test_session_in_a_cloned_folder_uses_the_account_of_the_installation(
    hansei: Hansei,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    service: StubService,
    source: str,
) -> None:
    """A cloned repository has files, and its settings can give the session variables."""
    folder = tmp_path / "clone"
    save_credentials(folder / ".hansei", Credentials(service.url, "hsk_foreign"))
    monkeypatch.chdir(folder)
    monkeypatch.delenv("HANSEI_URL")
    if source == "environment":
        monkeypatch.setenv("HANSEI_URL", service.url)
    if source == "data directory":
        monkeypatch.setenv("HANSEI_DATA_DIR", str(folder / ".hansei"))
    assert RULE in session.hook("SessionStart", source="startup")
    session.say("assistant", "Secret of the session.")
    session.hook("SessionEnd")
    assert service.calls == []
    assert sent(hansei) == [["Secret of the session."]]


def test_hooks_need_an_account(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSEI_STATE_DIR", str(nobody / "state"))
    monkeypatch.setenv("HANSEI_URL", "http://127.0.0.1:9")
    done = CliRunner().invoke(app, ["hooks", "install"])
    assert "HANSEI_API_KEY" in done.stderr
    event = {"hook_event_name": "SessionEnd", "transcript_path": str(nobody)}
    assert run("run", event=event) == ""
    assert "hansei hooks install" in (SessionStore().last_error() or "")


@pytest.mark.parametrize("event", ["", "{", "[]", '"x"', '{"hook_event_name": "SessionEnd"}'])
def test_input_that_is_no_event_never_fails(hansei: Hansei, event: str) -> None:
    done = CliRunner().invoke(app, ["hooks", "run", *installed_options()], input=event)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr


def test_closed_standard_input_never_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    hooks.run_hook()


def test_bootstrap_sends_past_sessions_once(
    hansei: Hansei, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in str(tmp_path))
    folder = tmp_path / "claude" / "projects" / name
    folder.mkdir(parents=True)
    for number in (1, 2):
        past = Session(folder / f"{number}.jsonl")
        past.say("user", f"Task {number}.")
        past.say("assistant", f"Done {number}.")
    result = bootstrap("--json", "--no-wait")
    assert (result["sessions"], result["transcripts"], len(result["run_ids"])) == (2, 2, 2)
    assert bootstrap("--json", "--no-wait")["transcripts"] == 0
    assert sorted(sent(hansei)) == [["Task 1.", "Done 1."], ["Task 2.", "Done 2."]]
    assert CliRunner().invoke(app, ["bootstrap", "--directory", "absent"]).exit_code == 1


def bootstrap(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["bootstrap", *arguments])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)
