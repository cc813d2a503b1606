"""Spec 2, "Structure": layers, parts that stand alone, one place for what all share (S2.2 to S2.6,
S2.20, S2.40, S2.56, S2.70)."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from fastapi import FastAPI

from apps.memory_api.embeddings.static import StaticEmbedder
from apps.memory_api.memory.find import ALPHA
from apps.memory_api.playbook.hybrid import EmbeddingClient, HybridSearch
from apps.memory_api.playbook.store import PlaybookStore
from apps.memory_api.runtime import Runtime

ROOT = Path(__file__).resolve().parents[2]
OURS = "apps.memory_api"
PLAYBOOK = f"{OURS}.playbook"
PURE = {
    "schemas": set(),
    "keys": set(),
    "hybrid": {"schemas", "sections"},
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


def test_every_folder_and_module_has_its_layer() -> None:
    """One that the contract does not name could import what it likes. `commands` belongs to
    `__main__`."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    named = {name.strip(" ()") for layer in layers for name in layer.split("|")}
    service = ROOT / "apps/memory_api"
    found = {path.parent.name for path in service.glob("*/__init__.py")}
    found |= {path.stem for path in service.glob("*.py")} - {"__init__"}
    assert found - named <= {"commands"}


PLACES = {
    "config": "apps/memory_api/core/settings.py",
    "definitions": "config/sections.yaml",
    "container": "apps/memory_api/runtime.py",
    "exceptions": "apps/memory_api/core/errors.py",
    "schema": "apps/memory_api/core/schemas.py",
    "playbook store": "apps/memory_api/playbook/store.py",
    "hybrid search": "apps/memory_api/playbook/hybrid.py",
    "llm client": "apps/memory_api/llm/client.py",
    "entry point": "apps/memory_api/main.py",
    "server": "apps/memory_api/commands/serve.py",
    "prompts": "prompts/inject.txt",
}
"""Folders of the document, and what became of them."""


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_every_part_has_its_place(place: str) -> None:
    assert (ROOT / place).stat().st_size > 0


def test_what_all_share_is_made_once_and_hangs_on_the_app(app: FastAPI, runtime: Runtime) -> None:
    assert app.state.runtime is runtime
    with pytest.raises(dataclasses.FrozenInstanceError):
        runtime.embedder = None  # type: ignore[misc]


def test_both_legs_of_a_search_weigh_the_same_unless_told() -> None:
    """`alpha` .5; the model is not asked before there is something to search."""
    assert HybridSearch(EmbeddingClient(StaticEmbedder())).alpha == 0.5
    assert ALPHA["minmax"] == 0.5


def test_playbooks_lie_where_the_document_says() -> None:
    assert PlaybookStore().data_dir == Path("data/playbooks")


def test_every_property_has_its_test_by_name_with_100_examples() -> None:
    text = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests/playbook").glob("*.py"))
    for number in range(1, 7):
        mark = rf"# Feature: self-reflection-system, Property {number}: .*\n@settings\((.*)\)\n"
        found = re.findall(mark, text)
        assert found, f"property {number}"
        for given in found:
            assert int(re.findall(r"max_examples=(\d+)", given)[0]) >= 100
