"""Folders, files and names of the service: what each kind of file holds, and what names are made
of."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_api.analytics.questions import Question
from tests.rules.sources import files, name_of, tree
from tests.support.cases import each_case
from tests.support.paths import ROOT

SERVICE = ROOT / "apps/memory_api"
MODULES = [path for path in files("apps", suffix=".py") if path.stem != "__init__"]
TESTS = ROOT / "tests"

VOCABULARY = {
    "router",
    "schemas",
    "tables",
    "queries",
    "deps",
    "errors",
    "context",
    "step",
    "generate",
    "prompt",
    "model_output",
    "rules",
    "port",
    "registry",
}
"""Names of files that mean the same in every folder. Every other name occurs once."""

PROVIDERS = {"openai", "anthropic", "fastembed", "static"}
"""One file for each implementation of a port, in a folder `providers`."""

DRIVERS = ("sqlalchemy", "asyncpg", "httpx2")
NEVER_IMPORTED = {
    "router": ("asyncpg", "sqlalchemy"),
    "schemas": (*DRIVERS, "openai", "anthropic"),
    "prompt": DRIVERS,
    "model_output": DRIVERS,
    "generate": (*DRIVERS, "fastapi"),
    "rules": (*DRIVERS, "memory_api.llm"),
    "context": ("memory_api.llm.registry", "fastapi"),
    "step": ("fastapi",),
    "queries": ("fastapi",),
    "tables": ("fastapi",),
}
"""What the files of a name never need: a router sends no SQL, rules ask no model, …"""

IN_FUNCTIONS = {
    "collections/extraction.py": "the PDF parser, which takes 13 MB, with the first PDF",
    "commands/database.py": "SQLAlchemy, without which `hansei up` starts",
    "mcp_endpoint.py": "the MCP library, which loads with the first request",
}
"""Modules that import inside a function, and why. Providers are imported by name."""

SQL_FILES = {
    "analytics/questions.sql",
    "budgets/queries.sql",
    "commands/doctor.sql",
    "core/after_commit.sql",
    "core/catalog.sql",
    "curation/queries.sql",
    "demo/demo.sql",
    "demo/statements.sql",
    "distribution/distribution.sql",
    "embedded/superuser.sql",
    "erasures/erasures.sql",
    "evaluation/queries.sql",
    "grace/queries.sql",
    "maintenance/maintenance.sql",
    "memories/index/index.sql",
    "memories/queries.sql",
    "playbooks/queries.sql",
    "reflection/batches/queries.sql",
    "reflection/context.sql",
    "reflection/credit/credit.sql",
    "run_queue/queue.sql",
    "runs/queries.sql",
    "tenants/queries.sql",
    "traces/storage.sql",
}

CROSS_CUTTING = {
    "bench",
    "deploy",
    "attack",
    "e2e",
    "faults",
    "migrations",
    "observability",
    "plans",
    "rules",
    "sdk",
    "spec",
    "support",
}
"""Folders of tests that belong to no one folder of the service."""


def inside(path: Path) -> str:
    return path.relative_to(SERVICE).as_posix()


def imported(path: Path) -> set[str]:
    """Every module that a file imports, and the names it imports from packages."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def for_types_alone(name: str) -> bool:
    """A session in a signature is no statement."""
    return name.startswith("sqlalchemy.ext.asyncio")


@each_case("name", NEVER_IMPORTED)
def test_file_of_vocabulary_imports_only_what_it_needs(name: str) -> None:
    paths = [
        path for path in MODULES if path.stem == name or (name, path.parent.name) == (name,) * 2
    ]
    assert paths
    for path in paths:
        used = {module for module in imported(path) if module.startswith(NEVER_IMPORTED[name])}
        used = {module for module in used if not for_types_alone(module)}
        assert not used - {"sqlalchemy"}, (inside(path), used)


