"""The tour of docs/tutorial.md runs as printed, and prints what the page shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from uuid import uuid4

from hansei import Hansei
from hansei.recording.advice import MAX_WAIT_SECONDS
from tests.e2e.conftest import INSTALLED, Up, until
from tests.sdk.stub_service import KEY, Call, Reply, StubService
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
TOUR = PAGE.split("<!-- tour:")[1].split("<!-- end of the tour -->")[0]
NEW = {"reflection": r"(\d+) new reflections?\b", "strategy": r"(\d+) new strateg(?:y|ies)\b"}
"""How `hansei reflect` states how many memories of a kind are new."""


@dataclass(frozen=True)
class Block:
    """A shell command of the tour, with the output that the page shows."""

    command: str
    output: str


def blocks() -> list[Block]:
    """The blocks in their order. A command begins with `$ ` and continues on indented lines."""
    found: list[Block] = []
    for kind, block in re.findall(r"```(console|python)\n(.*?)```", TOUR, re.S):
        if kind == "python":
            found.append(Block(f"python - <<'END'\n{block}END", ""))
            continue
        first, *rest = block.splitlines()
        more = list(takewhile(lambda line: line.startswith("    "), rest))
        command = "\n".join([first.removeprefix("$ "), *more])
        found.append(Block(command, "\n".join(rest[len(more) :])))
    return found


def normalized(text: str) -> str:
    """Without line breaks, and with one name for every bullet: parallel curations issue the keys of
    new bullets in any order.
    """
    return re.sub(r"\b[a-z]{3}-\d{5}\b", "KEY", " ".join(text.split()))


def shows(page: str, output: str) -> bool:
    """Whether the output has what the page shows, in this order; `…` is any text."""
    parts = [re.escape(part.strip()) for part in normalized(page).split("…")]
    return re.search(".*".join(parts), normalized(output)) is not None


def test_tour_runs_as_printed(running: Up) -> None:
    """As a tenant that has no data yet."""
    (running.home.folder / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "traces.jsonl", running.home.folder / "examples")
    assert running.home.run("tenant", "create", "tour", capture_output=True).returncode == 0
    new_key = ("key", "create", "--tenant", "tour", "--scope", "admin", "--json")
    key = json.loads(running.home.run(*new_key, capture_output=True).stdout)["key"]
    access = {"HANSEI_API_KEY": key, "HANSEI_URL": running.told["url"]}
    programs = {"PATH": f"{Path(INSTALLED or sys.executable).parent}:/usr/bin:/bin"}
    home = replace(running.home, extra=access | programs)

    def run(block: Block) -> str:
        done = subprocess.run(
            ["bash", "-c", block.command],
            **home.options(),
            text=True,
            capture_output=True,
            timeout=90,
        )
        assert done.returncode == 0, (block.command, done.stderr)
        return done.stdout

    *first, program, shown = blocks()
    for block in first:
        output = run(block)
        assert shows(block.output, output), (block, output)
    with Hansei(running.told["url"], key) as hansei:
        learned = {
            kind: sum(
                len(list(hansei.memories.list(kind=[kind], status=status)))
                for status in ("active", "quarantined")  # some await confirmation
            )
            for kind in NEW
        }
    stated = {kind: int(re.findall(words, first[0].output)[0]) for kind, words in NEW.items()}
    assert learned == stated

    before = run(shown)
    run(program)
    until(lambda: shows(shown.output, run(shown)), "a counter that moved")
    assert not shows(shown.output, before)


class BusyService(StubService):
    """Takes longer than an agent waits for its advice by default."""

    def respond(self, call: Call) -> Reply:
        if not call.path.endswith("/render"):
            return super().respond(call)
        time.sleep(1.2 * MAX_WAIT_SECONDS)
        advice = {"text": "[pat-00001] Correct the amount.", "bullet_keys": ["pat-00001"]}
        return 200, advice | {"retrieval_id": str(uuid4())}


def test_script_gets_its_advice_from_a_busy_service(tmp_path: Path) -> None:
    *_, program, _ = blocks()
    with BusyService() as service:
        access = {"HANSEI_URL": service.url, "HANSEI_API_KEY": KEY, "PYTHONPATH": f"{ROOT / 'sdk'}"}
        programs = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
        subprocess.run(["bash", "-c", program.command], env=access | programs, check=True)
        outcomes = Counter(trace["outcome"] for trace in service.traces.values())
    assert outcomes == {"success": 4, "failure": 4}


def test_other_outputs_are_found() -> None:
    assert shows("26 traces in … s: 26 new", "26 traces in 4.1 s: 26\nnew")
    assert not shows("26 traces in … s: 26 new", "26 traces in 4.1 s: 25 new")
    assert shows("pat-00003 · 1 helpful", "mis-00001 · 1 helpful")
    assert not shows("pat-00003 · 1 helpful", "pat-00003")


def test_readme_commands_are_in_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {"run", "test"} <= targets
    assert re.findall(r"^make (\w+)", README, re.M)[:2] == ["run", "test"]
