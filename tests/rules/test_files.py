"""What files may be like."""

from __future__ import annotations

import re
from pathlib import Path

from tests.rules.sources import files, name_of, tracked
from tests.support.cases import each_case
from tests.support.paths import ROOT

LIMIT = 400
GENERATED = {
    f"sdk/hansei/{name}.py" for name in ("models", "params", "resources", "async_resources")
}
"""`make client` writes them."""

NAMES = {"utils", "util", "helpers", "helper", "manager", "managers", "common", "misc", "enhanced"}
OPEN_PORTS = {"sdk/hansei/__init__.py"}
PLACES = re.compile(r"(?<![\w.~/])/(?:work|home|Users|root|mnt|private)/[\w.]+")
EXAMPLES = re.compile(r"/home/(?:hansei|user|you|me|alice|agent)\b")
"""Paths that stand in examples and belong to nobody's machine."""

REGISTRY = re.compile(r"https?://|--(extra-)?index-url|--find-links|--trusted-host|pypi\.|simple/")


def texts() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for path in tracked():
        raw = path.read_bytes()
        if b"\0" not in raw[:8000]:
            found.append((name_of(path), raw.decode("utf-8", "replace")))
    return found


def python_files() -> list[Path]:
    return files("apps", "sdk", suffix=".py")


@each_case("name", ["uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock"])
def test_only_one_kind_of_lock_file(name: str) -> None:
    assert not [path for path in tracked() if path.name == name]


def test_locks_name_no_registry() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / name).read_text()
        assert "--hash=sha256:" in text
        assert not REGISTRY.search(text), name


def test_no_path_of_a_machine_is_in_a_file() -> None:
    found = [
        f"{name}: {match[0]}"
        for name, text in texts()
        for match in PLACES.finditer(text)
        if not EXAMPLES.match(match[0]) and name not in MEANT
    ]
    assert found == []


MEANT = {
    "examples/traces.jsonl": "real traces of other people's machines, kept as they are",
    "tests/recordings/curation/recordings.jsonl": "prompts that quote such traces",
    "tests/rules/test_files.py": "says what is looked for",
}


def test_files_are_short() -> None:
    lines = {name_of(path): len(path.read_text().splitlines()) for path in python_files()}
    assert {
        name: count for name, count in lines.items() if count > LIMIT and name not in GENERATED
    } == {}


def test_no_meaningless_module_names() -> None:
    for path in python_files():
        assert not NAMES & {path.stem, path.parent.name}, name_of(path)
        assert not re.search(r"_v\d+$", path.stem), name_of(path)


def test_package_init_files_are_empty() -> None:
    for path in python_files():
        if path.name == "__init__.py" and name_of(path) not in OPEN_PORTS:
            assert path.read_text() == "", name_of(path)


def test_commands_print_through_the_terminal_module() -> None:
    """It replaces what would control the terminal: names and traces are text of others."""
    for folder in ("apps/memory_api/commands", "sdk/hansei/cli"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not re.search(r"\becho\(|^\s*print\(", path.read_text(), re.M), name_of(path)
