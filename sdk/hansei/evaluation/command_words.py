"""The words of the command of an agent or a scorer: what it starts, and what is secret."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

from hansei.errors import EvaluationError

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
"""How a word begins that sets a variable, as in `env KEY=… python agent.py`."""
HIDDEN = re.compile(r"[=\s]")
"""In a word that may set a variable or an option."""
SECRET_NAMES = "KEY, TOKEN, SECRET, PASSWORD or PASS"
SECRET = re.compile(r"([\w-]*(?:key|token|secret|password|pass)=).*", re.IGNORECASE | re.DOTALL)
INTERPRETER = re.compile(
    r"(?:.*[/\\])?(?:python|pypy|node|bun|tsx|ts-node|bash|sh|zsh)[\d.]*(?:\.exe)?"
)
SCRIPT_SUFFIXES = (".py", ".js", ".mjs", ".ts", ".sh")
CODE_OPTION = re.compile(r"-[A-Za-z]*[cemp]")
"""Of an interpreter: code or a module follows, no script."""


def hide_variables(command: str) -> str:
    """The command with `…` for each word that has a `=` or a space: it may set a secret."""
    try:
        words = shlex.split(command)
    except ValueError:
        return "…"
    return " ".join("…" if HIDDEN.search(word) else word for word in words)


def hide_secrets(command: str) -> str:
    """The command with `…` for each value of a variable or option with the name of a secret. A
    command without one is returned as it is.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    hidden = [SECRET.sub(r"\1…", word) if SECRET.fullmatch(word) else word for word in words]
    return command if hidden == words else shlex.join(hidden)


def require_files(command: str) -> list[str]:
    """The program of a command, and its script if the program is a known interpreter. Raises
    `EvaluationError` if one does not exist.
    """
    try:
        words = shlex.split(command) or [""]
    except ValueError as error:
        raise EvaluationError(f"Cannot start `{command}`: {error}.") from error
    program = words[0]
    if shutil.which(program) is None:
        reason = f"'{program}' is no executable program, and no shell runs the command."
        if ASSIGNMENT.match(program):
            reason = f"no shell runs the command. Pass `env {command}`."
        raise EvaluationError(f"Cannot start `{command}`: {reason}")
    script = _find_script(words)
    if script is None:
        return [program]
    if not Path(script).is_file():
        raise EvaluationError(
            f"Cannot start `{command}`: the folder {Path.cwd()} has no file '{script}'."
        )
    return [program, script]


def _find_script(words: list[str]) -> str | None:
    """The first word after an interpreter that has the name of a script."""
    if Path(words[0]).name == "env":
        words = [word for word in words[1:] if not ASSIGNMENT.match(word)]
    if not words or not INTERPRETER.fullmatch(words[0]):
        return None
    for word in words[1:]:
        if CODE_OPTION.fullmatch(word):
            return None
        if word.endswith(SCRIPT_SUFFIXES) and not word.startswith("-"):
            return word
    return None
