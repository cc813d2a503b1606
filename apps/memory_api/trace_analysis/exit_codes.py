"""Exit codes of calls and what they mean, and which commands test or modify something.

Pure functions of texts and metadata: the parser decides with them which calls failed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memory_api.trace_analysis.arguments import Arguments, as_items, parse_mapping

_EXIT_CODE_FIELDS = ("exit_code", "exitCode", "returncode", "return_code", "exit_status")
_CHECK_COMMAND = re.compile(
    r"\b(?:pytest|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|tsc|mypy|pyright|eslint"
    r"|go (?:test|vet|build)|cargo (?:test|check|build)|(?:npm|yarn|pnpm)(?: run)? (?:test|build)"
    r"|make (?:test|check)|(?:mvn|gradle|gradlew) \w*(?:test|check))\b"
)
_SHELL_WRITE = re.compile(
    r"(?<![\d&<=-])>{1,2} ?(?!&|/dev/)[\w./~$\"']|\bsed\b[^|;\n]{0,80} -\w*i|\btee\b"
    r"|\b(?:mv|cp|rm|patch|touch) |\bgit (?:apply|checkout|reset|restore|stash|merge|revert)\b"
    r"|\b(?:pip|npm|yarn|pnpm|go|cargo|apt|apt-get) (?:install|add|get|i|remove|uninstall)\b"
)
_READING_COMMAND = re.compile(
    r"\s*(?:cat|cd|cmp|date|diff|echo|e?grep|file|head|journalctl|less|ls|pwd|rg|stat|tail|wc|which"
    r"|git (?:blame|diff|log|show|status)|kubectl (?:describe|get|logs)|docker (?:inspect|logs|ps)"
    r"|gh run view)(?:\s|$)"
)
_COMMAND_SEPARATOR = re.compile(r"\|\|?|&&|[;\n]")
_LIST_SEPARATOR = re.compile(r"[;\n]")
_PIPE_SEPARATOR = re.compile(r"\|\|?|&&")
COMMAND_ARGUMENTS = frozenset({"command", "cmd", "code", "script"})
"""Names of an argument that is a command or code."""
_MAX_COMMAND_CHARACTERS = 4_000
_SHELL_OPTION = re.compile(r"-\w{0,4}c")
_SHELL_WITH_SCRIPT = re.compile(
    r"""\s*(?:(?:[\w/]*/)?(?:ba|da|z)?sh\s+)?-\w{0,4}c\s+(?P<quote>["'])(?P<script>.*)(?P=quote)\s*$""",
    re.DOTALL,
)
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_END_OF_COMPOUND = re.compile(r"\s*(?:done|fi|esac|\}|\))")
_SKIPPED_WORDS = frozenset(
    {"if", "while", "until", "then", "do", "else", "time", "sudo", "env", "nice"}
)
_GREP = frozenset(["grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "findstr"])
_ONE = frozenset({1})
_RESULT_CODES: dict[str, frozenset[int]] = {
    **dict.fromkeys(_GREP, _ONE),
    **dict.fromkeys(["diff", "cmp", "colordiff", "fc", "test", "[", "[[", "!", "expr"], _ONE),
    **dict.fromkeys(["which", "where", "type", "hash", "pgrep", "pidof"], _ONE),
    "robocopy": frozenset(range(1, 8)),
}
_RESULT_CODES_WITH: tuple[tuple[str, frozenset[str], frozenset[int]], ...] = (
    ("command", frozenset({"-v"}), _ONE),
    ("git", frozenset({"diff", "grep", "--is-ancestor"}), _ONE),
    ("kubectl", frozenset({"diff"}), _ONE),
    (
        "systemctl",
        frozenset({"is-active", "is-enabled", "is-failed", "status"}),
        frozenset({1, 3, 4}),
    ),
    ("terraform", frozenset({"-detailed-exitcode"}), frozenset({2})),
    ("tofu", frozenset({"-detailed-exitcode"}), frozenset({2})),
    ("xargs", _GREP, frozenset({1, 123})),
    ("find", _GREP, _ONE),
)
"""Commands, some only with one of these words, whose manual gives an exit code other than 0 the
meaning of a result: no line matches, the files differ, the condition is false, the service does not
run, there are changes. Sources: POSIX.1-2017 (grep, diff, cmp, test, expr, command), the manuals of
ripgrep, Git, kubectl, procps, systemd, GNU findutils, Terraform and Robocopy.
"""


def exit_code_from_metadata(metadata: Mapping[str, Any]) -> int | None:
    """The exit code in an event's metadata, under any common name."""
    for name in _EXIT_CODE_FIELDS:
        value = metadata.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and re.fullmatch(r"-?\d{1,5}", value):
            return int(value)
    return None


def command_of(content: str, arguments: Arguments) -> str:
    """The command or code that a call runs: an argument, free text, or the list `["bash", "-lc",
    "…"]`; '' if there is none.
    """
    name = next((n for n in arguments if n in COMMAND_ARGUMENTS or not n), None)
    if name is None:
        return ""
    items = [str(item) for item in as_items((parse_mapping(content) or {}).get(name))]
    if not items:
        return arguments[name]
    return items[2] if len(items) > 2 and _SHELL_OPTION.fullmatch(items[1]) else " ".join(items)


def is_result(tool: str, command: str, exit_code: int) -> bool:
    """Whether `exit_code` is a result of a command, by its manual, and no failure: 1 of `grep`, for
    example. True if one of the commands that may have set the code has such a result. The tool may
    be the command, and its arguments the rest.
    """
    script = _SHELL_WITH_SCRIPT.match(command[:_MAX_COMMAND_CHARACTERS])
    bare = _QUOTED.sub("''", script["script"] if script else command[:_MAX_COMMAND_CHARACTERS])
    lists = [part for part in _LIST_SEPARATOR.split(bare) if part.strip()]
    last = [part for part in lists if not part.lstrip().startswith("#")][-1:]
    if last and _END_OF_COMPOUND.match(last[0]):
        last = lists
    parts = [part for commands in last for part in _PIPE_SEPARATOR.split(commands)]
    return any(
        exit_code in _result_codes(words)
        for words in (*map(str.split, parts), f"{tool} {bare}".split())
    )


def _result_codes(words: list[str]) -> frozenset[int]:
    """The exit codes that are results of one command, by its name and words."""
    names = [word.lstrip("({").rsplit("/", 1)[-1].lower() for word in words]
    start = 0
    while start < len(names) and (names[start] in _SKIPPED_WORDS or "=" in words[start]):
        start += 1
    if names[start : start + 1] == ["timeout"]:
        start += 2
    if start >= len(names):
        return frozenset()
    for name, marks, codes in _RESULT_CODES_WITH:
        if names[start] == name and not marks.isdisjoint(names[start + 1 :]):
            return codes
    return _RESULT_CODES.get(names[start], frozenset())


def only_reads(command: str) -> bool:
    """Whether a shell command consists of commands that only read."""
    if len(command) > _MAX_COMMAND_CHARACTERS or "$(" in command or "`" in command:
        return False
    parts = [part for part in _COMMAND_SEPARATOR.split(command) if part.strip()]
    are_reading = [_READING_COMMAND.match(part) for part in parts]
    return bool(parts) and all(are_reading) and not _SHELL_WRITE.search(command)


def is_check(content: str) -> bool:
    """Whether a call runs tests, a build or a type check."""
    return bool(_CHECK_COMMAND.search(content[:2_000]))
