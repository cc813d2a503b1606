"""Names of tools and arguments as a rule for all runs writes them: without values of one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from apps.memory_api.traces.arguments import Change, named

_PLACE = re.compile(r"\[\d+\]")
_VALUE = re.compile(r"\S*\d\S*")
_TOOL = re.compile(r"[\w\-]+(?:\.[\w\-]+)*(?=$|[\[(])")
_FILE = re.compile(r"\.(?:py|pyi|js|jsx|ts|tsx|go|rs|rb|c|h|cc|cpp|cs|java|kt|sh|sql|html|css)$")


def tools(*names: str) -> dict[str, tuple[str, ...]]:
    """The entries of a roll that names tools only."""
    return dict.fromkeys(names, ())


def tool_of(call: str) -> str:
    """The tool of `fetch(report, march)`, `Search[x]` or `fetch`; '' for anything else, and for the
    file of one project.
    """
    found = _TOOL.match(call)
    return found[0] if found and not _FILE.search(found[0]) else ""


def arguments(changes: Iterable[Change]) -> list[str]:
    """The named arguments of these changes; which item of a list does not matter."""
    return [_PLACE.sub("[]", change.name) for change in changes if named(change)]


def sources(tool_by_argument: Mapping[str, str]) -> dict[str, list[str]]:
    """The entries of a roll that says from which tool's response each argument comes."""
    found: dict[str, list[str]] = {}
    for argument, tool in tool_by_argument.items():
        found.setdefault(_PLACE.sub("[]", argument), []).append(tool)
    return found


def in_general(message: str) -> str:
    """What a tool says, without the numbers and ids it says it of."""
    return _VALUE.sub("…", message)
