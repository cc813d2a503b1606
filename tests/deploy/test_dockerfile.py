"""The Dockerfile: parsed by Docker's own parser (the package `dockerfile`)."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from itertools import pairwise

from tests.support.compose_services import HOME, ROOT, image, stages

STAGES = stages()
FINAL = STAGES[-1]
INSTRUCTIONS = [one for stage in STAGES for one in stage.instructions]
RUNS = [one for one in INSTRUCTIONS if one.name == "RUN"]


def test_bases_are_pinned() -> None:
    """One image from outside, so that a renewed digest cannot differ between stages."""
    [base] = {stage.base for stage in STAGES} - {stage.name for stage in STAGES}
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)


def test_runs_as_numeric_non_root_user() -> None:
    assert len(FINAL.all("USER")) == 1
    assert image().uid > 0
    assert image().gid > 0


def test_signals_reach_the_service() -> None:
    for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
        assert FINAL.last(name).exec_form, f"{name} would run under a shell"
    assert list(image().entrypoint) == ["hansei"]
    assert image().command[0] == "serve"


def test_every_installed_file_is_hashed_or_local() -> None:
    installs = [run.words for run in RUNS if "install" in run.words]
    assert len(installs) == 2
    assert sum("--require-hashes" in words for words in installs) == 1
    for words in installs:
        ours = {"--no-index", "--no-deps", "--no-build-isolation"} <= set(words)
        assert ours or {"--require-hashes", "--only-binary=:all:"} <= set(words)


def test_build_backend_is_locked() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    backend = re.search(r'^requires = \["([a-z]+)"\]', text, re.MULTILINE)
    assert backend
    lock = (ROOT / "requirements.lock").read_text()
    assert re.search(rf"^{backend[1]}==\S+ \\\n    --hash=sha256:", lock, re.MULTILINE)


def test_nothing_is_fetched_or_compiled() -> None:
    assert not [one for one in INSTRUCTIONS if one.name == "ADD"]
    assert all(run.exec_form for run in RUNS)
    assert {run.words[0] for run in RUNS} <= {"python", "pip"}


def test_last_stage_contains_only_installed_service() -> None:
    assert not FINAL.all("RUN")
    [copy] = FINAL.all("COPY")
    assert copy.flags == ("--from=build",)
    assert copy.words == (HOME, HOME)


def test_sources_exist_and_reach_the_build(context: set[str]) -> None:
    copies = [copy for stage in STAGES[:-1] for copy in stage.all("COPY")]
    for copy in copies:
        for source in copy.words[:-1]:
            assert (ROOT / source).exists()
            assert any(name == source or name.startswith(f"{source}/") for name in context), source


def test_build_context_contains_nothing_else(context: set[str]) -> None:
    build = next(stage for stage in STAGES if stage.name == "build")
    wanted = {name for copy in build.all("COPY") for name in copy.words[:-1]}
    always = {"Dockerfile", ".dockerignore"}  # sent whatever the rules say
    assert {name.split("/")[0] for name in context} <= wanted | always
    unwanted = ("*.pyc", "*__pycache__*", "*.env*", "*/.git/*")
    assert not [name for name in context if any(fnmatch(name, rule) for rule in unwanted)]


def test_no_secret_is_built_in() -> None:
    for one in INSTRUCTIONS:
        if one.name in ("ENV", "ARG"):
            assert not re.search("PASSWORD|SECRET|TOKEN|_KEY|_URL", " ".join(one.words))


def test_ports_agree() -> None:
    assert FINAL.last("EXPOSE").words[0] == dict(pairwise(image().command))["--port"]
