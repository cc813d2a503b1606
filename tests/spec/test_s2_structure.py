"""Spec 2, "Structure": layers, parts that stand alone, and nothing of the outside in them (S2.2 to
S2.4, S1.5)."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = "apps.memory_api"
PLAYBOOK = f"{OURS}.playbook"
PURE = {
    "schemas": set(),
    "keys": set(),
    "hybrid": {"schemas"},
    "store": {"schemas"},
    "citations": {"keys"},
    "tags": set(),
    "sections": set(),
    "deltas": {"keys", "schemas", "sections", "state"},
}
"""Files of the playbook that can be taken elsewhere, and what of ours they need."""


def imported(path: Path) -> set[str]:
    """Modules of ours that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name == OURS or name.startswith(f"{OURS}.")}


@pytest.mark.parametrize(("name", "needs"), PURE.items())
def test_pure_parts_need_their_models_alone(name: str, needs: set[str]) -> None:
    found = imported(ROOT / "apps/memory_api/playbook" / f"{name}.py")
    assert found <= {f"{PLAYBOOK}.{need}" for need in needs}


def test_imports_go_down_only() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_folder_has_its_layer() -> None:
    """A folder that the contract does not name could import what it likes. `commands` belongs to
    `__main__`."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    named = {name.strip(" ()") for layer in layers for name in layer.split("|")}
    folders = {path.parent.name for path in (ROOT / "apps/memory_api").glob("*/__init__.py")}
    assert folders - named <= {"commands"}
