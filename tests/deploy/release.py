"""`make release-check`: is this commit ready to be released? `python -m tests.deploy.release`.

Builds what a release publishes, installs the wheels in empty environments, runs the tour against
them, and writes the SBOM and the licenses of everything installed. Prints each check and fails if
something is missing. The argument is a tag, or `--set 0.2.0`, which writes the version everywhere.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.parser import Parser
from pathlib import Path

from tests.deploy.packages import table
from tests.deploy.shipped import Missing, bundled_licenses, package_licenses
from tests.e2e.released import archive_of
from tests.support.paths import ROOT

DIST = ROOT / "build/dist"
UV = str(Path(sys.executable).with_name("uv"))
CYCLONEDX = "cyclonedx-bom==7.5.0"
VERSION = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"
MAX_PACKAGES, MAX_MEGABYTES = 70, 300
"""What `pip install hansei-server` may bring, without bytecode."""

VERSIONS = {
    "pyproject.toml": (r'^version = "({})"$', r'"hansei==({})"'),
    "sdk/pyproject.toml": (r'^version = "({})"$',),
    "sdk/typescript/package.json": (r'^  "version": "({})",$',),
    "sdk/typescript/package-lock.json": (
        r'\A\{{\n  "name": "@hansei/client",\n  "version": "({})"',
        r'    "": \{{\n      "name": "@hansei/client",\n      "version": "({})"',
    ),
    "sdk/typescript/README.md": (r"hansei-client-({})\.tgz",),
    "docker-compose.yml": (r"image: hansei:({})$",),
    "deploy/kubernetes/api.yaml": (r"image: hansei:({})$",),
    "deploy/kubernetes/worker.yaml": (r"image: hansei:({})$",),
    "deploy/kubernetes/migrate.yaml": (r"image: hansei:({})$",),
    "deploy/kubernetes/indexes.yaml": (r"image: hansei:({})$",),
    "CITATION.cff": (r"^version: ({})$",),
    "openapi.json": (r'^    "version": "({})"$',),
}
"""Where the version is written. That of pyproject.toml decides."""


class ToDo(Missing):
    """What only a maintainer can add. It fails the check of a tag."""


def version() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def places() -> Iterator[tuple[str, re.Match[str]]]:
    """Each place of the version. Raises `Missing` for a place that is not there."""
    for name, patterns in VERSIONS.items():
        text = (ROOT / name).read_text()
        for pattern in patterns:
            found = re.search(pattern.format(VERSION), text, re.MULTILINE)
            if found is None:
                raise Missing(f"{name} does not contain the version")
            yield name, found


def set_version(new: str) -> None:
    for name, patterns in VERSIONS.items():
        path = ROOT / name
        text = path.read_text()
        for pattern in patterns:
            found = re.search(pattern.format(VERSION), text, re.MULTILINE)
            if found is None:
                raise Missing(f"{name} does not contain the version")
            text = text[: found.start(1)] + new + text[found.end(1) :]
        path.write_text(text)


def run(*command: str, cwd: Path = ROOT, **env: str) -> str:
    """The output of a command. Raises `Missing` with its last line if it fails."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=540
    )
    if done.returncode != 0:
        (DIST.parent / "release.log").write_text(done.stdout + done.stderr)
        last = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        raise Missing(f"`{' '.join(command)}` failed (build/release.log): {last[-1]}")
    return done.stdout


def check_tree(tag: str) -> str:
    changed = run("git", "status", "--porcelain").splitlines()
    if changed:
        raise Missing(f"{len(changed)} files are not committed, such as {changed[0][3:]}")
    return run("git", "rev-parse", "--short", "HEAD").strip()


def check_versions(tag: str) -> str:
    wanted = version()
    other = sorted({f"{name}: {found[1]}" for name, found in places() if found[1] != wanted})
    if other:
        raise Missing(f"pyproject.toml has {wanted}, but {', '.join(other)}")
    if tag and tag != f"v{wanted}":
        raise Missing(f"the tag {tag} is not v{wanted}")
    return wanted


def check_changelog(tag: str) -> str:
    newest = re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    if not newest.startswith(f"{version()}, "):
        raise Missing(f"the newest section of CHANGELOG.md is {newest!r}")
    if tag and newest.endswith("unreleased"):
        raise Missing("CHANGELOG.md has no date for this version")
    if newest.endswith("unreleased"):
        raise ToDo("write the date of this version into CHANGELOG.md")
    return newest


def check_build(tag: str) -> str:
    run("make", "dist")
    run("make", "docs")
    built = sorted(path.name for path in DIST.iterdir())
    v = version()
    wanted = [
        *(f"hansei-{v}{end}" for end in ("-py3-none-any.whl", ".tar.gz")),
        f"hansei-client-{v}.tgz",
        *(f"hansei_server-{v}{end}" for end in ("-py3-none-any.whl", ".tar.gz")),
    ]
    if built != wanted:
        raise Missing(f"build/dist has {', '.join(built)}")
    return ", ".join(built)


