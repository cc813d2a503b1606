"""docker-compose.yml and Dockerfile as data, and their services as processes without Docker."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import dockerfile  # pyright: ignore[reportMissingTypeStubs]
import yaml

from tests.support.paths import ROOT

COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "Dockerfile"
HOME = "/opt/hansei"
"""Where the image has the service."""

_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?::([-?])([^}]*))?\})")
_SECONDS = {"s": 1, "m": 60}


class NotSet(Exception):
    """A variable that must be set is not: its name, and what compose would say."""


def interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    """The forms the file uses: `${A}`, `${A:-default}`, `${A:?message}` and `$$`."""

    def replace(match: re.Match[str]) -> str:
        escaped, name, form, rest = match.groups()
        if escaped:
            return "$"
        found = variables.get(name, "")
        if form == "?" and not found:
            raise NotSet(name, rest)
        return found or (rest if form == "-" else "")

    if isinstance(value, str):
        return _VARIABLE.sub(replace, value)
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {key: interpolate(item, variables) for key, item in items}
    if isinstance(value, list):
        return [interpolate(item, variables) for item in cast(list[Any], value)]
    return value


def read_compose(variables: Mapping[str, str]) -> dict[str, Any]:
    """The file as compose sees it with these variables."""
    return interpolate(yaml.safe_load(COMPOSE.read_text()), variables)


def environment(service: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, str]:
    """A service's variables; a name without a value is passed on when it is set."""
    said: dict[str, str | None] = service.get("environment", {})
    passed = {name: variables[name] for name in said if name in variables}
    return {name: value for name, value in said.items() if value is not None} | passed


def seconds(duration: str) -> int:
    return int(duration[:-1]) * _SECONDS[duration[-1]]


@dataclass(frozen=True)
class Instruction:
    """One instruction. `exec_form` is whether its words are given as a list and run by no shell."""

    name: str
    words: tuple[str, ...]
    flags: tuple[str, ...]
    exec_form: bool


@dataclass
class Stage:
    """One FROM and what follows it."""

    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list[Instruction])

    def all(self, name: str) -> list[Instruction]:
        return [one for one in self.instructions if one.name == name]

    def last(self, name: str) -> Instruction:
        return self.all(name)[-1]


def stages() -> list[Stage]:
    found: list[Stage] = []
    parse = cast(Any, dockerfile).parse_file
    for command in parse(str(DOCKERFILE)):
        if command.cmd.upper() == "FROM":
            base, *alias = command.value
            found.append(Stage(base, alias[1] if alias else ""))
        else:
            one = Instruction(command.cmd.upper(), command.value, command.flags, command.json)
            found[-1].instructions.append(one)
    return found


def lineage(stage: Stage) -> list[Stage]:
    """The stages of this file that `stage` is made from, the first one first."""
    for other in stages():
        if other.name == stage.base:
            return [*lineage(other), stage]
    return [stage]


@dataclass(frozen=True)
class Image:
    """How the last stage is run."""

    entrypoint: Sequence[str]
    command: Sequence[str]
    environment: Mapping[str, str]
    uid: int
    gid: int
    healthcheck: Sequence[str]


def image() -> Image:
    final = stages()[-1]
    variables: dict[str, str] = {}
    for stage in lineage(final):
        for one in stage.all("ENV"):
            variables |= dict(zip(one.words[::2], one.words[1::2], strict=True))
    uid, gid = final.last("USER").words[0].split(":")
    return Image(
        entrypoint=final.last("ENTRYPOINT").words,
        command=final.last("CMD").words,
        environment=variables,
        uid=int(uid),
        gid=int(gid),
        healthcheck=final.last("HEALTHCHECK").words[1:],
    )


@dataclass(frozen=True)
class Machine:
    """Stands in for Docker: runs what the image installs, with the image's and the service's
    environment and nothing of ours, as the image's user when we are root.

    `instead` says what is different here: texts of the files → what they are on this machine.
    """

    site: Path
    python: str
    libraries: Path
    uid: int | None
    variables: dict[str, str]
    instead: dict[str, str]
    log: Path

    def here(self, text: str) -> str:
        for theirs, ours in self.instead.items():
            text = text.replace(theirs, ours)
        return text

    def argv(self, words: Sequence[str]) -> list[str]:
        program, *arguments = [self.here(word) for word in words]
        if program == "python":
            return [self.python, *arguments]
        return [self.python, str(self.site / "bin" / program), *arguments]

    def environment(self, name: str) -> dict[str, str]:
        service = read_compose(self.variables)["services"][name]
        said = {**image().environment, **environment(service, self.variables)}
        said["PATH"] = said["PATH"].replace("$PATH", "/usr/local/bin:/usr/bin:/bin")
        ours = {key: self.here(value) for key, value in said.items()}
        return ours | {"PYTHONPATH": f"{self.site}:{self.libraries}"}

    def start(self, name: str, *command: str) -> subprocess.Popen[str]:
        """A service as compose starts it; with `command` as `docker compose run` does."""
        service = read_compose(self.variables)["services"][name]
        words = [*image().entrypoint, *(command or service.get("command", image().command))]
        return self.launch(name, words)

    def launch(self, name: str, words: Sequence[str]) -> subprocess.Popen[str]:
        with self.log.open("a") as log:
            return subprocess.Popen(
                self.argv(words),
                env=self.environment(name),
                cwd=self.site,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                user=self.uid,
                group=None if self.uid is None else image().gid,
                extra_groups=None if self.uid is None else [],
            )

    def run(self, name: str, *command: str) -> tuple[int, str]:
        """Run a service to its end → exit status, what it printed."""
        return self.finish(self.start(name, *command))

    def healthy(self, name: str) -> bool:
        """What the service's health check says now."""
        test = read_compose(self.variables)["services"][name]["healthcheck"]["test"]
        return self.finish(self.launch(name, test[1:]))[0] == 0

    @staticmethod
    def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
        """Wait for its end → exit status, what it printed."""
        try:
            said, _ = process.communicate(timeout=60)
        finally:
            process.kill()
        return process.returncode, said