def test_router_runs_no_statement() -> None:
    for path in (path for path in MODULES if path.stem == "router"):
        called = {
            node.func.attr
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        assert not called & {"execute", "scalar", "scalars", "commit", "rollback"}, path


def test_tables_hold_no_code_that_waits() -> None:
    for path in (path for path in MODULES if path.stem in {"tables", "schemas"}):
        assert not [n for n in ast.walk(tree(path)) if isinstance(n, ast.AsyncFunctionDef)], path


def test_file_name_outside_vocabulary_is_unique() -> None:
    stems = Counter(
        path.stem
        for path in MODULES
        if path.stem not in PROVIDERS or path.parent.name != "providers"
    )
    repeated = {stem for stem, count in stems.items() if count > 1}
    assert repeated <= VOCABULARY


def test_public_class_name_is_unique() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(inside(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_import_inside_function_is_on_list() -> None:
    found = {
        inside(path)
        for path in MODULES
        for function in ast.walk(tree(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert found == set(IN_FUNCTIONS)


def test_sql_files_are_on_list() -> None:
    assert {inside(path) for path in files("apps", suffix=".sql")} == SQL_FILES


@each_case("file", sorted(SQL_FILES))
def test_every_named_statement_is_used(file: str) -> None:
    """A block that no module loads is dead; a block without a name cannot be loaded."""
    text = (SERVICE / file).read_text(encoding="utf-8")
    assert text.startswith("-- name: ")
    names = re.findall(r"^-- name: (\w+)$", text, re.MULTILINE)
    assert len(names) == len(set(names))
    if file == "analytics/questions.sql":
        assert names == [question.value for question in Question]
        return
    loaded = {
        name
        for path in MODULES
        for loader, name in re.findall(
            r'(?:read_sql|load_statement)\(\s*"([^"]+)",\s*"(\w+)"',
            path.read_text(encoding="utf-8"),
        )
        if loader == file
    }
    assert loaded == set(names)


def folders_of_tests() -> Iterator[str]:
    for path in sorted(TESTS.rglob("test_*.py")):
        folder = path.parent.relative_to(TESTS)
        if folder.parts and folder.parts[0] not in CROSS_CUTTING:
            yield folder.as_posix()


@each_case("folder", sorted(set(folders_of_tests())))
def test_folder_of_tests_mirrors_service(folder: str) -> None:
    assert (SERVICE / folder).is_dir() or (SERVICE / f"{folder}.py").is_file()


def test_file_of_tests_is_in_folder() -> None:
    assert [path.name for path in TESTS.glob("test_*.py")] == []


METAPHORS = {
    "aside",
    "attend",
    "away",
    "beside",
    "bring",
    "forget",
    "gone",
    "joke",
    "leash",
    "lot",
    "manner",
    "mend",
    "mind",
    "pupil",
    "roll",
    "rolls",
    "settled",
    "stand",
    "tell",
    "told",
    "touch",
    "turn",
    "witness",
    "wreck",
}
TERMS = {
    "roll_back",
    "turns",
}
"""Standard terms that hold one of these words."""


def words_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def names_of(path: Path) -> set[str]:
    """The file's own name, and the functions and classes that it defines."""
    defined = {
        node.name
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    return {path.stem, path.parent.name, *defined} - TERMS


@pytest.mark.parametrize("folder", ["apps", "sdk"])
def test_name_is_no_metaphor(folder: str) -> None:
    found = {
        f"{name_of(path)}: {name}"
        for path in files(folder, suffix=".py")
        for name in names_of(path)
        if words_of(name) & METAPHORS
    }
    assert found == set()


def test_name_of_test_file_is_no_metaphor() -> None:
    found = {path.stem for path in files("tests", suffix=".py") if words_of(path.stem) & METAPHORS}
    assert found == set()


def test_metaphors_are_found() -> None:
    assert words_of("set_aside") & METAPHORS
    assert words_of("AsideMemory") & METAPHORS
    assert not words_of("roller") & METAPHORS
