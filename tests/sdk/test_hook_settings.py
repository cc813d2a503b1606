"""The hooks in the settings of Claude Code: other entries stay, doubtful files are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hansei.cli.main import app
from hansei.coding_agents.hook_settings import EVENTS, install_hooks, uninstall_hooks
from hansei.credentials import Credentials, save_credentials
from hansei.errors import BadRequestError

COMMAND = "/usr/bin/python -m hansei hooks run --playbook coding"
OTHERS = {
    "permissions": {"allow": ["Bash(ls:*)"]},
    "hooks": {
        "UserPromptSubmit": [{"hooks": [{"type": "command", "command": "./ours.sh"}]}],
        "PostToolUse": [
            {"matcher": "Write", "hooks": [{"type": "command", "command": "ruff format"}]}
        ],
        "Stop": [],
    },
    "model": "opus",
}


def test_installing_and_removing_leaves_others_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(OTHERS))
    assert install_hooks(path, COMMAND)
    installed = json.loads(path.read_text())
    assert list(installed) == [*OTHERS]
    assert installed["hooks"]["PostToolUse"] == OTHERS["hooks"]["PostToolUse"]
    assert installed["hooks"]["UserPromptSubmit"][0] == OTHERS["hooks"]["UserPromptSubmit"][0]
    assert {event for event in EVENTS if COMMAND in json.dumps(installed["hooks"][event])} == {
        *EVENTS
    }
    assert not install_hooks(path, COMMAND)
    assert install_hooks(path, COMMAND.replace("coding", "other"))
    assert path.read_text().count("hooks run") == len(EVENTS)
    assert uninstall_hooks(path)
    assert json.loads(path.read_text()) == OTHERS
    assert not uninstall_hooks(path)


def test_hook_beside_ours_in_one_group_stays(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    entries = [{"type": "command", "command": COMMAND}, {"type": "command", "command": "say"}]
    path.write_text(json.dumps({"hooks": {"SessionEnd": [{"hooks": entries}]}}))
    assert uninstall_hooks(path)
    assert json.loads(path.read_text()) == {"hooks": {"SessionEnd": [{"hooks": entries[1:]}]}}


def test_link_and_mode_of_the_file_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "dotfiles.json", tmp_path / "settings.json"
    target.write_text("{}")
    target.chmod(0o600)
    link.symlink_to(target)
    install_hooks(link, COMMAND)
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    assert "hooks run" in target.read_text()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{\n  "model": "opus",\n}', "is not JSON (line "),  # 2 or 3 by Python's version
        ("// mine\n{}", "line 1"),
        ("[]", "not a JSON object"),
        ('{"hooks": []}', "`hooks` that are not an object"),
        ('{"hooks": {"Stop": {}}}', "`hooks.Stop` that is not a list"),
        ('{"model": "a", "model": "b"}', "`model` occurs twice"),
        ("[" * 100_000, "changed safely"),
        ("\x00", "line 1"),
    ],
)
def test_doubtful_file_is_refused_and_unchanged(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    for change in (lambda: install_hooks(path, COMMAND), lambda: uninstall_hooks(path)):
        with pytest.raises(BadRequestError) as refused:
            change()
        assert reason in refused.value.detail
        assert path.read_text() == text


def test_commands_install_show_and_remove(nobody: Path) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["hooks", *arguments])
        return done.exit_code, done.output

    assert run("status")[0] == 1
    save_credentials(nobody / "home" / ".hansei", Credentials("http://127.0.0.1:9", "hsk_home"))
    assert run("install", "--playbook", "it's ours")[0] == 0
    path = nobody / "home" / ".claude" / "settings.json"
    assert (
        "--playbook 'it'\"'\"'s ours'"
        in json.loads(path.read_text())["hooks"]["SessionEnd"][0]["hooks"][0]["command"]
    )
    code, output = run("status")
    assert (code, "5 hooks installed" in output) == (0, True)
    assert run("install", "--scope", "project")[0] == 0
    shared = (nobody / "here" / ".claude" / "settings.json").read_text()
    command = json.loads(shared)["hooks"]["SessionEnd"][0]["hooks"][0]["command"]
    assert command == "hansei hooks run --playbook coding --data-dir ~/.hansei"
    assert run("uninstall")[0] == 0
    assert json.loads(path.read_text()) == {}


def test_settings_that_a_link_puts_elsewhere_are_refused(nobody: Path) -> None:
    mine = nobody / "home" / ".claude" / "settings.json"
    mine.parent.mkdir()
    mine.write_text("{}")
    save_credentials(nobody / "home" / ".hansei", Credentials("http://127.0.0.1:9", "hsk_home"))
    (nobody / "here" / ".claude").symlink_to(mine.parent)
    for command in ("install", "uninstall"):
        done = CliRunner().invoke(app, ["hooks", command, "--scope", "project"])
        assert (done.exit_code, "symbolic link" in done.stderr) == (1, True)
    assert mine.read_text() == "{}"
    linked = nobody / "home" / "dotfiles.json"
    mine.rename(linked)
    mine.symlink_to(linked)  # the user's own link
    assert CliRunner().invoke(app, ["hooks", "install"]).exit_code == 0
    assert "SessionStart" in linked.read_text()
