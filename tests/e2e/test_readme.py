"""The README's tour runs as printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from hansei import Hansei
from tests.e2e.conftest import Up
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PLAYBOOKS = (ROOT / "docs/playbooks.md").read_text(encoding="utf-8")

NEW = {"reflection": r"(\d+) new reflections?\b", "strategy": r"(\d+) new strateg(?:y|ies)\b"}
"""How `hansei reflect` says how many rows of a kind it brought about."""


def tour() -> list[str]:
    """The shell commands of the tour in their order: what stands behind `$ ` with the lines it goes
    on in, and programs as they are.
    """
    found: list[str] = []
    for kind, block in re.findall(r"```(console|python)\n(.*?)```", README, re.S):
        if kind == "python":
            found.append(f"python - <<'END'\n{block}END")
            continue
        command, *rest = block.split("\n")
        more = takewhile(lambda line: line.startswith("    "), rest)
        found.append("\n".join([command.removeprefix("$ "), *more]))
    return found


def test_readme_tour_runs_as_printed(running: Up) -> None:
    """As a tenant that has no data yet."""
    (running.home.folder / "examples").symlink_to(ROOT / "examples")
    assert running.home.run("tenant", "create", "tour", capture_output=True).returncode == 0
    new_key = ("key", "create", "--tenant", "tour", "--scope", "admin", "--json")
    key = json.loads(running.home.run(*new_key, capture_output=True).stdout)["key"]
    access = {"HANSEI_API_KEY": key, "HANSEI_URL": running.told["url"]}
    programs = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    home = replace(running.home, extra=access | programs)

    def run(command: str) -> str:
        here = command.replace("localhost:8321", running.told["url"].removeprefix("http://"))
        done = subprocess.run(
            ["bash", "-c", here], **home.options(), text=True, capture_output=True, timeout=90
        )
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    send, *others = tour()
    first = run(send)
    assert "26 new" in first
    with Hansei(running.told["url"], key) as hansei:
        learned = {
            kind: sum(
                len(list(hansei.list_memories(kind=[kind], status=status)))
                for status in ("active", "quarantined")  # some await confirmation
            )
            for kind in NEW
        }
    assert learned == {kind: int(re.findall(words, first)[0]) for kind, words in NEW.items()}

    for program in re.findall(r"```python\n(.*?)```", PLAYBOOKS, re.S):
        assert "'import'" in run(f"python - <<'END'\n{program}END")

    again, shown, block, program, search, curl = map(run, others)
    assert "26 traces are already stored" in again
    assert shown.startswith("support · version ")
    assert re.search(r"^[a-z]+-\d{5}$", shown, re.M)
    assert re.search(r"\[[a-z]+-\d{5}\]", block)
    assert program.startswith("evaluate done\nreflect done\n")
    assert "strategy" in search
    assert '"engine":"rules"' in curl


def test_readme_commands_are_in_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {"run", "test"} <= targets
    assert re.findall(r"^make (\w+)", README, re.M)[:2] == ["run", "test"]
