"""The README's tour runs as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.conftest import ROOT, Home, StartUp

README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    """What stands behind `$ ` in the tour, with the lines it goes on in."""
    found: list[str] = []
    for block in re.findall(r"```console\n(.*?)```", README, re.S):
        quoted = block.split("\n")
        command = quoted[0].removeprefix("$ ")
        for line in quoted[1:]:
            if not line.startswith("    "):
                break
            command += "\n" + line
        found.append(command)
    return found


def test_the_tour_runs_as_printed(home: Home, up: StartUp) -> None:
    running = up()
    (home.folder / "examples").symlink_to(ROOT / "examples")
    found = commands()
    assert len(found) == 4
    outputs: list[str] = []
    for command in found:
        options = home.options()
        options["env"]["HANSEI_API_KEY"] = running.told["api_key"]
        options["env"]["HANSEI_URL"] = running.told["url"]
        options["env"]["PATH"] = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        here = command.replace("localhost:8321", running.told["url"].removeprefix("http://"))
        done = subprocess.run(
            ["bash", "-c", here], **options, text=True, capture_output=True, timeout=90
        )
        assert done.returncode == 0, (command, done.stderr)
        outputs.append(done.stdout)
    first, again, search, curl = outputs
    assert "26 new" in first
    assert "26 traces were here already" in again
    assert "strategy" in search
    assert '"engine":"rules"' in curl


def test_the_two_commands_are_what_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {"run", "test"} <= targets
    assert re.findall(r"^make (\w+)", README, re.M)[:2] == ["run", "test"]