def check_wheels(tag: str) -> str:
    for name, package in (("hansei", "hansei"), ("hansei_server", "memory_api")):
        with zipfile.ZipFile(DIST / f"{name}-{version()}-py3-none-any.whl") as wheel:
            names = wheel.namelist()
            metadata = next(each for each in names if each.endswith(".dist-info/METADATA"))
            fields = Parser().parsestr(wheel.read(metadata).decode())
        strange = {each.split("/")[0] for each in names} - {package, metadata.split("/")[0]}
        if strange:
            raise Missing(f"the wheel of {name} also contains {', '.join(sorted(strange))}")
        if not any(each.endswith("licenses/LICENSE") for each in names):
            raise Missing(f"the wheel of {name} contains no license")
        needs = [each for each in fields.get_all("Requires-Dist") or () if "extra ==" not in each]
        if any(each.startswith("hatchling") for each in needs):
            raise Missing(f"the wheel of {name} needs a build backend")
    return "one package each, with its license"


def check_pages(tag: str) -> str:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls")
    package = json.loads((ROOT / "sdk/typescript/package.json").read_text())
    if not urls or "repository" not in package:
        raise ToDo(
            "no public address: add `project.urls` to both pyproject.toml and `repository` to"
            " package.json (npm needs it for the provenance)"
        )
    return ", ".join(urls)


def check_upgrade(tag: str) -> str:
    archive = archive_of(version())
    if not archive.exists():
        raise ToDo(
            "no data of this version for later ones: run `python -m tests.e2e.released` when its"
            " migrations are final, and commit tests/recordings/releases"
        )
    return archive.name


def check_client(tag: str) -> str:
    """The client alone, in an empty environment."""
    with environment() as python:
        run(UV, "pip", "install", "-q", "--python", python, wheel("hansei"))
        run(python, "-c", "import hansei; hansei.Hansei", cwd=Path(python).parent)
        return run(f"{Path(python).parent}/hansei", "--version").strip()


def check_server(tag: str) -> str:
    """Both wheels as pip resolves them, with the newest versions of everything: the tour, the SBOM
    and the licenses."""
    with environment() as python:
        run(UV, "pip", "install", "-q", "--python", python, wheel("hansei"), wheel("hansei_server"))
        command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
        run(*command, "tests/e2e/test_tour.py", HANSEI_TEST_PYTHON=python)
        packages, unknown = package_licenses(python)
        lines = [*packages, *bundled_licenses(python)]
        (DIST / "licenses.txt").write_text("\n".join(lines) + "\n")
        if unknown:
            raise Missing(f"no license is known of {', '.join(unknown)}")
        sbom = str(DIST / "sbom.cdx.json")
        run(
            UV,
            "tool",
            "run",
            "--from",
            CYCLONEDX,
            "cyclonedx-py",
            "environment",
            python,
            "-o",
            sbom,
        )
        _, count, size = table(python)
        if count > MAX_PACKAGES or size > MAX_MEGABYTES:
            raise Missing(
                f"the server brings {count} packages and {size:.0f} MB,"
                f" over {MAX_PACKAGES} or {MAX_MEGABYTES} (docs/packages.md)"
            )
        return f"the tour passes; {count} packages, {size:.0f} MB without bytecode"


@contextmanager
def environment() -> Iterator[str]:
    """The Python of an empty virtual environment, in a folder whose name has a space."""
    with tempfile.TemporaryDirectory(prefix="hansei release-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user if we are root
        run(UV, "venv", "-q", "--python", sys.executable, f"{folder}/venv")
        yield f"{folder}/venv/bin/python"


def wheel(name: str) -> str:
    return str(DIST / f"{name}-{version()}-py3-none-any.whl")


CHECKS: dict[str, Callable[[str], str]] = {
    "clean tree": check_tree,
    "one version": check_versions,
    "changelog": check_changelog,
    "packages and docs": check_build,
    "wheels": check_wheels,
    "client": check_client,
    "server": check_server,
    "public address": check_pages,
    "upgrade": check_upgrade,
}
"""The first three need no build; if one of them fails, nothing is built."""


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--set"]:
        set_version(arguments[1])
        return 0
    tag = arguments[0] if arguments else ""
    missing = 0
    for name, check in CHECKS.items():
        if missing and check is check_build:
            break
        try:
            print(f"ok       {name}: {check(tag)}", flush=True)  # noqa: T201
        except Missing as error:
            is_later = isinstance(error, ToDo) and not tag
            missing += not is_later
            print(f"{'to do' if is_later else 'missing':8} {name}: {error}", flush=True)  # noqa: T201
    return min(missing, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
