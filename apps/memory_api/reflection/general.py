"""A lesson of one run as a rule for the next. Pure."""

from __future__ import annotations

import re

_NESTED = r"[^()]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^()]*)*"
_EXAMPLE = re.compile(rf"\s*\(here {_NESTED}\)|（ここでは[^（）]*）")
_ONE_TASK = re.compile(r"\b(?:task|question) like this\b|\bfor such a task\b|同様の(?:依頼|質問)")


def general(text: str) -> str:
    """The rule without examples of its own run. Rules that differ in these alone are one rule."""
    return _EXAMPLE.sub("", text)


def is_of_one_task(text: str) -> bool:
    """Whether rules wrote this for the next attempt of its task, which it does not name: that
    attempt is shown it (`group.py`), and in a playbook nobody could tell which task is meant.
    """
    return _ONE_TASK.search(text) is not None
