"""The project's own source files, for rules that are kept by reading them."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT

CODE = ("apps", "sdk", "migrations")


@cache
def tracked() -> list[Path]:
    """Every file under version control that is still there; skipped by name without git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def files(*folders: str, suffix: str) -> list[Path]:
    """Files of the working tree, tracked or not."""
    return sorted(p for folder in folders for p in (ROOT / folder).rglob(f"*{suffix}"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def calls(node: ast.AST, name: str) -> list[ast.Call]:
    """Calls of the plain function `name` under a node."""
    return [
        inner
        for inner in ast.walk(node)
        if isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Name)
        and inner.func.id == name
    ]
