"""Names of arguments: a wrong one is refused with the nearest right one."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

OTHER_NAMES = {
    "answer": "generated_answer", "task": "task_description", "tokens": "token_budget",
    "trace_id": "external_id",
}  # fmt: skip
"""Names that people try, and the right ones."""


def check_names(
    problem: str, given: Collection[str], known: Collection[str], otherwise: str
) -> None:
    """Raises `TypeError` for a name that is not `known`: the problem with the nearest name, or
    with `otherwise` if none is near.
    """
    for name in given:
        if name not in known:
            right = OTHER_NAMES.get(name)
            near = [right] if right in known else get_close_matches(name, known, 1)
            hint = f" Did you mean `{near[0]}`?" if near else otherwise
            raise TypeError(f"{problem} `{name}`.{hint}")
