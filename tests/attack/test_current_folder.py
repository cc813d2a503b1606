"""Programs that are started in a cloned folder import no module of it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hansei.cli.hooks import _hook_command  # pyright: ignore[reportPrivateUsage]
from hansei.coding_agents.hooks import PYTHON_COMMAND
from memory_api.commands.api_processes import HANSEI_COMMAND

MODULES = ("anyio", "hansei", "httpx2", "json", "memory_api", "pickle", "rich", "subprocess")
RUN_ISOLATED = """
import asyncio, os
from memory_api.commands import processes
from memory_api.core.isolated_work import run_isolated
processes._enable_isolation()
assert asyncio.run(run_isolated(os.getpid, 10**9, None)) != os.getpid()
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with modules that the programs import, each of which leaves a mark."""
    folder = tmp_path / "clone"
    folder.mkdir()
    mark = f"open({str(tmp_path / 'executed')!r}, 'a').write(__name__)\n"
    for name in MODULES:
        (folder / f"{name}.py").write_text(mark)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        shlex.split(_hook_command("coding", None, Path("/nowhere"))),
        [*PYTHON_COMMAND, "hooks", "send", "--help"],
        [*HANSEI_COMMAND, "--help"],
        [sys.executable, "-P", "-c", RUN_ISOLATED],
    ],
    ids=["hook", "sender", "server", "isolated process"],
)
def test_no_module_of_the_folder_is_executed(clone: Path, command: list[str]) -> None:
    """A hook of a coding agent runs in the folder of its session: a cloned repository executed
    its own `rich.py` when a session began in it.
    """
    event = {"hook_event_name": "SessionStart", "session_id": "s", "transcript_path": "/x.jsonl"}
    done = subprocess.run(
        command,
        cwd=clone,
        input=json.dumps(event).encode(),
        env=os.environ | {"HOME": str(clone.parent), "XDG_STATE_HOME": str(clone.parent)},
        timeout=60,
        capture_output=True,
        check=False,
    )
    assert not (clone.parent / "executed").exists(), done.stderr
    assert done.returncode == 0, done.stderr
