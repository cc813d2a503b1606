"""What a hosted repository reads: workflows, Dependabot, issue forms, hooks, devcontainer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rules.sources import ROOT, files, name_of
from tests.support.cases import each_case

WORKFLOWS = files(".github/workflows", suffix=".yml")
STEPS = [
    (name_of(path), step)
    for path in WORKFLOWS
    for job in yaml.safe_load(path.read_text())["jobs"].values()
    for step in job["steps"]
]
FORMS = [path for path in files(".github/ISSUE_TEMPLATE", suffix=".yml") if path.stem != "config"]
SCHEMAS = {
    **{name_of(path): "vendor.github-workflows" for path in WORKFLOWS},
    **{name_of(path): "vendor.github-issue-forms" for path in FORMS},
    ".github/ISSUE_TEMPLATE/config.yml": "vendor.github-issue-config",
    ".github/dependabot.yml": "vendor.dependabot",
    "CITATION.cff": "vendor.citation-file-format",
}
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def schema_accepts(path: Path, schema: str) -> bool:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 0


def missing_targets(command: str) -> list[str]:
    """The targets of `make` in a command that the Makefile does not have."""
    lists = re.findall(r"\bmake((?: +[^\s&;|]+)+)", command)
    words = [word for each in lists for word in each.split() if "=" not in word]
    return [word for word in words if word not in TARGETS]


def recipe(target: str) -> list[str]:
    """The commands of a target, without their comments."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found, target
    return [line.partition(" #")[0].strip() for line in found[1].splitlines()]


@pytest.mark.parametrize("status", [0, 3])
def test_installation_says_how_far_it_is(status: int, tmp_path: Path) -> None:
    """`pip -q` prints nothing for more than a minute."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\nsleep 2.5\nexit {status}\n")
    python.chmod(0o755)
    package = tmp_path / "lib" / "python3.11" / "site-packages" / "a-1.dist-info"
    package.mkdir(parents=True)
    command = ["make", "setup", f"VENV={tmp_path}", "REPORT_SECONDS=1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.returncode == 0) == (status == 0), done.stderr
    assert re.search(r"2 s: 1 of about \d+ packages installed", done.stdout), done.stdout
    assert (tmp_path / ".installed").exists() == (status == 0)


@each_case("name", SCHEMAS)
def test_schema(name: str) -> None:
    assert schema_accepts(ROOT / name, SCHEMAS[name])


@pytest.mark.parametrize(
    ("right", "wrong"), [("runs-on:", "run-on:"), ("timeout-minutes: 20", "timeout-minutes: [20]")]
)
def test_schema_refuses_typo(right: str, wrong: str, tmp_path: Path) -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    assert right in text
    (tmp_path / "ci.yml").write_text(text.replace(right, wrong))
    assert not schema_accepts(tmp_path / "ci.yml", "vendor.github-workflows")


def test_targets_exist() -> None:
    commands = [step["run"] for _, step in STEPS if "run" in step]
    devcontainer = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    commands.append(devcontainer["postCreateCommand"])
    assert [name for command in commands for name in missing_targets(command)] == []
    assert {"lint", "test", "docs"} <= {word for each in commands for word in each.split()}


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("make lint", []),
        ("sudo true && make lnit", ["lnit"]),
        ('make test-faults REPEAT=5 && make "$X"', ['"$X"']),
        ("make lint tset", ["tset"]),
    ],
)
def test_missing_targets_are_found(command: str, missing: list[str]) -> None:
    assert missing_targets(command) == missing


def test_actions_are_pinned_by_commit() -> None:
    pinned = re.compile(r"\s+(?:- )?uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    lines = [
        line for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line
    ]
    assert len(lines) == sum("uses" in step for _, step in STEPS) > 20
    assert [line for line in lines if not pinned.fullmatch(line)] == []


def test_action_has_one_version() -> None:
    found = {step["uses"] for _, step in STEPS if "uses" in step}
    assert len({each.partition("@")[0] for each in found}) == len(found)


def test_workflows_have_least_rights() -> None:
    for path in WORKFLOWS:
        workflow: dict[str, Any] = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}, path.name
        assert "pull_request_target" not in path.read_text()
        for name, job in workflow["jobs"].items():
            assert "timeout-minutes" in job, (path.name, name)
            rights = job.get("permissions", {})
            if "write" in rights.values():
                assert path.name == "release.yml" or rights["security-events"] == "write", name
    for name, step in STEPS:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False, name
        # text of a pull request is data: it reaches a shell as a variable, not as a part of it
        assert not re.search(r"\$\{\{(?!\s*matrix\.)", step.get("run", "")), name


def test_matrix_has_every_supported_version() -> None:
    matrix = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["test"][
        "strategy"
    ]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert {each["server"] for each in matrix["include"]} == {"pg16", "pg17", "pg18"}


def test_pre_commit_runs_lint() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    checks = [line.replace("$(BIN)", ".venv/bin") for line in recipe("lint")]
    assert checks.pop() == ".venv/bin/python -m tests.rules.audit", "too slow for a hook"
    assert [hook["entry"] for hook in hooks] == checks


def test_devcontainer_has_the_base_of_the_image() -> None:
    def base(path: str) -> str:
        return re.findall(r"^FROM (\S+)", (ROOT / path).read_text(), re.MULTILINE)[0]

    assert base(".devcontainer/Dockerfile") == base("Dockerfile")
