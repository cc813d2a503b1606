"""Runs proselint on documents and prompts: `python -m tests.rules.prose`, part of `make lint`.

Code, comments and addresses are blanked first. `.proselintrc.json` selects the checks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from proselint.checks import __register__
from proselint.config import DEFAULT, Config
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

from tests.rules.passages import Passage, documents, prompts, prose
from tests.rules.sources import ROOT

CONFIG = ROOT / ".proselintrc.json"


def problems(paths: list[Path], config: Config) -> list[str]:
    """One line for each problem that proselint finds."""
    found: list[str] = []
    for path in paths:
        text = prose(path.read_text(encoding="utf-8"))
        name = Passage(path, 1, text).name
        for result in LintFile(name, text).lint(config):
            check, (line, column) = result.check_result, result.pos
            found.append(f"{name}:{line}:{column}: {check.check_path}: {check.message}")
    return found


def load_config() -> Config:
    ours = json.loads(CONFIG.read_text(encoding="utf-8"))
    return Config(max_errors=ours["max_errors"], checks=DEFAULT["checks"] | ours["checks"])


def main() -> int:
    """Print all problems. Returns 1 if there are any."""
    CheckRegistry().register_many(__register__)
    found = problems([*documents(), *prompts()], load_config())
    for problem in found:
        print(problem)  # noqa: T201
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
