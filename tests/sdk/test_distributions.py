"""The wheels of `hansei` and `hansei-server`, built from the checkout without a network."""

from __future__ import annotations

import ast
import subprocess
import sys
import sysconfig
import tomllib
from configparser import ConfigParser
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
SDK = ROOT / "sdk"
SERVER_FILES = {
    "memory_api/main.py",
    "memory_api/config/sections.yaml",
    "memory_api/migrations/env.py",
    "memory_api/prompts/retrieval/prompt_block.txt",
}
CLIENT_COMMANDS = ("reflect", "search", "playbook", "proposal", "memory", "trace", "run", "budget")


def build_wheel(project: Path, folder: Path) -> ZipFile:
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    options = ["--no-index", "--disable-pip-version-check", "--wheel-dir", str(folder)]
    done = subprocess.run([*command, *options, str(project)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return ZipFile(wheel)


@pytest.fixture(scope="module")
def sdk_wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    return build_wheel(SDK, tmp_path_factory.mktemp("sdk"))


@pytest.fixture(scope="module")
def server_wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    return build_wheel(ROOT, tmp_path_factory.mktemp("server"))


def metadata_file(wheel: ZipFile, name: str) -> str:
    (path,) = (path for path in wheel.namelist() if path.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def metadata(wheel: ZipFile) -> Message:
    return Parser().parsestr(metadata_file(wheel, "METADATA"))


def requirements(wheel: ZipFile) -> set[str]:
    return {
        line.split(";")[0].strip()
        for line in metadata(wheel).get_all("Requires-Dist", [])
        if "extra ==" not in line
    }


def entry_points(wheel: ZipFile) -> dict[str, dict[str, str]]:
    parser = ConfigParser()
    parser.read_string(metadata_file(wheel, "entry_points.txt"))
    return {section: dict(parser[section]) for section in parser.sections()}


def packages(wheel: ZipFile) -> set[str]:
    return {
        top for name in wheel.namelist() if not (top := name.split("/")[0]).endswith(".dist-info")
    }


def test_sdk_wheel_contains_the_client_only(sdk_wheel: ZipFile) -> None:
    names = set(sdk_wheel.namelist())
    sources = {
        str(path.relative_to(SDK))
        for path in (SDK / "hansei").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == sources
    assert packages(sdk_wheel) == {"hansei"}
    assert "hansei/py.typed" in names
    assert metadata(sdk_wheel)["Name"] == "hansei"
    assert {line.split(">=")[0] for line in requirements(sdk_wheel)} == {
        "httpx2",
        "markdown-it-py",
        "rich",
        "typer",
    }
    assert entry_points(sdk_wheel) == {"console_scripts": {"hansei": "hansei.cli.main:main"}}
    assert "from hansei import Hansei" in str(metadata(sdk_wheel).get_payload())


def test_server_wheel_contains_the_service_and_no_client(server_wheel: ZipFile) -> None:
    assert packages(server_wheel) == {"memory_api"}
    assert set(server_wheel.namelist()) >= SERVER_FILES
    assert metadata(server_wheel)["Name"] == "hansei-server"
    assert set(entry_points(server_wheel)) == {"hansei.commands"}


def test_server_requires_the_client_of_its_own_version(
    sdk_wheel: ZipFile, server_wheel: ZipFile
) -> None:
    version = metadata(sdk_wheel)["Version"]
    assert metadata(server_wheel)["Version"] == version
    assert f"hansei=={version}" in requirements(server_wheel)


def test_both_contain_the_same_license(sdk_wheel: ZipFile, server_wheel: ZipFile) -> None:
    text = (ROOT / "LICENSE").read_text()
    for wheel in (sdk_wheel, server_wheel):
        assert metadata_file(wheel, "licenses/LICENSE") == text
        assert metadata(wheel)["License-Expression"] == "Apache-2.0"


def test_sdk_does_not_import_the_server() -> None:
    files = list((SDK / "hansei").rglob("*.py"))
    assert len(files) > 20
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules: list[str] = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            assert not [name for name in modules if name.split(".")[0] == "memory_api"], path


def test_locks_contain_the_dependencies_of_the_client_and_not_the_client() -> None:
    project = tomllib.loads((SDK / "pyproject.toml").read_text())["project"]
    for lock in ("requirements.lock", "requirements-dev.lock"):
        lines = (ROOT / lock).read_text().splitlines()
        pinned = {line.split("==")[0] for line in lines if "==" in line}
        assert {line.split(">=")[0] for line in project["dependencies"]} <= pinned
        assert not [line for line in lines if "hansei" in line or line.startswith("-e")]


@pytest.fixture(scope="module")
def client_only(sdk_wheel: ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site-packages folder with the wheel of `hansei` and without hansei-server."""
    site = tmp_path_factory.mktemp("site")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "hansei" not in path.name and path.suffix != ".pth":
            (site / path.name).symlink_to(path)
    sdk_wheel.extractall(site)
    return site


def run_client(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python(site, "-m", "hansei", *arguments)


def run_python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # -S leaves out the environment's own site-packages, which contain hansei-server.
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "COLUMNS": "100"},
        cwd=site,
        capture_output=True,
        text=True,
    )


def test_client_works_without_the_server(client_only: Path) -> None:
    shown = run_client(client_only, "--help")
    assert shown.returncode == 0, shown.stderr
    assert all(f" {command} " in shown.stdout for command in CLIENT_COMMANDS)
    assert " serve " not in shown.stdout
    assert run_client(client_only, "--version").stdout.startswith("hansei ")


def test_library_imports_httpx2_and_none_of_the_libraries_of_the_command(client_only: Path) -> None:
    """A program of an agent that records and calls the API pays for `rich` and `typer` only on
    disk."""
    program = """
import sys
from hansei import AsyncHansei, Hansei, flush, tool, trace, traced
import hansei.integrations.model_clients
print(*{name.split(".")[0] for name in sys.modules} - sys.stdlib_module_names)
"""
    done = run_python(client_only, "-c", program)
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split()) - {"__main__"}
    assert imported <= {"hansei", "httpx2", "idna", "typing_extensions"}, imported


@pytest.mark.parametrize("arguments", [["up", "--port", "80"], ["key", "create"], ["top"]])
def test_server_command_without_the_server_says_what_to_install(
    client_only: Path, arguments: list[str]
) -> None:
    done = run_client(client_only, *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"`hansei {arguments[0]}` is part of hansei-server, which is not installed here. "
        "Run it where the service is installed: in a checkout, `.venv/bin/hansei`.\n"
    )
