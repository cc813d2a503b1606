"""Which tests run in the same process of pytest-xdist (`--dist loadgroup`)."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

LONG_FOLDERS = ("faults", "e2e", "deploy", "plans", "embedded", "commands", "learning", "worker")
"""Folders with the longest tests. They start first, so that no process waits for another at the
end."""

SHARED_FOLDERS = {"faults", "e2e", "deploy", "observability", "plans", "embedded", "memories"}
"""Folders whose tests share a fixture that takes seconds to make."""


class FolderScheduling(LoadScopeScheduling):
    """One process runs all tests of a shared folder, and all tests of any other file, so that the
    fixtures of a module or session are made once.

    Replaces xdist's own groups: xdist 3.8 appends their names to `Item._nodeid`, which pytest 9.2
    no longer reads.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = folder_of(file)
        return folder if folder in SHARED_FOLDERS else file


def folder_of(file: str) -> str:
    """The folder below `tests/` of a path relative to the project."""
    return file.removeprefix("tests/").partition("/")[0]


def order_by_length(items: list[pytest.Item]) -> None:
    """Move the tests of `LONG_FOLDERS` to the front; the order is unchanged otherwise."""
    places = {folder: place for place, folder in enumerate(LONG_FOLDERS)}
    items.sort(key=lambda item: places.get(folder_of(item.nodeid), len(LONG_FOLDERS)))


def make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """The scheduler of `--dist loadgroup`; None for xdist's own."""
    if config.getoption("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False  # keeps the order of `order_by_length`
    return FolderScheduling(config, log)
