"""Whether two pieces of code are the same but for their looks."""

from __future__ import annotations

import ast
import re

_FENCE = re.compile(r"```[\w+-]*\n(?P<code>.*?)```", re.DOTALL)
_TOKEN = re.compile(r"\w+|[^\w\s]")
_SIGNS = re.compile(
    r"^\s*(?:def |class |import |from \w+ import |return\b|for .+:$|if .+:$|func |function "
    r"|const |let |var |#include|public |package )|[;{}]\s*$|^\s*\w+ ?= ?\S|=>",
    re.MULTILINE,
)
_LONGEST = 100_000


def code_of(text: str) -> str | None:
    """The code that a text is or holds between ``` marks; None when it is prose."""
    fenced = _FENCE.search(text[:_LONGEST])
    if fenced:
        return fenced["code"]
    lines = [line for line in text[:_LONGEST].splitlines() if line.strip()]
    if not lines:
        return None
    signs = sum(bool(_SIGNS.search(line)) for line in lines)
    return text if signs * 2 >= len(lines) else None


def same_code(one: str, other: str) -> bool:
    """Python by its syntax tree (comments and layout do not count), anything else by its tokens."""
    trees = _tree(one), _tree(other)
    if None not in trees:
        return trees[0] == trees[1]
    return _TOKEN.findall(one[:_LONGEST]) == _TOKEN.findall(other[:_LONGEST])


def _tree(code: str) -> str | None:
    try:
        return ast.dump(ast.parse(code[:_LONGEST]))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
