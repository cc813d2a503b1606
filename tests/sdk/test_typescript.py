"""The TypeScript client: its types are current, its README compiles, its tests pass."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "sdk/typescript"
MODULES = CLIENT / "node_modules"
AGENT = """declare function runAgent(
  task: string, advice: string, tools: unknown[]
): Promise<string>;
"""
"""Used in the README, not part of the client."""


def test_types_are_generated_from_the_current_document() -> None:
    noted = re.search(r"openapi\.json sha256: (\w+)", (CLIENT / "src/schema.ts").read_text())
    current = hashlib.sha256((ROOT / "openapi.json").read_bytes()).hexdigest()
    assert noted, "src/schema.ts has no hash"
    assert noted[1] == current, "run `npm install` and `npm run generate` in sdk/typescript"


def test_client_compiles_and_its_tests_pass(live: str, tenant: Any, tmp_path: Path) -> None:
    """One build in a copy, with the snippets of the README, then `node --test` against the stub
    server of the tests and the real service.
    """
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    manifest = json.loads((CLIENT / "package.json").read_text())
    if not all((MODULES / name).is_dir() for name in manifest["devDependencies"]):
        pytest.skip("`npm ci` was not run in sdk/typescript")
    package = tmp_path / "client"
    shutil.copytree(CLIENT, package, ignore=shutil.ignore_patterns("node_modules", "dist"))
    snippets = re.findall(r"```ts\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)
    assert snippets
    (package / "src/readme.ts").write_text(AGENT + "".join(snippets))
    (package / "node_modules").symlink_to(MODULES)
    run(package, "node", "scripts/build.js")
    environment = {"HANSEI_URL": live, "HANSEI_API_KEY": tenant.keys["admin"]}
    output = run(package, "node", "--test", **environment)
    assert re.search(r"^# (fail|skipped) [1-9]", output, re.MULTILINE) is None, output


def run(folder: Path, *command: str, **environment: str) -> str:
    result = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
