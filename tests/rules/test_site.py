"""The documentation as a site, and the snippets in it."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rules.passages import documents
from tests.rules.sources import ROOT
from tests.support.cases import each_case

SNIPPETS = [
    (path, kind, text)
    for path in documents()
    if path.suffix == ".md"
    for kind, text in re.findall(
        r"^ *```(python|json)\n(.*?)^ *```", path.read_text(encoding="utf-8"), re.S | re.M
    )
]


def dedent(text: str) -> str:
    margin = len(text) - len(text.lstrip(" "))
    return re.sub(rf"^ {{0,{margin}}}", "", text, flags=re.M)


@each_case(("path", "kind", "text"), SNIPPETS)
def test_snippet_is_valid_and_imports_what_exists(path: Path, kind: str, text: str) -> None:
    """Most of them also run: tests/e2e/test_tour.py, tests/sdk/service/test_pages.py."""
    if kind == "json":
        json.loads(dedent(text))
        return
    for node in ast.walk(ast.parse(dedent(text))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (
            "hansei",
            "memory_api",
        ):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                assert hasattr(module, alias.name), alias.name


@pytest.mark.slow
def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("tutorial", "reference/cli", "reference/sdk", "reference/http", "comparison"):
        assert (tmp_path / page / "index.html").is_file(), page
    assert (tmp_path / "llms.txt").is_file()
    assert "client.playbooks.render" in (tmp_path / "reference/sdk/index.html").read_text()
