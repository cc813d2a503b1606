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

from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.library.hybrid_search import EmbeddingClient, HybridSearch
from memory_api.library.playbook_store import PlaybookStore
from memory_api.memories.search.query import DEFAULT_ALPHA
from memory_api.runtime import Runtime
from tests.support.cases import each_case
from tests.support.paths import ROOT

OURS = "memory_api"
SERVICE = ROOT / "apps/memory_api"
PURE = {
    "playbooks/models.py": set(),
    "playbooks/sections.py": {"core.errors", "core.resources", "core.settings"},
    "playbooks/state.py": {"playbooks.models", "playbooks.sections"},
    "playbooks/citations.py": {"playbooks.models"},
    "playbooks/deltas.py": {
        "core.errors",
        "playbooks.models",
        "playbooks.sections",
        "playbooks.state",
    },
    "library/hybrid_search.py": {
        "core.settings",
        "core.telemetry",
        "library.blocking",
        "playbooks.models",
        "playbooks.sections",
    },
    "library/playbook_store.py": {
        "core.settings",
        "playbooks.formats.document",
        "playbooks.models",
    },
}
"""Modules that can be used without the service, and the modules of the service they import."""


def imported(path: Path) -> set[str]:
    """Modules of ours that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name == OURS or name.startswith(f"{OURS}.")}


@each_case(("name", "needs"), PURE.items())
def test_pure_modules_import_only_their_models(name: str, needs: set[str]) -> None:
    assert imported(SERVICE / name) == {f"{OURS}.{need}" for need in needs}


LOADED = """
import sys, {module}
ours = [name for name in sys.modules if name.startswith("memory_api.")]
others = {{"fastapi", "starlette", "asyncpg", "openai", "anthropic"}} & set(sys.modules)
print(len(ours), *others)
"""


@each_case("name", PURE)
def test_pure_modules_load_little(name: str) -> None:
    module = f"{OURS}.{name.removesuffix('.py').replace('/', '.')}"
    command = [sys.executable, "-c", LOADED.format(module=module)]
    loaded = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    count, *others = loaded.stdout.split()
    assert others == []
    assert int(count) <= 20


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
    found = {path.parent.name for path in SERVICE.glob("*/__init__.py")}
    found |= {path.stem for path in SERVICE.glob("*.py")} - {"__init__"}
    assert found - named <= {"commands"}


PLACES = {
    "config": "apps/memory_api/core/settings.py",
    "definitions": "config/sections.yaml",
    "container": "apps/memory_api/runtime.py",
    "exceptions": "apps/memory_api/core/errors.py",
    "schema": "apps/memory_api/core/schemas.py",
    "playbook store": "apps/memory_api/library/playbook_store.py",
    "hybrid search": "apps/memory_api/library/hybrid_search.py",
    "llm client": "apps/memory_api/library/llm_client.py",
    "entry point": "apps/memory_api/main.py",
    "server": "apps/memory_api/commands/processes.py",
    "prompts": "prompts/retrieval/prompt_block.txt",
}
"""Folders of the document, and what became of them."""


@each_case("place", PLACES.values())
def test_every_documented_part_exists(place: str) -> None:
    assert (ROOT / place).stat().st_size > 0


def test_runtime_is_created_once_and_stored_on_app(app: FastAPI, runtime: Runtime) -> None:
    assert app.state.runtime is runtime
    with pytest.raises(dataclasses.FrozenInstanceError):
        runtime.default_embedder = None  # type: ignore[misc]


def test_search_legs_have_equal_default_weight() -> None:
    """`alpha` .5; the model is not asked before there is something to search."""
    assert HybridSearch(EmbeddingClient(StaticEmbedder())).alpha == 0.5
    assert DEFAULT_ALPHA["minmax"] == 0.5


def test_default_playbook_directory() -> None:
    assert PlaybookStore().data_dir == Path("data/playbooks")


def test_every_property_has_its_test_by_name_with_100_examples() -> None:
    text = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    for number in range(1, 7):
        mark = rf"# Feature: self-reflection-system, Property {number}: .*\n@settings\((.*)\)\n"
        found = re.findall(mark, text)
        assert found, f"property {number}"
        for given in found:
            assert int(re.findall(r"max_examples=(\d+)", given)[0]) >= 100
