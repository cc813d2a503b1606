"""A lesson of one run as a rule for the next. Pure."""

from __future__ import annotations

import re

_NESTED = r"[^()]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^()]*)*"
_EXAMPLE = re.compile(
    rf"\s*\(here {_NESTED}\)|; that worked here with [^\]\n]*\]|（ここでは[^（）]*）"
    r"|[A-Za-z]\w*(?:、[A-Za-z]\w*)* のような(?=必須でない)"
)
_CARRIED = re.compile(rf"(?<=carry over )(\w+) \({_NESTED}\)")
_VALUE = re.compile(r"(?<=[A-Za-z0-9_])（[^（）]*）(?=[、 をはが])")
_INDEX = re.compile(r"(?<=\w)\[\d+\](?=\.\w)")
_LIST = re.compile(r"(?:[\w.\[\]]+, )*[\w.\[\]]+ and [\w.\[\]]+")
_ONE_TASK = re.compile(r"\b(?:task|question) like this\b|\bfor such a task\b|同様の(?:依頼|質問)")


def general(text: str) -> str:
    """The rule without what only its own run shows: examples, values, which item of a list. Rules
    that differ in these alone are one rule.
    """
    text = _EXAMPLE.sub("", text)
    text = _CARRIED.sub(r"\1", text)
    text = _VALUE.sub("", text)
    if _INDEX.search(text):
        text = _LIST.sub(_each_once, _INDEX.sub("[]", text))
    return text


def _each_once(found: re.Match[str]) -> str:
    """`flights[].date, flights[].date and name` names two things."""
    items = list(dict.fromkeys(re.split(r", | and ", found[0])))
    return " and ".join(part for part in (", ".join(items[:-1]), items[-1]) if part)


def is_of_one_task(text: str) -> bool:
    """Whether rules wrote this for the next attempt of its task, which it does not name: that
    attempt is shown it (`group.py`), and in a playbook nobody could tell which task is meant.
    """
    return _ONE_TASK.search(text) is not None
